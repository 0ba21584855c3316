"""Depth utility with statistics: do trained blocks beat frozen ones, and could this task show it at all?

The published D3 subtracts two accuracies. Here both arms answer the same test items under the same seeds, and the gap
gets an interval that counts both as chance (items and seeds crossed). First comes the headroom guard: where backprop
itself does not beat frozen blocks by the margin, the task cannot show depth utility and nobody fails for want of it. A
rule whose blocks end up worse than frozen ones fails anyway.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from assay.audits.credit.published import UTILITY_MARGIN
from assay.errors import expected
from assay.results import Check, Interval, Measurement, Region, Verdict
from assay.stats import mean_interval, paired_answers, relation
from assay.stats.crossed import crossed
from assay.stats.decision import MINIMUM_SEEDS

HEADROOM = "headroom"
"""The check whether a task can show depth utility at all."""
Arms = Mapping[int, Sequence[bool]]
"""By seed, which test items an arm got right."""
CONFIDENCE = 0.90
"""Two-sided; each side is tested at 5 %."""


@dataclass(frozen=True)
class Baselines:
    """Which test items each arm got right, by seed: ``arms["frozen"][42]`` is a row of booleans.

    Arms: ``rule``, ``frozen`` and, for the headroom guard, ``backprop``. ``ladder`` holds further arms by the number
    of last blocks that learned: ``ladder["backprop"][2][42]``.
    """

    arms: Mapping[str, Mapping[int, Sequence[bool]]]
    ladder: Mapping[str, Mapping[int, Mapping[int, Sequence[bool]]]] = field(default_factory=dict)

    def accuracy(self, arm: str) -> float | None:
        """The mean accuracy of an arm over its seeds; None if it was not run."""
        rows = self.arms.get(arm) or {}
        return math.fsum(_share(row) for row in rows.values()) / len(rows) if rows else None


@dataclass(frozen=True)
class Utility:
    """The verdict on depth, its guards and its numbers."""

    verdict: Verdict
    reason: str
    gap: Measurement | None
    headroom: Measurement | None
    detectable: float | None
    checks: tuple[Check, ...]


NOT_RUN = Utility(Verdict.STUB, "not run: no baselines were given and no recipe to train them", None, None, None, ())


def judge_utility(baselines: Baselines, *, margin: float = UTILITY_MARGIN) -> Utility:
    """Whether training the blocks by the rule beats leaving them frozen by more than ``margin``."""
    gap = crossed_gap(baselines, "rule", "frozen", margin)
    headroom = crossed_gap(baselines, "backprop", "frozen", margin) if "backprop" in baselines.arms else None
    detectable = detectable_gap(gap, margin)
    checks = [_headroom_check(headroom, margin)]
    if len(gap.seeds) < MINIMUM_SEEDS:
        checks.append(
            Check(
                name="enough seeds",
                verdict=Verdict.INCONCLUSIVE,
                reason=f"{len(gap.seeds)} seed(s): fewer than {MINIMUM_SEEDS} cannot show depth utility",
            )
        )
    stopped = [check for check in checks if check.verdict is not Verdict.PASS]
    value = f"{100 * (gap.value or 0):+.1f} pp over frozen blocks, {_percent(gap.interval)}"
    if len(gap.seeds) >= MINIMUM_SEEDS and gap.interval is not None and gap.interval.high < 0:
        # Worse than doing nothing needs no headroom to be seen.
        return Utility(
            Verdict.FAIL, f"training the blocks hurts: the rule is {value}", gap, headroom, detectable, tuple(checks)
        )
    if stopped:
        return Utility(
            Verdict.INCONCLUSIVE, f"{stopped[0].reason}; the rule is {value}", gap, headroom, detectable, tuple(checks)
        )
    verdict = relation(gap.interval, Region(low=margin))
    words = {Verdict.PASS: "clears", Verdict.FAIL: "does not clear"}.get(verdict, "neither clears nor misses")
    reason = f"the rule {words} the margin of {100 * margin:g} pp: {value}"
    if verdict is Verdict.INCONCLUSIVE and detectable is not None:
        reason += f"; a gain of {100 * detectable:.1f} pp would have been detected with 80 % power"
    return Utility(verdict, reason, gap, headroom, detectable, tuple(checks))


def crossed_gap(baselines: Baselines, first: str, second: str, margin: float) -> Measurement:
    """The accuracy of ``first`` minus ``second`` with an interval over seeds and test items, crossed.

    Seeds and items are both samples, and items are shared by all seeds (``stats.crossed``). One seed alone gives an
    interval over items, which says nothing of other seeds.
    """
    one, other = (baselines.arms.get(arm, {}) for arm in (first, second))
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        raise expected(f"at least one seed that both '{first}' and '{second}' finished", given="none")
    counts = sorted({len(arm[seed]) for arm in (one, other) for seed in seeds})
    if len(counts) != 1 or counts[0] < 2:
        raise expected("the same test items in every arm and seed, at least two", given=f"{counts} items")
    gaps = tuple(_share(one[seed]) - _share(other[seed]) for seed in seeds)
    return Measurement(
        name=f"{first} minus {second}",
        value=math.fsum(gaps) / len(gaps),
        unit="accuracy",
        n=len(seeds) * counts[0],
        of="paired answers",
        interval=_interval(one, other, seeds),
        region=Region(low=margin),
        values=gaps,
        seeds=tuple(seeds),
        note=f"{len(seeds)} seed(s) x {counts[0]} test items, paired",
    )


def in_points(gap: Measurement) -> Measurement:
    """A difference of accuracies in percentage points, as reasons say it: one unit per quantity on a page."""
    limits, interval = gap.region, gap.interval
    return gap.model_copy(
        update={
            "value": None if gap.value is None else 100 * gap.value,
            "unit": "pp",
            "values": tuple(100 * value for value in gap.values),
            "region": limits and Region(low=_points(limits.low), high=_points(limits.high)),
            "interval": interval
            and interval.model_copy(update={"low": 100 * interval.low, "high": 100 * interval.high}),
        }
    )


def _points(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 10)


def detectable_gap(gap: Measurement, margin: float) -> float | None:
    """The smallest true gap that would be called above ``margin`` with 80 % power, given this interval's width."""
    if gap.interval is None:
        return None
    from scipy import stats

    half = (gap.interval.high - gap.interval.low) / 2
    error = half / float(stats.norm.ppf((1 + gap.interval.confidence) / 2))
    return margin + half + error * float(stats.norm.ppf(0.8))


def _interval(one: Arms, other: Arms, seeds: Sequence[int]) -> Interval | None:
    """Over seeds and items where there are seeds, else over items; None where both answer every item alike."""
    differences = np.stack([np.asarray(one[s], float) - np.asarray(other[s], float) for s in seeds])
    if np.ptp(differences) == 0:
        return None  # there is no spread to build an interval from
    if len(seeds) == 1:
        found = mean_interval(differences[0].tolist(), confidence=CONFIDENCE)
        return found and found.model_copy(update={"method": "t over test items, one seed"})
    pairs = paired_answers({s: one[s] for s in seeds}, {s: other[s] for s in seeds})
    return crossed(pairs).interval((1 - CONFIDENCE) / 2)


def _headroom_check(headroom: Measurement | None, margin: float) -> Check:
    name = HEADROOM
    if headroom is None:
        return Check(
            name=name,
            verdict=Verdict.INCONCLUSIVE,
            reason="no backprop arm: whether this task can show depth utility is unknown",
        )
    size = f"{100 * (headroom.value or 0):+.1f} pp, {_percent(headroom.interval)}"
    if relation(headroom.interval, Region(low=margin)) is Verdict.PASS:
        return Check(name=name, verdict=Verdict.PASS, reason=f"backprop beats frozen blocks by {size}")
    return Check(
        name=name,
        verdict=Verdict.INCONCLUSIVE,
        reason=f"no headroom: backprop itself is {size} over frozen blocks, so a margin of {100 * margin:g} pp "
        "cannot tell a rule that uses depth from one that does not",
    )


def _percent(interval: Interval | None) -> str:
    if interval is None:
        return "no interval"
    return f"{interval.confidence:.0%} interval [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}] pp"


def _share(row: Sequence[bool]) -> float:
    return sum(map(bool, row)) / len(row)
