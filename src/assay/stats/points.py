"""What a finding is given after its decision: a score if it has none, and the modesty of a smoke run."""

from __future__ import annotations

import math
from typing import Any, Literal

from assay.results import Evidence, Finding, Interval, Measurement, Verdict
from assay.stats.decision import score
from assay.stats.intervals import deviation

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


def first_look(finding: Finding, *, kind: Literal["statistical", "deterministic"]) -> Finding:
    """The finding of a smoke run, whose trainings are shortened: its evidence is smoke, however many seeds it had.

    A statistical claim is neither shown nor refuted by a network that was hardly trained; a deterministic one (an error
    against what rounding allows) is what it is. An ERROR stays one: finding it is what a first look is for.
    """
    told = "smoke budget: a first look with shortened trainings, which decides nothing"
    changes: dict[str, Any] = {"evidence": Evidence.SMOKE, "limitations": (*finding.limitations, f"S{told[1:]}.")}
    if kind == "statistical" and finding.verdict in (Verdict.PASS, Verdict.PARTIAL, Verdict.FAIL):
        changes |= {
            "verdict": Verdict.INCONCLUSIVE,
            "reason": f"{told} (it said {finding.verdict}: {finding.reason})",
            "score": None if finding.score is None else min(finding.score, BOUNDARY),
        }
    return finding.model_copy(update=changes)


def _scale(decided: Measurement) -> float | None:
    """What counts as far from the edge: half a two-sided region, the size of one edge, or the spread if that is 0."""
    assert decided.region is not None
    low, high = decided.region.low, decided.region.high
    if low is not None and high is not None:
        return (high - low) / 2 or None
    edge = low if low is not None else high
    if edge is None:
        return None
    spread = deviation(decided.values) if len(decided.values) > 1 else 0.0
    return abs(edge) or spread or abs(decided.value or 0.0) or None
