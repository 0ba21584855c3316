"""The score of a finding whose decision has none of its own: where the measurement that decided lies in its region."""

from __future__ import annotations

import math
from statistics import stdev

from assay.results import Finding, Interval, Measurement, Verdict
from assay.stats.decision import score

BOUNDARY = 50.0


def headline_score(finding: Finding) -> float | None:
    """0 to 100 from the headline's interval and region, 50 at the boundary; None if there is nothing to place.

    A claim that did not pass never scores above the boundary, whatever its headline alone would say: other checks spoke
    against it. Without an interval (a deterministic claim) the value itself is placed.
    """
    decided = next((m for m in finding.measurements if m.name == finding.headline), None)
    if decided is None or decided.region is None or decided.value is None or finding.verdict is Verdict.ERROR:
        return None
    value = decided.value
    interval = decided.interval or Interval(low=value, high=value, confidence=1.0, method="the value itself")
    scale = _scale(decided)
    if scale is None or not math.isfinite(value):
        return None
    points = score(interval, decided.region, scale=scale)
    return points if points is None or finding.verdict is Verdict.PASS else min(points, BOUNDARY)


def _scale(decided: Measurement) -> float | None:
    """What counts as far from the edge: half a two-sided region, the size of one edge, or the spread if that is 0."""
    assert decided.region is not None
    low, high = decided.region.low, decided.region.high
    if low is not None and high is not None:
        return (high - low) / 2 or None
    edge = low if low is not None else high
    if edge is None:
        return None
    spread = stdev(decided.values) if len(decided.values) > 1 else 0.0
    return abs(edge) or spread or abs(decided.value or 0.0) or None
