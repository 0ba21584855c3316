"""What data say about a gap: its interval at any level, and the p-value of a claim about it being wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.errors import expected
from assay.results import Interval, Region, Verdict
from assay.stats.decision import relation
from assay.stats.intervals import Summary, binomial_interval, mean, rate_gap_interval

FEW_DISCORDANT = 25
"""Below so many items that tell two systems apart, their counts are bounded exactly; the usual limit for McNemar."""


@dataclass(frozen=True)
class GapEvidence:
    """The interval of a gap as a function of the one-sided level, and the p-value of the claim being wrong."""

    interval_at: Callable[[float], Interval]
    p: Callable[[], float]

    @property
    def p_value(self) -> float:
        """The p-value, computed when somebody asks."""
        return self.p()


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

    return GapEvidence(interval_at, lambda: _worse_side(region, p_value))


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

    return GapEvidence(interval_at, lambda: _worse_side(region, p_value))


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

    return GapEvidence(interval_at, lambda: _least_level(interval_at, region))


def discordant_evidence(only_first: int, only_second: int, region: Region, *, items: int, scale: float) -> GapEvidence:
    """Exact bounds on the gap of two systems from the items that one of them alone got right.

    The two rates are bounded at half the level each (Bonferroni), so the bounds hold at any number of such items, where
    a t interval on a handful of them passes false claims too often.
    """

    def interval_at(level: float) -> Interval:
        one, two = (binomial_interval(count, items, confidence=1 - level) for count in (only_first, only_second))
        return Interval(low=scale * (one.low - two.high), high=scale * (one.high - two.low), confidence=1 - 2 * level,
                        method="exact on discordant items")

    return GapEvidence(interval_at, lambda: _least_level(interval_at, region))


def score_evidence(only_first: int, only_second: int, region: Region, *, items: int, scale: float) -> GapEvidence:
    """Tango's score interval of the gap of two systems on the same items, for a good number that tell them apart.

    Statistics in Medicine 17 (1998) 891, eq. 5: the variance is that under the gap in question, so the level holds
    where a t interval, whose variance is that of the data, declares parity too often (7.5 % for 5 % at 40 of 400).
    """
    from scipy import optimize, stats

    n, b, c = items, only_first, only_second

    def z(gap: float) -> float:
        linear = -b - c + (2 * n - b + c) * gap
        rate = (math.sqrt(max(0.0, linear**2 + 8 * n * c * gap * (1 - gap))) - linear) / (4 * n)
        variance = n * (2 * rate + gap * (1 - gap))
        return (b - c - n * gap) / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, b - c - n * gap)

    def interval_at(level: float) -> Interval:
        critical, middle = float(stats.norm.ppf(1 - level)), (b - c) / n
        inner = 1 - 1e-9  # at a gap of 1 the variance is 0 and z infinite, where no search can begin
        low = -1.0 if z(-inner) <= critical else optimize.brentq(lambda gap: z(gap) - critical, -inner, middle)
        high = 1.0 if z(inner) >= -critical else optimize.brentq(lambda gap: z(gap) + critical, middle, inner)
        return Interval(low=scale * low, high=scale * high, confidence=1 - 2 * level,
                        method="Tango score, paired items")

    def p_value(edge: float, alternative: str) -> float:
        at = z(max(-1.0, min(1.0, edge / scale)))
        return 0.5 * math.erfc((at if alternative == "greater" else -at) / math.sqrt(2))

    return GapEvidence(interval_at, lambda: _worse_side(region, p_value))


def matched_evidence(only_first: int, only_second: int, region: Region, *, items: int, scale: float) -> GapEvidence:
    """The gap of two systems on the same items: exact where few items tell them apart, else by scores."""
    make = discordant_evidence if only_first + only_second < FEW_DISCORDANT else score_evidence
    return make(only_first, only_second, region, items=items, scale=scale)


def matched_power(rate: float, region: Region, *, level: float, items: int, scale: float) -> float:
    """The chance that ``matched_evidence`` lies inside the region if both systems are equally good.

    ``rate`` is the share of items that they answer differently; every number of these is enumerated.
    """
    from scipy import stats

    most = int(stats.binom.ppf(1 - 1e-4, items, rate)) if rate > 0 else 0
    counts = range(min(most + 1, FEW_DISCORDANT))
    bounds = [binomial_interval(count, items, confidence=1 - level) for count in counts]
    chance = 0.0

    def held(one: int, two: int) -> bool:
        if one + two >= FEW_DISCORDANT:
            return score_evidence(one, two, region, items=items, scale=scale).p_value <= level
        low, high = scale * (bounds[one].low - bounds[two].high), scale * (bounds[one].high - bounds[two].low)
        return (region.low is None or region.low <= low) and (region.high is None or high <= region.high)

    for differing in range(most + 1):
        weight = float(stats.binom.pmf(differing, items, rate))
        if weight < 1e-5:
            continue
        inside = [one for one in range(differing + 1) if held(one, differing - one)]
        chance += weight * float(stats.binom.pmf(inside, differing, 0.5).sum())
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
