"""How a claim about a gap is decided: guards first, then the interval, then its relation to the region."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from assay.errors import expected
from assay.results import Check, Measurement, Region, Verdict
from assay.stats.answers import Answers
from assay.stats.crossed import Crossed, crossed_evidence
from assay.stats.decision import MINIMUM_SEEDS, Decision, counted, finite, floats, fraction, number, relation, score
from assay.stats.gap_evidence import GapEvidence, item_evidence, paired_evidence, welch_evidence
from assay.stats.intervals import Summary, deviation, mean, spreadless
from assay.stats.power import LookPlan, Sides, minimal_margin, power, unexcluded_collapse_rate

Guard = Decision | Check
"""Something that must PASS before a comparison may: ``above_chance(...)``, or any Check."""
THIS_TEST_SET, DATA_LIKE_IT = "this test set", "data like it"
"""What a verdict means: other seeds on the same test items, or other items of the same kind too."""


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
    answers: Answers | None = None

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


def decide_paired(
    a: Sequence[float],
    b: Sequence[float],
    claim: GapClaim,
    *,
    seeds: Sequence[int],
    guards: Iterable[Guard],
    known: GapEvidence | None = None,
) -> Decision:
    """The decision on the mean of the paired gaps a - b; ``known`` stands in for Student's t where it is better."""
    first, second = floats("the first arm", a), floats("the second arm", b)
    if len(first) != len(second):
        raise expected(
            "two arms of equal length, paired by seed",
            given=f"{len(first)} and {len(second)} values",
            do="leave out seeds that only one arm finished (Outcomes.paired does)",
        )
    if seeds and len(seeds) != len(first):
        raise expected("one seed per pair", given=f"{len(seeds)} seeds for {len(first)} pairs")
    if len(set(seeds)) != len(seeds):
        raise expected("distinct seeds", given=f"seeds={tuple(seeds)}", do="the same seed again is no new evidence")
    gaps = [x - y for x, y in zip(first, second, strict=True)]
    labels = [f"seed {seed}" for seed in seeds] or [f"pair {i + 1}" for i in range(len(gaps))]
    broken = [label for label, gap in zip(labels, gaps, strict=True) if not math.isfinite(gap)]
    checks = [*map(_as_check, guards), *_data_checks(len(gaps), broken, claim)]

    evidence, spread, both = None, None, None
    if len(gaps) >= 2 and not broken:
        constant = spreadless(gaps, size=max(map(abs, first + second)))
        spread = None if constant else deviation(gaps)
        if known is not None:
            evidence, spread = known, None  # the power of a t test is not that of other evidence
        elif claim.answers is not None:
            evidence, both = _over_items(claim, claim.answers, gaps, seeds)
        elif claim.items is not None and (spread is None or spread < claim.scale / claim.items):
            evidence = item_evidence(first, second, claim.region, items=claim.items, scale=claim.scale)
        elif spread is None:
            checks.append(
                _stop(
                    "spread",
                    f"the {len(gaps)} gaps are identical: a t interval would have no width and any claim p = 0; "
                    f"give items= (the size of the test set) for an item-level interval",
                )
            )
        else:
            evidence = paired_evidence(gaps, claim.region)
    about = "" if evidence is None else _population(claim, evidence.interval_at(claim.level).method)
    measurement = Measurement(
        name=claim.name,
        value=mean(gaps) if gaps else None,
        unit=claim.unit,
        n=len(gaps),
        region=claim.region,
        interval=evidence.interval_at(claim.level) if evidence else None,
        values=tuple(gaps),
        seeds=tuple(seeds),
        note="first arm minus second, paired by seed" + (f"; speaks of {about}" if about else ""),
        about=about,
    )
    notes = () if broken or not gaps else (_worst_note(gaps, labels, claim),)
    return _conclude(
        claim, measurement, checks, evidence.p_value if evidence else None, spread=spread, notes=notes, both=both
    )


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
            rounded = "both standard deviations are 0: the figures were rounded, or the seeds changed nothing"
            checks.append(_stop("spread", rounded))
        else:
            evidence = welch_evidence(a, b, claim.region)
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
        stops.append(_stop("finite values", f"a value is NaN or infinite at {', '.join(broken)}: never a PASS"))
    if n < MINIMUM_SEEDS:
        few = f"n = {n}: fewer than {MINIMUM_SEEDS} seeds show that it runs, not that it holds"
        stops.append(_stop("enough seeds", few))
    if claim.looks is not None and n not in claim.looks.looks:
        planned = ", ".join(map(str, claim.looks.looks))
        unplanned = f"n = {n} is not a planned look ({planned}): peeking inflates false passes"
        stops.append(_stop("planned look", unplanned))
    return stops


def _stop(name: str, reason: str) -> Check:
    return Check(name=name, verdict=Verdict.INCONCLUSIVE, reason=reason)


def _conclude(
    claim: GapClaim,
    measurement: Measurement,
    checks: list[Check],
    p_value: float | None,
    *,
    spread: float | None,
    notes: tuple[str, ...],
    both: Crossed | None = None,
) -> Decision:
    stopped = [check for check in checks if check.verdict is not Verdict.PASS]
    verdict = Verdict.INCONCLUSIVE if stopped else relation(measurement.interval, claim.region)
    n, interval = measurement.n, measurement.interval
    reachable = chance = None
    if both is not None:
        inner = Region(low=_over(claim.region.low, claim.scale), high=_over(claim.region.high, claim.scale))
        reachable = claim.scale * both.reach(claim.level, target=0.8, sides=claim.sides)
        chance = None if claim.margin is None else both.power(inner, claim.level)
    elif spread and n >= 2:
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
        reason=_reason(claim, measurement, verdict=verdict, stopped=stopped, p=p_value, reachable=reachable),
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
    *,
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
    if measurement.about:
        sentence += f"; this speaks of {measurement.about}"
    if verdict is Verdict.INCONCLUSIVE and reachable is not None:
        least = number(reachable, unit)
        sentence += f"; were the true gap 0, {measurement.n} seeds with this spread would confirm {least} (80 % power)"
    return sentence


def _over_items(
    claim: GapClaim, answers: Answers, gaps: Sequence[float], seeds: Sequence[int]
) -> tuple[GapEvidence, Crossed]:
    """The inference over seeds and items, after a look whether the answers are those of the gaps."""
    shown = [claim.scale * float(row.mean()) for row in answers.differences]
    if (seeds and answers.seeds != tuple(seeds)) or len(shown) != len(gaps):
        raise expected("answers of the seeds that are compared, in their order", given=f"answers of {answers.seeds}")
    if any(abs(a - b) > 1e-6 * claim.scale for a, b in zip(shown, gaps, strict=True)):
        raise expected("answers that give the gaps compared", given=f"gaps {shown} from answers, {list(gaps)} compared")
    return crossed_evidence(answers, claim.region, scale=claim.scale)


def _population(claim: GapClaim, method: str) -> str:
    """What the interval generalises to: other test items are part of the inference, or they are not."""
    if claim.answers is not None or "item-level" in method:
        return DATA_LIKE_IT
    return THIS_TEST_SET if claim.items is not None else ""


def _over(edge: float | None, scale: float) -> float | None:
    return None if edge is None else edge / scale


def _worst_note(gaps: Sequence[float], labels: Sequence[str], claim: GapClaim) -> str:
    worst = min(range(len(gaps)), key=gaps.__getitem__)
    rate = unexcluded_collapse_rate(len(gaps))
    return (
        f"lowest {claim.name}: {number(gaps[worst], claim.unit)} at {labels[worst]}; "
        f"{len(gaps)} {'seed' if len(gaps) == 1 else 'seeds'} without a collapse do not exclude a collapse rate of "
        f"{rate:.0%}"
    )


def _as_check(guard: Guard) -> Check:
    return guard.check() if isinstance(guard, Decision) else guard
