"""The guards behind every verdict: each looks at one way in which a finding can claim more than was run."""

from __future__ import annotations

import math
from typing import Literal

from assay.results import Check, Finding, Measurement, Verdict
from assay.stats.decision import MINIMUM_SEEDS, relation
from assay.stats.looks import Spending
from assay.stats.observed import Ran

Kind = Literal["statistical", "deterministic"]
LOOKS = "looks"
OVER_SEEDS = ("t", "paired t", "Welch t")
"""Intervals whose n counts seeds."""


def headline_of(finding: Finding) -> Measurement | None:
    """The measurement that decided: the one named, or the only one with a region."""
    if finding.headline is not None:
        return next((m for m in finding.measurements if m.name == finding.headline), None)
    judged = [m for m in finding.measurements if m.region is not None]
    return judged[0] if len(judged) == 1 else None


def deciding(finding: Finding) -> tuple[Measurement, ...]:
    """The headline; where none is named, every measurement with a region: the worst of them decides."""
    if finding.headline is not None:
        return tuple(m for m in finding.measurements if m.name == finding.headline)
    return tuple(m for m in finding.measurements if m.region is not None)


def asked(finding: Finding) -> str:
    """What decides and what it may be, in words: a margin that is moved later, or another measurement, is seen."""
    return "; ".join(sorted(f"{m.name} {m.region} {m.unit}" for m in deciding(finding) if m.region is not None))


def trials_finished(finding: Finding) -> Check | None:
    """ERROR if a trial failed."""
    if not finding.failures or finding.verdict is Verdict.ERROR:
        return None
    first, others = finding.failures[0], len(finding.failures) - 1
    more = f" and {others} more" if others else ""
    return Check(
        name="every trial finished",
        verdict=Verdict.ERROR,
        reason=f"{first.label} failed{more}: {first.kind}: {first.message}",
    )


def calibrated(finding: Finding) -> Check | None:
    """INCONCLUSIVE if a control arm was not told for what it is, or if none was run."""
    if finding.verdict not in (Verdict.PASS, Verdict.PARTIAL, Verdict.FAIL):
        return None
    confused = [control for control in finding.controls if not control.separated]
    if not confused and finding.controls:
        return None
    told = "; ".join(f"{c.kind} '{c.name}' expected {c.expected}, observed {c.observed}" for c in confused)
    none = "no control was run as an arm of its own, so nobody has seen this check fail"
    return Check(name="calibrated", verdict=Verdict.INCONCLUSIVE, reason=f"not calibrated: {told or none}")


def enough_seeds(finding: Finding, kind: Kind, n: int) -> Check | None:
    """INCONCLUSIVE if a statistical claim rests on fewer than three distinct records."""
    if kind != "statistical" or n >= MINIMUM_SEEDS or finding.verdict not in (Verdict.PASS, Verdict.PARTIAL):
        return None
    return Check(
        name="enough seeds",
        verdict=Verdict.INCONCLUSIVE,
        reason=f"{n} seed(s) finished with a record of their own in every arm: fewer than {MINIMUM_SEEDS} show that it "
        "runs, not that it holds",
    )


def seeds_were_run(finding: Finding, ran: Ran) -> Check | None:
    """INCONCLUSIVE if the number that decided names seeds that did not finish in every arm, or one twice."""
    headline = headline_of(finding)
    if finding.verdict not in (Verdict.PASS, Verdict.PARTIAL) or headline is None:
        return None
    missing = sorted(set(headline.seeds) - set(ran.records))
    twice = sorted({seed for seed in headline.seeds if headline.seeds.count(seed) > 1})
    if not missing and not twice:
        return None
    which = ", ".join(map(str, (missing or twice)[:5]))
    what = "which no arm of the claim finished" if missing else "more than once"
    reason = f"{headline.name} names seed {which}, {what}"
    return Check(name="seeds were run", verdict=Verdict.INCONCLUSIVE, reason=reason)


def values_have_records(finding: Finding, kind: Kind, ran: Ran) -> Check | None:
    """INCONCLUSIVE if an interval over seeds rests on more values than seeds have records."""
    if kind != "statistical" or finding.verdict not in (Verdict.PASS, Verdict.PARTIAL):
        return None
    for m in deciding(finding):
        over_seeds = m.interval is not None and m.interval.method in OVER_SEEDS
        values = len(m.values) or (m.n if over_seeds else 0)
        if values > len(ran.records):
            reason = f"{m.name} rests on {values} values, but {len(ran.records)} seeds have a record in every arm"
            return Check(name="values have records", verdict=Verdict.INCONCLUSIVE, reason=reason)
    return None


def number_exists(finding: Finding) -> Check | None:
    """INCONCLUSIVE if a number that decides is missing, NaN or infinite."""
    if finding.verdict not in (Verdict.PASS, Verdict.PARTIAL):
        return None
    headline = headline_of(finding)
    judged = [m for m in finding.measurements if m is headline or m.region is not None]
    broken = [m.name for m in judged if m.value is None or not math.isfinite(m.value)]
    if finding.headline is not None and headline is None:
        reason = f"the deciding measurement '{finding.headline}' is missing"
    elif not finding.measurements:
        reason = "no measurement supports the verdict"
    elif broken:
        reason = f"{', '.join(broken)} is missing, NaN or infinite: never a PASS"
    else:
        return None
    return Check(name="the number exists", verdict=Verdict.INCONCLUSIVE, reason=reason)


def look_allows(finding: Finding, kind: Kind, look: Spending | None) -> Check | None:
    """INCONCLUSIVE if nothing of alpha is left for this look, or if a PASS does not hold at the level it may spend."""
    if kind != "statistical" or look is None or finding.verdict not in (Verdict.PASS, Verdict.FAIL):
        return None
    if look.level <= 0:
        return Check(name=LOOKS, verdict=Verdict.INCONCLUSIVE, reason=look.note)
    if finding.verdict is Verdict.PASS:
        for m in deciding(finding):
            if m.region is not None and m.interval is not None and relation(m.interval, m.region) is not Verdict.PASS:
                stop = _stop(LOOKS, m, "does not lie inside")
                return stop.model_copy(update={"reason": f"{look.note}: {stop.reason}"})
    return None


def intervals_agree(finding: Finding, kind: Kind) -> Check | None:
    """INCONCLUSIVE if what decides does not show what the verdict says.

    A statistical PASS needs an interval inside a region; a number alone shows nothing of other seeds. No measurement
    with a region may lie outside it. A FAIL whose interval, at the level of this look, is not outside is undecided.
    """
    judged = deciding(finding)
    if finding.verdict is Verdict.FAIL:
        undecided = [m for m in judged if kind == "statistical" and _reaches_back(m)]
        return _stop("interval outside the region", undecided[0], "no longer lies outside") if undecided else None
    if finding.verdict is not Verdict.PASS:
        return None
    if kind == "statistical" and not any(m.region is not None for m in judged):
        named = f"'{finding.headline}'" if finding.headline else "what was measured"
        reason = f"a statistical PASS needs an interval inside a region: {named} has no region"
        return Check(name="interval inside the region", verdict=Verdict.INCONCLUSIVE, reason=reason)
    for m in finding.measurements:
        if m.region is None or m.value is None:
            continue
        decides = any(m is other for other in judged)
        if kind == "statistical" and decides and m.interval is None:
            return _stop("interval inside the region", m, "has no interval that lies inside")
        inside = _holds(m.value, m) and (m.interval is None or relation(m.interval, m.region) is Verdict.PASS)
        outside = not _holds(m.value, m) or (m.interval is not None and relation(m.interval, m.region) is Verdict.FAIL)
        if kind == "deterministic" and decides:  # it holds for every one of them, not on average
            outside = outside or not all(_holds(value, m) for value in m.values)
        if (decides and not inside) or outside:
            return _stop("interval inside the region", m, "does not lie inside")
    return None


def shown(finding: Finding) -> bool:
    """Whether what decides shows the verdict by intervals: all inside for a PASS, one outside for a FAIL."""
    relations = [relation(m.interval, m.region) for m in deciding(finding) if m.region is not None]
    if finding.verdict is Verdict.FAIL:
        return Verdict.FAIL in relations
    return bool(relations) and all(found is Verdict.PASS for found in relations)


def _reaches_back(m: Measurement) -> bool:
    """Whether the value lies outside its region but the interval, as wide as this look demands, does not."""
    if m.region is None or m.interval is None or m.value is None or _holds(m.value, m):
        return False
    return relation(m.interval, m.region) is not Verdict.FAIL


def _holds(value: float, m: Measurement) -> bool:
    assert m.region is not None
    low = -math.inf if m.region.low is None else m.region.low
    high = math.inf if m.region.high is None else m.region.high
    return low <= value <= high


def _stop(name: str, m: Measurement, what: str) -> Check:
    number = "no number" if m.value is None else f"{m.value:.4g}"
    shown_as = number + (f" {m.interval}" if m.interval else "")
    return Check(name=name, verdict=Verdict.INCONCLUSIVE, reason=f"{m.name} {shown_as} {what} {m.region}")
