"""An interval at a stricter level than it was made for, and how often it would confirm its claim again."""

from __future__ import annotations

import math

from assay.results import Interval, Measurement
from assay.stats.intervals import binomial_interval, deviation, spreadless
from assay.stats.power import power

EXACT = "exact binomial"


def widened(measurement: Measurement, level: float) -> Measurement:
    """The measurement with its interval at one-sided ``level``, if it was made at a laxer one.

    t intervals are made again from their values and exact ones from their counts; any other is stretched by the ratio
    of the quantiles of t with as few degrees of freedom as there are values, which is the largest it can be.
    """
    interval = measurement.interval
    if interval is None or interval.confidence >= 1 - 2 * level - 1e-9:
        return measurement
    if level <= 0:
        return _with(measurement, -math.inf, math.inf, 0.0)
    from scipy import special, stats

    values = [value for value in measurement.values if math.isfinite(value)]
    if interval.method == EXACT and measurement.value is not None:
        made = binomial_interval(round(measurement.value * measurement.n), measurement.n, confidence=1 - 2 * level)
        return _with(measurement, made.low, made.high, level)
    if interval.method in ("t", "paired t") and len(values) >= 2 and not spreadless(values):
        ends = stats.ttest_1samp(values, popmean=0.0).confidence_interval(1 - 2 * level)
        return _with(measurement, float(ends.low), float(ends.high), level)
    freedom = max(1, (len(values) or measurement.n) - 1) if EXACT not in interval.method else 1e9
    first, second = special.stdtrit(freedom, [1 - level, (1 + interval.confidence) / 2])
    centre = (interval.low + interval.high) / 2 if measurement.value is None else measurement.value
    ratio = float(first / second)
    return _with(
        measurement, centre - ratio * (centre - interval.low), centre + ratio * (interval.high - centre), level
    )


def power_again(measurement: Measurement | None) -> float | None:
    """How often as many observations that spread like these would confirm the claim; None where nothing is sampled.

    A claim that a gap of 0 satisfies (parity, non-inferiority) is asked at a true gap of 0. One that it does not
    (better than, above a limit) is asked at the value seen: how often would it come out again?
    """
    if measurement is None or measurement.region is None or measurement.interval is None:
        return None if measurement is None or measurement.region is None else 0.0
    interval, region = measurement.interval, measurement.region
    if interval.confidence >= 1.0 or measurement.value is None:
        return None
    low = -math.inf if region.low is None else region.low
    high = math.inf if region.high is None else region.high
    level = (1 - interval.confidence) / 2
    if interval.method == EXACT:
        return _binomial(measurement, low, high, interval.confidence)
    truth = 0.0 if low < 0.0 < high else measurement.value
    values = [value for value in measurement.values if math.isfinite(value)]
    if interval.method == "paired t" and len(values) >= 2 and not spreadless(values):
        return _student(values, low, high, truth=truth, level=level)
    if interval.high <= interval.low:
        return None
    return _around(interval, measurement.value, low=low, high=high, truth=truth, level=level)


def _student(values: list[float], low: float, high: float, *, truth: float, level: float) -> float | None:
    spread, n = deviation(values), len(values)
    if math.isfinite(low) and math.isfinite(high):
        return power((high - low) / 2, spread, n, gap=truth - (low + high) / 2, alpha=level)
    room = truth - low if math.isfinite(low) else high - truth
    return power(room, spread, n, alpha=level, sides="one") if room > 0 else 0.0


def _around(interval: Interval, value: float, *, low: float, high: float, truth: float, level: float) -> float:
    """The same from an interval alone, taken as normal."""
    from scipy import special

    down, up = value - interval.low, interval.high - value
    error = (down + up) / 2 / float(special.ndtri(1 - level))
    upper, lower = high - up, low + down
    return max(0.0, float(special.ndtr((upper - truth) / error) - special.ndtr((lower - truth) / error)))


def _binomial(measurement: Measurement, low: float, high: float, confidence: float) -> float:
    from scipy import stats

    n, rate = measurement.n, measurement.value or 0.0
    inside = 0.0
    for count in range(n + 1):
        made = binomial_interval(count, n, confidence=confidence)
        if low <= made.low and made.high <= high:
            inside += float(stats.binom.pmf(count, n, rate))
    return inside


def _with(measurement: Measurement, low: float, high: float, level: float) -> Measurement:
    assert measurement.interval is not None
    made = measurement.interval.model_copy(update={"low": low, "high": high, "confidence": 1 - 2 * level})
    return measurement.model_copy(update={"interval": made})
