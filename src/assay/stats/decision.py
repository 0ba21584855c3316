"""A claim is a region, evidence is an interval, the verdict is their relation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from assay.errors import expected
from assay.results import Check, Frozen, Interval, Measurement, Region, Verdict

LEAST_LEVEL = 1e-12
"""Quantiles at smaller levels are rounding: 1 - level must differ from 1 by many units in the last place."""
MINIMUM_SEEDS = 3
"""Fewer observations than this show that something runs, not that it holds."""


class Decision(Frozen):
    """What a comparison concluded, ready to be put into a Finding.

    ``p_value`` belongs to "the claim is wrong": small is evidence for the claim. ``minimal_margin`` is the smallest
    margin that this many observations with this spread could have confirmed with 80 % power if the true gap were 0;
    ``power`` is the chance of that for the margin asked for. ``checks`` are the guards, ``notes`` sentences to print.
    """

    claim: str
    verdict: Verdict
    reason: str
    measurement: Measurement
    n: int
    alpha: float
    method: str
    p_value: float | None = None
    score: float | None = None
    minimal_margin: float | None = None
    power: float | None = None
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """True for PASS alone."""
        return self.verdict is Verdict.PASS

    def check(self, name: str = "", *, label: str = "") -> Check:
        """This decision as one line of a finding."""
        return Check(name=name or self.claim, verdict=self.verdict, reason=self.reason, label=label)


def relation(interval: Interval | None, region: Region) -> Verdict:
    """PASS if the interval lies inside the region, FAIL if it is disjoint from it, INCONCLUSIVE otherwise.

    No interval, or one with a NaN end, decides nothing.

    >>> relation(Interval(low=-1, high=2, confidence=0.9, method="t"), Region(low=-3, high=3))
    <Verdict.PASS: 'PASS'>
    """
    return region.judge(interval)


def score(interval: Interval | None, region: Region, *, scale: float | None = None) -> float | None:
    """0 to 100, with 50 where the worst value in the interval touches the edge of the region.

    50 + 50 clip(slack / scale, -1, 1); slack is the distance from the worst value in the interval to the nearest edge,
    negative outside. ``scale`` is half the width of a two-sided region, so for parity within a margin d and the largest
    gap w inside the interval this is 50 + 50 clip((d - w) / d, -1, 1); of a one-sided region it is the size of its
    edge. The score orders verdicts of one claim; scores of different claims are not comparable.

    >>> score(Interval(low=-1.5, high=0, confidence=0.9, method="t"), Region(low=-3, high=3))
    75.0
    """
    if interval is None or math.isnan(interval.low) or math.isnan(interval.high):
        return None
    edges = [edge for edge in (region.low, region.high) if edge is not None]
    if not edges:
        raise expected("a region with an edge", given="an unbounded region", do="every value would pass")
    if scale is None:
        scale = (edges[1] - edges[0]) / 2 if len(edges) == 2 else abs(edges[0])
    if not (math.isfinite(scale) and scale > 0):
        raise expected("a scale > 0", given=f"scale={scale}", do="pass scale= for a region whose edge is 0")
    slack = min(
        math.inf if region.low is None else interval.low - region.low,
        math.inf if region.high is None else region.high - interval.high,
    )
    return 50.0 + 50.0 * max(-1.0, min(1.0, slack / scale))


def all_hold(decisions: Sequence[Decision], *, claim: str = "") -> Decision:
    """The decision that every one of several claims holds: the worst of them.

    Where all hold, one with an interval stands for them, if there is one: it says how sure the whole is.

    "All tasks hold" is an intersection-union claim: each part is tested at the full alpha and none is corrected,
    because a single part that fails already refutes the whole. For a list of separate claims use ``holm_decisions``.
    """
    if not decisions:
        raise expected("at least one decision", given="none", do="a claim about no task cannot be decided")

    def standing(d: Decision) -> tuple[int, bool, float]:
        sampled = d.passed and d.measurement.interval is not None
        return d.verdict.severity, sampled, -(d.score if d.score is not None else -1.0)

    worst = max(decisions, key=standing)
    held = sum(d.passed for d in decisions)
    p_values = [d.p_value for d in decisions]
    scores = [d.score for d in decisions]
    reason = f"{held} of {len(decisions)} hold"
    if not worst.passed:
        reason += f"; worst: {worst.claim}: {worst.reason}"
    return worst.model_copy(
        update={
            "claim": claim or f"all of: {'; '.join(d.claim for d in decisions)}",
            "reason": reason,
            "p_value": None if None in p_values else max(p for p in p_values if p is not None),
            "score": None if None in scores else min(s for s in scores if s is not None),
            "checks": tuple(d.check() for d in decisions),
            "method": "intersection-union: each part at its own alpha",
        }
    )


def holm(p_values: Iterable[float]) -> tuple[float, ...]:
    """Holm's adjusted p-values, in the order given: each may be compared with the alpha of the whole list.

    Sorted ascending, the i-th of m is multiplied by m - i (i from 0) and never falls below its predecessor.

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    values = [float(p) for p in p_values]
    for p in values:
        if not 0.0 <= p <= 1.0:
            raise expected("p-values from 0 to 1", given=f"{p}")
    adjusted = [0.0] * len(values)
    floor = 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        floor = max(floor, min(1.0, values[index] * (len(values) - rank)))
        adjusted[index] = floor
    return tuple(adjusted)


def holm_decisions(decisions: Sequence[Decision]) -> tuple[Decision, ...]:
    """The same decisions after Holm's correction: a PASS whose adjusted p-value exceeds its alpha is INCONCLUSIVE.

    Every claim of the list counts, also those without a p-value (as 1) and those that did not pass: leaving the
    unlucky ones out is how five tests become one discovery.
    """
    adjusted = holm(1.0 if d.p_value is None else d.p_value for d in decisions)
    corrected = []
    for decision, p in zip(decisions, adjusted, strict=True):
        update: dict[str, object] = {"p_value": p, "method": f"{decision.method}, Holm over {len(decisions)} claims"}
        if decision.passed and p > decision.alpha:
            raw = "none" if decision.p_value is None else f"{decision.p_value:.3g}"
            update |= {
                "verdict": Verdict.INCONCLUSIVE,
                "score": None if decision.score is None else min(decision.score, 50.0),
                "reason": f"p = {raw} alone but {p:.3g} after Holm over {len(decisions)} claims, which exceeds "
                f"{decision.alpha:g}: the best of several tests looks good by luck",
            }
        corrected.append(decision.model_copy(update=update))
    return tuple(corrected)


def number(value: float, unit: str = "1") -> str:
    """A number as reasons print it: four digits and the unit, if it has one."""
    return f"{value:.4g}" if unit == "1" else f"{value:.4g} {unit}"


def floats(name: str, values: Iterable[float]) -> list[float]:
    """The values as floats, NaN and infinity included; InputError if one is no number at all."""
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError):
        raise expected(f"a list of numbers as {name}", given=repr(values)[:80]) from None


def finite(name: str, value: float, *, above: float | None = None) -> float:
    """``value`` as a finite float (greater than ``above``, if given); InputError otherwise."""
    if isinstance(value, bool) or not math.isfinite(float(value)) or (above is not None and float(value) <= above):
        wanted = f"a finite {name}" if above is None else f"a finite {name} > {above:g}"
        raise expected(wanted, given=f"{name}={value!r}")
    return float(value)


def fraction(name: str, value: float, *, below: float = 1.0) -> float:
    """``value`` as a float strictly between 0 and ``below``; InputError otherwise.

    Nor may it be so small that 1 - value is rounding: quantiles there are noise or infinite, and so would be intervals.
    """
    if isinstance(value, bool) or not LEAST_LEVEL <= float(value) < below:
        wanted = f"{name} between 0 and {below:g}"
        raise expected(wanted, given=f"{name}={value!r}", do=f"{LEAST_LEVEL:g} or more: smaller ones are rounding")
    return float(value)


def counted(name: str, value: int, *, least: int) -> int:
    """``value`` as an int of at least ``least``; InputError otherwise."""
    if isinstance(value, bool) or int(value) != value or value < least:
        raise expected(f"an integer {name} >= {least}", given=f"{name}={value!r}")
    return int(value)
