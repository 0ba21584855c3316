"""How much evidence a verdict rests on, and the guards every verdict of a track passes through."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from assay.errors import expected
from assay.results import Check, Control, Evidence, Finding, Measurement, Verdict
from assay.stats.decision import MINIMUM_SEEDS, relation
from assay.stats.intervals import deviation, spreadless
from assay.stats.power import power

Kind = Literal["statistical", "deterministic"]
CONFIRMING = 10
"""Seeds of a statistical claim, or inputs times precisions of a deterministic one, that a confirmed verdict needs."""
TARGET_POWER = 0.8
PRECISIONS = ("float64", "float32", "float16", "bfloat16", "tf32")


def evidence_level(
    *,
    kind: Kind,
    n: int,
    guards_hold: bool = True,
    controls_separated: bool = False,
    fixed_beforehand: bool = False,
    power_at_zero: float | None = None,
    replicated: bool = False,
) -> Evidence:
    """The evidence level of a verdict; computed from what was done, never declared.

    smoke: fewer than three observations, or a guard that does not hold. directional: three or more. confirmed: ten or
    more, margin and looks fixed beforehand, controls told apart and, for a statistical claim, power of at least 0.8 at
    a gap of 0 (``power_at_zero`` of None where the claim has no margin: its interval alone decides). replicated: a
    confirmed verdict obtained again on another machine or version. ``n`` counts distinct seeds of a statistical claim
    and inputs times precisions of a deterministic one.

    >>> evidence_level(kind="statistical", n=1), evidence_level(kind="statistical", n=5)
    (<Evidence.SMOKE: 'smoke'>, <Evidence.DIRECTIONAL: 'directional'>)
    """
    if kind not in ("statistical", "deterministic"):
        raise expected("kind 'statistical' or 'deterministic'", given=f"kind={kind!r}")
    if n < MINIMUM_SEEDS or not guards_hold:
        return Evidence.SMOKE
    powerful = kind == "deterministic" or power_at_zero is None or power_at_zero >= TARGET_POWER
    if n < CONFIRMING or not (fixed_beforehand and controls_separated and powerful):
        return Evidence.DIRECTIONAL
    return Evidence.REPLICATED if replicated else Evidence.CONFIRMED


def enforce(
    finding: Finding,
    *,
    kind: Kind,
    seeds: Sequence[int],
    fixed_beforehand: bool = True,
    replicated: bool = False,
) -> Finding:
    """The finding after the guards that no track can skip, with its evidence level computed.

    A failed trial makes it an ERROR. Controls that were not told apart, or none at all, make it INCONCLUSIVE ("not
    calibrated"), whatever it said. A PASS or PARTIAL becomes INCONCLUSIVE if a statistical claim rests on fewer than
    three seeds, if the number that decided is missing, NaN or infinite, or if its interval does not lie inside the
    region of the claim. Each guard that took effect is added to ``checks``; a verdict is never improved.

    ``verify`` calls this on every finding. ``fixed_beforehand`` is true there: a track's margin is part of its code,
    and its code is part of the key under which results are stored.
    """
    guards: tuple[Callable[[Finding], Check | None], ...] = (
        _trials_finished,
        _calibrated,
        lambda current: _enough_seeds(current, kind, seeds),
        _number_exists,
        _interval_agrees,
    )
    before = finding.verdict
    for guard in guards:
        if (check := guard(finding)) is not None:
            first = finding.verdict is before
            said = f" (without this guard: {before}: {finding.reason})" if first else f"; {finding.reason}"
            finding = finding.model_copy(
                update={
                    "verdict": check.verdict,
                    "reason": check.reason + said,
                    "score": None
                    if finding.score is None or check.verdict is Verdict.ERROR
                    else min(finding.score, 50.0),
                    "checks": (*finding.checks, check),
                }
            )
    level = evidence_level(
        kind=kind,
        n=_observations(finding, kind, seeds),
        guards_hold=finding.verdict is before and not finding.failures,
        controls_separated=_both_kinds_separated(finding.controls),
        fixed_beforehand=fixed_beforehand,
        power_at_zero=_power_at_zero(_headline(finding)),
        replicated=replicated,
    )
    return finding.model_copy(update={"evidence": level})


def _trials_finished(finding: Finding) -> Check | None:
    if not finding.failures or finding.verdict is Verdict.ERROR:
        return None
    first, others = finding.failures[0], len(finding.failures) - 1
    more = f" and {others} more" if others else ""
    return Check(
        name="every trial finished",
        verdict=Verdict.ERROR,
        reason=f"{first.label} failed{more}: {first.kind}: {first.message}",
    )


def _calibrated(finding: Finding) -> Check | None:
    if finding.verdict not in (Verdict.PASS, Verdict.PARTIAL, Verdict.FAIL):
        return None
    confused = [control for control in finding.controls if not control.separated]
    if not confused and finding.controls:
        return None
    told = "; ".join(f"{c.kind} '{c.name}' expected {c.expected}, observed {c.observed}" for c in confused)
    return Check(
        name="calibrated",
        verdict=Verdict.INCONCLUSIVE,
        reason=f"not calibrated: {told or 'no control was run, so nobody has seen this check fail'}",
    )


def _enough_seeds(finding: Finding, kind: Kind, seeds: Sequence[int]) -> Check | None:
    n = _observations(finding, kind, seeds)
    if kind != "statistical" or n >= MINIMUM_SEEDS or finding.verdict not in (Verdict.PASS, Verdict.PARTIAL):
        return None
    return Check(
        name="enough seeds",
        verdict=Verdict.INCONCLUSIVE,
        reason=f"{n} seed(s): fewer than {MINIMUM_SEEDS} show that it runs, not that it holds",
    )


def _number_exists(finding: Finding) -> Check | None:
    if finding.verdict not in (Verdict.PASS, Verdict.PARTIAL):
        return None
    headline = _headline(finding)
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


def _interval_agrees(finding: Finding) -> Check | None:
    headline = _headline(finding)
    if finding.verdict is not Verdict.PASS or headline is None or headline.region is None or headline.value is None:
        return None
    low = -math.inf if headline.region.low is None else headline.region.low
    high = math.inf if headline.region.high is None else headline.region.high
    inside = low <= headline.value <= high
    if inside and (headline.interval is None or relation(headline.interval, headline.region) is Verdict.PASS):
        return None
    shown = f"{headline.value:.4g}" + (f" {headline.interval}" if headline.interval else "")
    return Check(
        name="interval inside the region",
        verdict=Verdict.INCONCLUSIVE,
        reason=f"{headline.name} {shown} does not lie inside {headline.region}",
    )


def _headline(finding: Finding) -> Measurement | None:
    """The measurement that decided: the one named, or the only one with a region."""
    if finding.headline is not None:
        return next((m for m in finding.measurements if m.name == finding.headline), None)
    judged = [m for m in finding.measurements if m.region is not None]
    return judged[0] if len(judged) == 1 else None


def _observations(finding: Finding, kind: Kind, seeds: Sequence[int]) -> int:
    """Distinct seeds of a statistical finding; inputs times precisions named in ``varied`` of a deterministic one."""
    headline = _headline(finding)
    if kind == "statistical":
        used = len(set(seeds))
        return min(used, len(set(headline.seeds))) if headline is not None and headline.seeds else used
    inputs = headline.n if headline is not None else max((m.n for m in finding.measurements), default=0)
    return inputs * max(1, sum(name in finding.varied for name in PRECISIONS))


def _both_kinds_separated(controls: Sequence[Control]) -> bool:
    return {c.kind for c in controls} == {"known-good", "known-bad"} and all(c.separated for c in controls)


def _power_at_zero(headline: Measurement | None) -> float | None:
    """The power of a parity claim with the spread that was seen; None where the claim has no margin around a centre."""
    if headline is None or headline.region is None or headline.region.low is None or headline.region.high is None:
        return None
    if len(headline.values) < 2 or not all(map(math.isfinite, headline.values)):
        return 0.0
    if spreadless(headline.values):
        return None
    return power((headline.region.high - headline.region.low) / 2, deviation(headline.values), len(headline.values))
