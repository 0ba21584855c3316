"""How much evidence a verdict rests on, and the guards every verdict passes through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from assay.errors import expected
from assay.results import Check, Control, Evidence, Finding, Measurement, Verdict
from assay.stats import guards
from assay.stats.decision import MINIMUM_SEEDS
from assay.stats.guards import LOOKS, deciding, headline_of
from assay.stats.levels import power_again, widened
from assay.stats.looks import Look
from assay.stats.observed import Ran

Kind = Literal["statistical", "deterministic"]
CONFIRMING = 10
"""Seeds of a statistical claim, or inputs times precisions of a deterministic one, that a confirmed verdict needs."""
TARGET_POWER = 0.8
ASIDE = "paid for by the level of the test"
LOWERED = "paid for by the level of evidence"
PRECISIONS = ("float64", "float32", "float16", "bfloat16", "tf32")


def evidence_level(
    *,
    kind: Kind,
    n: int,
    guards_hold: bool = True,
    decided: bool = True,
    controls_separated: bool = False,
    fixed_beforehand: bool = False,
    power_again: float | None = None,
    replicated: bool = False,
) -> Evidence:
    """The evidence level of a verdict; computed from what was done, never declared.

    smoke: fewer than three observations, or a guard that does not hold. directional: three or more. confirmed: a PASS
    or FAIL (``decided``) with ten or more, seeds and margin fixed beforehand, controls told apart and, for a
    statistical claim, power of at least 0.8 to come out so again (None where nothing is sampled). replicated: a
    confirmed verdict that an earlier confirmed one, of other seeds, another machine or other code, agrees with. ``n``
    counts distinct records of a statistical claim and inputs times precisions of a deterministic one.

    >>> evidence_level(kind="statistical", n=1), evidence_level(kind="statistical", n=5)
    (<Evidence.SMOKE: 'smoke'>, <Evidence.DIRECTIONAL: 'directional'>)
    """
    if kind not in ("statistical", "deterministic"):
        raise expected("kind 'statistical' or 'deterministic'", given=f"kind={kind!r}")
    if n < MINIMUM_SEEDS or not guards_hold:
        return Evidence.SMOKE
    powerful = kind == "deterministic" or power_again is None or power_again >= TARGET_POWER
    if n < CONFIRMING or not (decided and fixed_beforehand and controls_separated and powerful):
        return Evidence.DIRECTIONAL
    return Evidence.REPLICATED if replicated else Evidence.CONFIRMED


def enforce(finding: Finding, *, kind: Kind, ran: Ran) -> Finding:
    """The finding after the guards that no track can skip, with its evidence level computed from what was run.

    A failed trial makes it an ERROR. Controls that were not told apart, or that were not run as arms, make it
    INCONCLUSIVE ("not calibrated"), whatever it said. A PASS or PARTIAL becomes INCONCLUSIVE if a statistical claim
    rests on fewer than three distinct records or on seeds that did not finish, or if a number that decides is missing,
    NaN or infinite. A statistical PASS needs an interval inside its region, at the level this look may spend: of the
    headline, or of every measurement with a region where none is named; and no measurement may lie outside its own. A
    FAIL that only a laxer level shows is INCONCLUSIVE too. Each guard that took effect is added to ``checks``; a
    verdict is never improved.
    """
    finding = finding.model_copy(update={"controls": ran.controls})
    before, stopped, asks = finding.verdict, set[str](), guards.asked(finding)
    judged_before = deciding(finding)
    if (moved := ran.moved(asks)) is not None:
        finding = _asked_otherwise(finding, moved)
    if kind == "statistical" and ran.look is not None:
        finding = _at_this_look(finding, ran)
    steps: tuple[Callable[[Finding], Check | None], ...] = (
        guards.trials_finished,
        guards.calibrated,
        lambda current: guards.enough_seeds(current, kind, _observations(current, kind, ran)),
        lambda current: guards.seeds_were_run(current, ran),
        lambda current: guards.values_have_records(current, kind, ran),
        guards.number_exists,
        lambda current: guards.look_allows(current, kind, ran.look),
        lambda current: guards.intervals_agree(current, kind),
    )
    for guard in steps:
        if (check := guard(finding)) is not None:
            finding = _stopped(finding, check, first=finding.verdict is before)
            stopped.add(check.name)
    if not stopped:  # a guard that stopped has said at which interval it did
        finding = _said_which_interval(finding, judged_before)
    decided = finding.verdict in (Verdict.PASS, Verdict.FAIL)
    level = evidence_level(
        kind=kind,
        n=_observations(finding, kind, ran),
        guards_hold=stopped <= {LOOKS} and not finding.failures,  # a level too lax is no fault of what was run
        decided=decided and (kind == "deterministic" or guards.shown(finding)),
        controls_separated=_both_kinds_separated(finding.controls),
        fixed_beforehand=ran.planned and moved is None and not (ran.look is not None and ran.look.shopped),
        power_again=None if finding.verdict is Verdict.FAIL else _least_power(finding),
        replicated=decided and ran.replicates(finding.verdict, asks),
    )
    return finding.model_copy(update={"evidence": level})


def _at_this_look(finding: Finding, ran: Ran) -> Finding:
    """The finding with its deciding intervals at the level of this look, and a line that says so."""
    look = ran.look
    assert look is not None
    judged = deciding(finding)
    wider = {id(m): widened(m, look.level) for m in judged if look.level > 0}
    measurements = tuple(wider.get(id(m), m) for m in finding.measurements)
    shopped = Check(name="root seeds", verdict=Verdict.INCONCLUSIVE, reason=look.note, label="shopped", aside=ASIDE)
    line = Check(name=LOOKS, verdict=Verdict.PASS, reason=look.note, label="context")
    update: dict[str, object] = {
        "measurements": measurements,
        "checks": (*finding.checks, shopped if look.shopped else line),
    }
    if look.shopped:
        roots = ", ".join(map(str, look.shopped))
        update["limitations"] = (*finding.limitations, f"Root seeds tried before without a PASS: {roots}. {look.note}.")
    return finding.model_copy(update=update)


def _said_which_interval(finding: Finding, before: Sequence[Measurement]) -> Finding:
    """The reason was written at the level of the claim; if this look is stricter, it names the interval that decides.

    A page shows the stricter interval, so a reason with the other one alone would tell a second story.
    """
    wider = [m for m, old in zip(deciding(finding), before, strict=True) if m.interval != old.interval]
    told = "; ".join(
        f"{m.name + ' ' if len(wider) > 1 else ''}[{m.interval.low:.4g}, {m.interval.high:.4g}] "
        f"({100 * m.interval.confidence:.3g} %)" for m in wider if m.interval is not None
    )  # fmt: skip
    if not told:
        return finding
    reason = f"{finding.reason}; what decides is the interval at the level of this look, {told}"
    return finding.model_copy(update={"reason": reason})


def _asked_otherwise(finding: Finding, look: Look) -> Finding:
    """The finding with a line that says what was asked of its seeds before; not fixed beforehand, so not confirmed."""
    reason = f"seeds of this look were seen on {look.at[:10]} with {look.asked}: {look.verdict}"
    check = Check(name="asked beforehand", verdict=Verdict.INCONCLUSIVE, reason=reason, label="moved", aside=LOWERED)
    said = f"What decides was not fixed beforehand: {reason}."
    return finding.model_copy(
        update={"checks": (*finding.checks, check), "limitations": (*finding.limitations, said)}
    )


def _stopped(finding: Finding, check: Check, *, first: bool) -> Finding:
    said = f" (without this guard: {finding.verdict}: {finding.reason})" if first else f"; {finding.reason}"
    capped = None if finding.score is None or check.verdict is Verdict.ERROR else min(finding.score, 50.0)
    return finding.model_copy(
        update={
            "verdict": check.verdict,
            "reason": check.reason + said,
            "score": capped,
            "checks": (*finding.checks, check),
        }
    )


def _observations(finding: Finding, kind: Kind, ran: Ran) -> int:
    """Distinct records of a statistical finding; inputs times precisions named in ``varied`` of a deterministic one."""
    headline = headline_of(finding)
    if kind == "statistical":
        return ran.distinct(headline.seeds if headline is not None else ())
    inputs = headline.n if headline is not None else max((m.n for m in finding.measurements), default=0)
    if ran.inputs is not None:  # what a track says of its own n counts as far as its records tell of as many
        inputs = min(inputs, ran.inputs)
    return inputs * max(1, sum(name in finding.varied for name in PRECISIONS)) if ran.records else 0


def _least_power(finding: Finding) -> float | None:
    powers = [found for m in deciding(finding) if (found := power_again(m)) is not None]
    return min(powers, default=None)


def _both_kinds_separated(controls: Sequence[Control]) -> bool:
    return {c.kind for c in controls} == {"known-good", "known-bad"} and all(c.separated for c in controls)
