"""What data say about a gap: its interval at any level, and the p-value of a claim about it being wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.errors import expected
from assay.results import Interval, Region, Verdict
from assay.stats.decision import relation
from assay.stats.intervals import Summary, binomial_interval, mean, rate_gap_interval


@dataclass(frozen=True)
class GapEvidence:
    """The interval of a gap as a function of the one-sided level, and the p-value of the claim being wrong."""

    interval_at: Callable[[float], Interval]
    p_value: float


def paired_evidence(gaps: Sequence[float], region: Region) -> GapEvidence:
    """Student's t on the paired gaps; of a two-sided region both one-sided tests must succeed (TOST)."""
    from scipy import stats

    # In units of the largest gap, so that squares of very large or very small ones neither overflow nor vanish.
    size = max(map(abs, gaps))
    scaled = [gap / size for gap in gaps]

    def interval_at(level: float) -> Interval:
        ends = stats.ttest_1samp(scaled, popmean=0.0).confidence_interval(1 - 2 * level)
        low, high = float(ends.low) * size, float(ends.high) * size
        return Interval(low=low, high=high, confidence=1 - 2 * level, method="paired t")

    def p_value(edge: float, alternative: str) -> float:
        return float(stats.ttest_1samp(scaled, popmean=edge / size, alternative=alternative).pvalue)

    return GapEvidence(interval_at, _worse_side(region, p_value))


def welch_evidence(a: Summary, b: Summary, region: Region) -> GapEvidence:
    """Welch's t on two independent means, from their summary statistics."""
    from scipy import stats

    variance_a, variance_b = a.sd**2 / a.n, b.sd**2 / b.n
    error = math.sqrt(variance_a + variance_b)
    freedom = (variance_a + variance_b) ** 2 / (variance_a**2 / (a.n - 1) + variance_b**2 / (b.n - 1))

    def interval_at(level: float) -> Interval:
        low, high = stats.t.interval(1 - 2 * level, freedom, loc=a.mean - b.mean, scale=error)
        return Interval(low=float(low), high=float(high), confidence=1 - 2 * level, method="Welch t")

    def p_value(edge: float, alternative: str) -> float:
        shifted = (a.mean - edge, a.sd, a.n, b.mean, b.sd, b.n)
        return float(stats.ttest_ind_from_stats(*shifted, equal_var=False, alternative=alternative).pvalue)

    return GapEvidence(interval_at, _worse_side(region, p_value))


def item_evidence(
    first: Sequence[float], second: Sequence[float], region: Region, *, items: int, scale: float
) -> GapEvidence:
    """The exact binomial interval on the test items, for arms whose seeds vary less than one item."""
    rates = mean(first) / scale, mean(second) / scale
    if not all(0.0 <= rate <= 1.0 for rate in rates):
        raise expected(
            f"rates from 0 to {scale:g} where items= is given",
            given=f"means {mean(first):g} and {mean(second):g}",
            do="pass scale=100 for per cent",
        )

    def interval_at(level: float) -> Interval:
        rate = rate_gap_interval(*rates, items, confidence=1 - 2 * level)
        low, high, method = rate.low * scale, rate.high * scale, f"{rate.method}, {items} items"
        return Interval(low=low, high=high, confidence=rate.confidence, method=method)

    return GapEvidence(interval_at, _least_level(interval_at, region))


def discordant_evidence(only_first: int, only_second: int, region: Region, *, items: int, scale: float) -> GapEvidence:
    """Exact bounds on the gap of two systems from the items that one of them alone got right.

    The two rates are bounded at half the level each (Bonferroni), so the bounds hold at any number of such items; a t
    interval on a handful of them passes false claims: at 60 items and 3 expected, 15 % instead of 5 %.
    """

    def interval_at(level: float) -> Interval:
        one, two = (binomial_interval(count, items, confidence=1 - level) for count in (only_first, only_second))
        return Interval(low=scale * (one.low - two.high), high=scale * (one.high - two.low), confidence=1 - 2 * level,
                        method="exact on discordant items")

    return GapEvidence(interval_at, _least_level(interval_at, region))


def discordant_power(rate: float, region: Region, *, level: float, items: int, scale: float) -> float:
    """The chance that ``discordant_evidence`` lies inside the region if both systems are equally good.

    ``rate`` is the share of items that they answer differently; every number of these is enumerated.
    """
    from scipy import stats

    most = int(stats.binom.ppf(1 - 1e-9, items, rate)) if rate > 0 else 0
    bounds = [binomial_interval(count, items, confidence=1 - level) for count in range(most + 1)]
    low, high = (-math.inf if region.low is None else region.low), (math.inf if region.high is None else region.high)
    chance = 0.0
    for differing in range(most + 1):
        inside = [one for one in range(differing + 1)
                  if low <= scale * (bounds[one].low - bounds[differing - one].high)
                  and scale * (bounds[one].high - bounds[differing - one].low) <= high]
        chance += float(stats.binom.pmf(differing, items, rate) * stats.binom.pmf(inside, differing, 0.5).sum())
    return min(1.0, chance)


def _least_level(interval_at: Callable[[float], Interval], region: Region) -> float:
    """The p-value: the smallest level at which the interval still lies inside the region; found by halving."""
    low, high = 0.0, 0.5
    for _ in range(30):
        middle = (low + high) / 2
        inside = relation(interval_at(middle), region) is Verdict.PASS
        low, high = (low, middle) if inside else (middle, high)
    return high


def _worse_side(region: Region, p_value: Callable[[float, str], float]) -> float:
    sides = [] if region.low is None else [p_value(region.low, "greater")]
    sides += [] if region.high is None else [p_value(region.high, "less")]
    return max(sides)
