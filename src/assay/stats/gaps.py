"""How a claim about a gap is decided: guards first, then the interval, then its relation to the region."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from assay.errors import expected
from assay.results import Check, Interval, Measurement, Region, Verdict
from assay.stats.decision import MINIMUM_SEEDS, Decision, counted, finite, fraction, number, relation, score
from assay.stats.intervals import Summary, deviation, mean, rate_gap_interval, spreadless
from assay.stats.power import LookPlan, Sides, minimal_margin, power, unexcluded_collapse_rate

Guard = Decision | Check
"""Something that must PASS before a comparison may: ``above_chance(...)``, or any Check."""


@dataclass(frozen=True, kw_only=True)
class GapClaim:
    """What is claimed of a gap and how it is tested, fixed before any data are seen.

    ``margin`` is the distance from a gap of 0 to the edge of the region; None for a claim that 0 would not satisfy.
    """

    text: str
    region: Region
    margin: float | None
    sides: Sides
    name: str
    unit: str
    alpha: float
    looks: LookPlan | None = None
    items: int | None = None
    scale: float = 1.0

    def __post_init__(self) -> None:
        fraction("alpha", self.alpha, below=0.5)
        finite("scale", self.scale, above=0.0)
        if self.items is not None:
            counted("items", self.items, least=1)
        if self.looks is not None and self.looks.alpha != self.alpha:
            raise expected("one alpha", given=f"alpha={self.alpha:g} and looks planned at {self.looks.alpha:g}")

    @property
    def level(self) -> float:
        """The one-sided level of this look."""
        return self.alpha if self.looks is None else self.looks.alpha_each


@dataclass(frozen=True)
class _Evidence:
    """The interval of a gap as a function of the one-sided level, and the p-value of the claim being wrong."""

    interval_at: Callable[[float], Interval]
    p_value: float


def decide_paired(
    a: Sequence[float], b: Sequence[float], claim: GapClaim, *, seeds: Sequence[int], guards: Iterable[Guard]
) -> Decision:
    """The decision on the mean of the paired gaps a - b."""
    first, second = [float(value) for value in a], [float(value) for value in b]
    if len(first) != len(second):
        raise expected(
            "two arms of equal length, paired by seed",
            given=f"{len(first)} and {len(second)} values",
            do="leave out seeds that only one arm finished (Outcomes.paired does)",
        )
    if seeds and len(seeds) != len(first):
        raise expected("one seed per pair", given=f"{len(seeds)} seeds for {len(first)} pairs")
    gaps = [x - y for x, y in zip(first, second, strict=True)]
    labels = [f"seed {seed}" for seed in seeds] or [f"pair {i + 1}" for i in range(len(gaps))]
    broken = [label for label, gap in zip(labels, gaps, strict=True) if not math.isfinite(gap)]
    checks = [*map(_as_check, guards), *_data_checks(len(gaps), broken, claim)]

    evidence, spread = None, None
    if len(gaps) >= 2 and not broken:
        constant = spreadless(gaps, size=max(map(abs, first + second)))
        spread = None if constant else deviation(gaps)
        if claim.items is not None and (spread is None or spread < claim.scale / claim.items):
            evidence = _item_level(first, second, claim, claim.items)
        elif spread is None:
            checks.append(
                Check(
                    name="spread",
                    verdict=Verdict.INCONCLUSIVE,
                    reason=(
                        f"the {len(gaps)} gaps are identical: a t interval would have no width and any claim p = 0; "
                        f"give items= (the size of the test set) for an item-level interval"
                    ),
                )
            )
        else:
            evidence = _student(gaps, claim.region)
    measurement = Measurement(
        name=claim.name,
        value=mean(gaps) if gaps else None,
        unit=claim.unit,
        n=len(gaps),
        region=claim.region,
        interval=evidence.interval_at(claim.level) if evidence else None,
        values=tuple(gaps),
        seeds=tuple(seeds),
        note="first arm minus second, paired by seed",
    )
    notes = () if broken or not gaps else (_worst_note(gaps, labels, claim),)
    return _conclude(claim, measurement, checks, evidence.p_value if evidence else None, spread=spread, notes=notes)


def decide_from_summaries(a: Summary, b: Summary, claim: GapClaim, *, guards: Iterable[Guard]) -> Decision:
    """The decision on the difference of two independent means, from their summary statistics (Welch)."""
    for summary in (a, b):
        counted("n", summary.n, least=1)
        if summary.sd < 0:
            raise expected("a standard deviation >= 0", given=f"sd={summary.sd:g}")
    gap = a.mean - b.mean
    n = min(a.n, b.n)
    broken = [] if all(map(math.isfinite, (a.mean, a.sd, b.mean, b.sd))) else ["the summary figures"]
    checks = [*map(_as_check, guards), *_data_checks(n, broken, claim)]
    evidence, spread = None, None
    if n >= 2 and not broken:
        if a.sd == 0 and b.sd == 0:
            checks.append(
                Check(
                    name="spread",
                    verdict=Verdict.INCONCLUSIVE,
                    reason=("both standard deviations are 0: the figures were rounded, or the seeds changed nothing"),
                )
            )
        else:
            evidence = _welch(a, b, claim.region)
            # The spread of paired differences with the same standard error; n - 1 understates Welch's freedom.
            spread = math.sqrt((a.sd**2 / a.n + b.sd**2 / b.n) * n)
    measurement = Measurement(
        name=claim.name,
        value=gap,
        unit=claim.unit,
        n=n,
        region=claim.region,
        source="derived",
        interval=evidence.interval_at(claim.level) if evidence else None,
        note=f"from summary figures of {a.n} and {b.n} runs; the pairing by seed is lost",
    )
    return _conclude(claim, measurement, checks, evidence.p_value if evidence else None, spread=spread, notes=())


def _data_checks(n: int, broken: Sequence[str], claim: GapClaim) -> list[Check]:
    """Guards on the data themselves; only those that stopped."""
    stops = []
    if broken:
        stops.append(("finite values", f"a value is NaN or infinite at {', '.join(broken)}: never a PASS"))
    if n < MINIMUM_SEEDS:
        few = f"n = {n}: fewer than {MINIMUM_SEEDS} seeds show that it runs, not that it holds"
        stops.append(("enough seeds", few))
    if claim.looks is not None and n not in claim.looks.looks:
        planned = ", ".join(map(str, claim.looks.looks))
        stops.append(("planned look", f"n = {n} is not a planned look ({planned}): peeking inflates false passes"))
    return [Check(name=name, verdict=Verdict.INCONCLUSIVE, reason=reason) for name, reason in stops]


def _student(gaps: list[float], region: Region) -> _Evidence:
    from scipy import stats

    def interval_at(level: float) -> Interval:
        ends = stats.ttest_1samp(gaps, popmean=0.0).confidence_interval(1 - 2 * level)
        return Interval(low=float(ends.low), high=float(ends.high), confidence=1 - 2 * level, method="paired t")

    sides = []
    if region.low is not None:
        sides.append(stats.ttest_1samp(gaps, popmean=region.low, alternative="greater").pvalue)
    if region.high is not None:
        sides.append(stats.ttest_1samp(gaps, popmean=region.high, alternative="less").pvalue)
    return _Evidence(interval_at, float(max(sides)))


def _welch(a: Summary, b: Summary, region: Region) -> _Evidence:
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

    sides = [] if region.low is None else [p_value(region.low, "greater")]
    sides += [] if region.high is None else [p_value(region.high, "less")]
    return _Evidence(interval_at, max(sides))


def _item_level(first: list[float], second: list[float], claim: GapClaim, items: int) -> _Evidence:
    rates = mean(first) / claim.scale, mean(second) / claim.scale
    if not all(0.0 <= rate <= 1.0 for rate in rates):
        raise expected(
            f"rates from 0 to {claim.scale:g} where items= is given",
            given=f"means {mean(first):g} and {mean(second):g}",
            do="pass scale=100 for per cent",
        )

    def interval_at(level: float) -> Interval:
        rate = rate_gap_interval(*rates, items, confidence=1 - 2 * level)
        return Interval(
            low=rate.low * claim.scale,
            high=rate.high * claim.scale,
            confidence=rate.confidence,
            method=f"{rate.method}, {items} items",
        )

    # The p-value is the smallest level at which the interval still lies inside the region; found by halving.
    low, high = 0.0, 0.5
    for _ in range(30):
        middle = (low + high) / 2
        inside = relation(interval_at(middle), claim.region) is Verdict.PASS
        low, high = (low, middle) if inside else (middle, high)
    return _Evidence(interval_at, high)


def _conclude(
    claim: GapClaim,
    measurement: Measurement,
    checks: list[Check],
    p_value: float | None,
    *,
    spread: float | None,
    notes: tuple[str, ...],
) -> Decision:
    stopped = [check for check in checks if check.verdict is not Verdict.PASS]
    verdict = Verdict.INCONCLUSIVE if stopped else relation(measurement.interval, claim.region)
    n, interval = measurement.n, measurement.interval
    reachable = chance = None
    if spread and n >= 2:
        reachable = minimal_margin(spread, n, alpha=claim.level, sides=claim.sides)
        if claim.margin is not None:
            chance = power(claim.margin, spread, n, alpha=claim.level, sides=claim.sides)
    points = score(interval, claim.region, scale=_score_scale(claim, spread))
    if stopped and points is not None:
        points = min(points, 50.0)
    method = "no interval" if interval is None else interval.method
    return Decision(
        claim=claim.text,
        verdict=verdict,
        reason=_reason(claim, measurement, verdict, stopped, p_value, reachable),
        measurement=measurement,
        n=n,
        alpha=claim.level,
        method=method,
        p_value=p_value,
        score=points,
        minimal_margin=reachable,
        power=chance,
        checks=tuple(checks),
        notes=notes,
    )


def _score_scale(claim: GapClaim, spread: float | None) -> float | None:
    if claim.margin is not None:
        return claim.margin
    if spread:
        return spread
    return claim.region.low or claim.scale


def _reason(
    claim: GapClaim,
    measurement: Measurement,
    verdict: Verdict,
    stopped: list[Check],
    p: float | None,
    reachable: float | None,
) -> str:
    interval, unit = measurement.interval, measurement.unit
    if stopped:
        return "; ".join(check.reason for check in stopped)
    if interval is None or measurement.value is None:
        return "there is no interval to decide from"
    place = {Verdict.PASS: "inside", Verdict.FAIL: "outside"}.get(verdict, "neither inside nor outside")
    sentence = (
        f"{claim.name} {number(measurement.value, unit)}, {100 * interval.confidence:.3g} % interval "
        f"[{interval.low:.4g}, {interval.high:.4g}] lies {place} {claim.region} "
        f"(n = {measurement.n}, {interval.method}, p = {p:.3g})"
    )
    if verdict is Verdict.INCONCLUSIVE and reachable is not None:
        least = number(reachable, unit)
        sentence += (
            f"; at a true gap of 0, {measurement.n} seeds with this spread would confirm margins from {least} up"
        )
    return sentence


def _worst_note(gaps: Sequence[float], labels: Sequence[str], claim: GapClaim) -> str:
    worst = min(range(len(gaps)), key=gaps.__getitem__)
    rate = unexcluded_collapse_rate(len(gaps))
    return (
        f"lowest {claim.name}: {number(gaps[worst], claim.unit)} at {labels[worst]}; "
        f"{len(gaps)} seeds without a collapse do not exclude a collapse rate of {rate:.0%}"
    )


def _as_check(guard: Guard) -> Check:
    return guard.check() if isinstance(guard, Decision) else guard
