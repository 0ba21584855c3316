"""The finding of a sameness audit: what differs, by how much beyond rounding, in which module, and the controls."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import torch

from assay.audits.same.conditions import PARTS
from assay.audits.same.judge import SAFETY, QuantityComparison, compare
from assay.audits.same.quantities import Kind
from assay.results import Check, Control, Finding, Issue, Measurement, Region, Table, Verdict
from assay.stats import binomial_interval

if TYPE_CHECKING:
    from assay.audits.same.audit import SameFacts

HEADLINE = "largest error / allowed by rounding"
LEVELS = (100.0, 10.0, 3.0)
"""Planted errors, in units of the allowance."""


def summarise(facts: SameFacts) -> Finding:
    """The finding of what was measured."""
    checks = _checks(facts)
    verdict = _verdict(facts, checks)
    issues = _issues(facts) if verdict is Verdict.FAIL else ()
    controls = _controls(facts)
    return Finding(
        subject=facts.name,
        name="same",
        title="Same function",
        claim=_claim(facts),
        verdict=verdict,
        reason=_reason(facts, verdict),
        key_finding=issues[0].cause if issues else "",
        headline=HEADLINE,
        measurements=_measurements(facts),
        tables=(_table(facts),) if facts.compared else (),
        checks=tuple(checks),
        controls=controls,
        issues=issues,
        limitations=_limitations(facts),
        improvements=(*(issue.fix for issue in issues), *_declarations(facts)),
        varied=("inputs", "edge inputs", "weights"),
        seeds=(facts.seed,),
    )  # fmt: skip


def _claim(facts: SameFacts) -> str:
    how = "up to rounding" if facts.budget is None else f"to a relative error of {facts.budget:g}"
    left_out = f"; nothing is claimed of: {', '.join(facts.without)}" if facts.without else ""
    return f"the candidate computes what the reference computes, {how}{left_out}"


def _declarations(facts: SameFacts) -> tuple[str, ...]:
    """How to say that a candidate does not claim what it raises at."""
    parts = [part for part in (*facts.lacking, *facts.wrong) if part in PARTS]
    typed = " ".join(f"--without {shlex.quote(part)}" for part in parts)
    return (f"if nothing is claimed there, say so: without={parts!r}, or {typed}",) if parts else ()


def worst(facts: SameFacts) -> QuantityComparison | None:
    """The quantity farthest above its allowance, outputs before gradients where both are infinite."""
    return max(facts.compared, key=lambda c: (c.share, c.quantity.kind is Kind.OUTPUT), default=None)


def _failed(facts: SameFacts, one: QuantityComparison) -> bool:
    if facts.budget is None:
        return one.differs
    return one.differs and not one.relative <= facts.budget


def _checks(facts: SameFacts) -> list[Check]:
    checks = []
    for condition in dict.fromkeys(one.condition for one in facts.compared):
        for kind in Kind:
            part = [c for c in facts.compared if c.condition == condition and c.quantity.kind is kind]
            if not part:
                continue
            bad = [c for c in part if _failed(facts, c)]
            top = max(part, key=lambda c: c.share)
            reason = f"{len(part)} compared; {_told(top)}"
            label = "DIFFERS" if bad else "APPROXIMATE" if top.differs else "ROUNDING"
            verdict = Verdict.FAIL if bad else Verdict.PASS
            checks.append(Check(name=f"{condition}: {kind}s", verdict=verdict, reason=reason, label=label))
    checks += [Check(name=part, verdict=Verdict.FAIL, reason=why, label="WRONG") for part, why in facts.wrong.items()]
    checks += [Check(name=part, verdict=Verdict.PARTIAL, reason=why, label="LACKING")
               for part, why in facts.lacking.items()]  # fmt: skip
    blind = _blind(facts)
    if blind:
        checks.append(Check(name="every comparison could have failed", verdict=Verdict.INCONCLUSIVE, reason=blind))
    checks += [Check(name=part, verdict=Verdict.INCONCLUSIVE, reason=f"not tested: {why}", label="UNTESTED")
               for part, why in facts.untested.items()]  # fmt: skip
    return checks


def _told(one: QuantityComparison) -> str:
    if one.why:
        return f"{one.quantity}: {one.why}"
    return f"{one.quantity} is off by {one.relative:.2g} of its size, {one.share:.2g} times what rounding allows"


def _blind(facts: SameFacts) -> str:
    """Outputs so uncertain in the reference itself that anything would have passed."""
    if facts.truth is None:
        return ""
    for name, exact in facts.truth.exact.items():
        if name.kind is Kind.OUTPUT and exact.is_floating_point() and exact.numel():
            size, scale = float(exact.norm()), float(facts.truth.scale(name).norm())
            if size and not SAFETY * scale < size:
                return f"rounding alone moves {name} of the reference by its own size: it is stochastic or unstable"
    return ""


def _verdict(facts: SameFacts, checks: list[Check]) -> Verdict:
    if _blind(facts):
        return Verdict.INCONCLUSIVE
    if any(check.verdict is Verdict.FAIL for check in checks):
        return Verdict.FAIL
    if facts.lacking:
        return Verdict.PARTIAL
    return Verdict.PASS


def _reason(facts: SameFacts, verdict: Verdict) -> str:
    top = worst(facts)
    if verdict is Verdict.INCONCLUSIVE:
        return _blind(facts)
    if verdict is Verdict.PARTIAL:
        lacking = "; ".join(f"{part}: {why}" for part, why in facts.lacking.items())
        return f"all {len(facts.compared)} comparisons agree, but not everything could be compared; {lacking}"
    if verdict is Verdict.PASS:
        assert top is not None
        return f"{len(facts.compared)} comparisons; {_told(top)}"
    failed = [c for c in facts.compared if _failed(facts, c)]
    where = f"; first at {facts.module}" if facts.module else ""
    if failed:
        given = [c for c in failed if c.condition == "as given"] or failed
        first = [[c for c in given if c.quantity.kind is kind] for kind in (Kind.OUTPUT, Kind.GRADIENT)]
        outputs = first[0] or first[1] or given
        top = max(outputs, key=lambda c: c.share)
        return f"{_told(top)} ({top.condition}){where}"
    part, why = next(iter(facts.wrong.items()))
    return f"{part}: {why}"


def _measurements(facts: SameFacts) -> tuple[Measurement, ...]:
    top = worst(facts)
    numbers = [Measurement(name=HEADLINE, value=top.share if top else None, n=max(1, len(facts.compared)),
                           of="comparisons", region=Region(high=1.0))]
    outputs = [c for c in facts.compared if c.condition == "as given" and c.quantity.kind is Kind.OUTPUT]
    if outputs:
        numbers.append(Measurement(name="relative error of the outputs", value=max(c.relative for c in outputs)))
    if facts.budget is not None and facts.truth is not None:
        numbers += _agreement(facts)
    return tuple(numbers)


def _agreement(facts: SameFacts) -> list[Measurement]:
    """For outputs [rows, classes]: how often both decide alike, with its exact bound."""
    assert facts.truth is not None
    for name, exact in facts.truth.exact.items():
        found = facts.found.get(name)
        if name.kind is Kind.OUTPUT and exact.ndim == 2 and exact.shape[1] > 1 and found is not None:
            same = int((exact.argmax(1) == found.argmax(1)).sum()) if found.shape == exact.shape else 0
            n = len(exact)
            interval = binomial_interval(same, n) if n > 1 else None
            return [Measurement(name="agreement of the decision", value=same / n, n=n, interval=interval, note="rows")]
    return []


def _table(facts: SameFacts) -> Table:
    rows = sorted(facts.compared, key=lambda c: -c.share)[:20]
    cells = tuple((c.condition, str(c.quantity), c.error, c.relative, c.allowed, c.share) for c in rows)
    columns = ("Condition", "Quantity", "Error", "Relative", "Allowed", "Error / allowed")
    return Table(title="The comparisons nearest to, or beyond, what rounding allows", columns=columns, rows=cells)


def _controls(facts: SameFacts) -> tuple[Control, ...]:
    """The reference against itself, and against itself with every weight moved along one random direction."""
    if facts.truth is None:
        return ()
    truth = facts.truth
    itself = [c for c in compare("", truth, truth.rough) if c.differs]
    observed = f"{itself[0].quantity} rejected" if itself else "accepted"
    found = [
        Control(
            name="the reference itself", kind="known-good", expected="accepted", observed=observed, separated=not itself
        )
    ]
    caught = []
    for level in LEVELS:
        planted = dict(truth.rough)
        for name, exact in truth.exact.items():
            shift = truth.nudged.get(name, exact) - exact if exact.is_floating_point() else None
            if name.kind is Kind.OUTPUT and shift is not None and float(shift.norm()):
                # Outputs move in proportion to a small move of the weights: the nudged pass, scaled up.
                size = level * SAFETY * float(truth.scale(name).norm()) / float(shift.norm())
                planted[name] = truth.rough[name] + size * shift
        if any(c.differs for c in compare("", truth, planted)):
            caught.append(level)
    if any(name.kind is Kind.OUTPUT and v.is_floating_point() for name, v in truth.exact.items()):
        smallest = f"caught at {min(caught):g} times the allowance" if caught else "not caught"
        found.append(Control(name="all weights moved, 10 times the allowance at the output", kind="known-bad",
                             expected="rejected", observed=smallest, separated=10.0 in caught))  # fmt: skip
    return tuple(found)


def _issues(facts: SameFacts) -> tuple[Issue, ...]:
    failed = [c for c in facts.compared if _failed(facts, c)]
    location = facts.module or "outputs only: no module inside could be told from the others"
    cause, fix = _advice(facts, failed)
    title = "The candidate does not compute what the reference computes" if failed else _title(facts)
    return (Issue(title=title, location=location, severity="high", cause=cause, fix=fix, script=SCRIPT),)


def _title(facts: SameFacts) -> str:
    raises = any(part != "dtype" and part != "gradients" for part in facts.wrong)
    return "The candidate raises where the reference does not" if raises else "The candidate answers in another form"


SCRIPT = """import torch, copy
reference, candidate, x = ..., ..., ...   # what was audited; fill in
truth = copy.deepcopy(reference).double()(x.double())
print("reference is off by", (reference(x).double() - truth).abs().max().item())
print("candidate is off by", (candidate(x).double() - truth).abs().max().item())
"""


def _advice(facts: SameFacts, failed: list[QuantityComparison]) -> tuple[str, str]:
    where = facts.module or "the candidate"
    if not failed:
        part, why = next(iter(facts.wrong.items()))
        alone = "; gradients=False compares outputs alone" if part == "as given" else ""
        return f"{part}: {why}", f"make the candidate accept and return what the reference does{alone}"
    if facts.agree_in_evaluation:
        return ("they differ in training mode, in which they were given; in evaluation mode their outputs agree "
                "(dropout left on, batch statistics)", "call .eval() on both, if it is evaluation that is claimed")
    conditions, kinds = {c.condition for c in failed}, {c.quantity.kind for c in failed}
    if conditions == {"the same call again"}:
        return f"{where} draws noise or keeps state between calls", "put it into evaluation mode; drop the state"
    if conditions <= {"non-contiguous inputs"}:
        return f"{where} reads memory as if inputs were contiguous", "call .contiguous(), or honour the strides"
    if conditions == {"after a step of training"}:
        return f"{where} keeps a copy of weights made before the step", "compute it from the weights at every call"
    if "as given" not in conditions:
        return f"{where} differs only under: {', '.join(sorted(conditions))}", "look at its special cases"
    given = {c.quantity.kind for c in failed if c.condition == "as given"}
    if given <= {Kind.GRADIENT, Kind.SECOND}:
        wrong = next(c.quantity for c in failed if c.condition == "as given")
        if Kind.GRADIENT not in given:
            return f"energies and forces agree, but {wrong} does not: {where} is not twice differentiable as written", (
                "derive the backward pass of the backward pass, or let autograd do it")  # fmt: skip
        return (f"outputs agree, {wrong} does not: the backward pass of {where} is not that of its forward pass",
                "compare it with torch.autograd.gradcheck; look for a detach or a custom backward")
    if kinds == {Kind.BUFFER}:
        return f"{where} updates buffers in another way", "look at running statistics and the mode of norms"
    alone = "compare this module alone, on its inputs here" if facts.module else (
        "make parts of it agree one after the other, or give both the same names of modules")  # fmt: skip
    return f"{where} computes something else in its forward pass", alone


def _limitations(facts: SameFacts) -> tuple[str, ...]:
    lines = ["Only inputs like the sample, and a few at its edges, were tried.", *facts.notes]
    if facts.high_problem:
        lines.append(f"The reference has no float64 run ({facts.high_problem}): its rounding is an estimate.")
    lines += [f"{part} was not tested: {why}" for part, why in facts.untested.items()]
    if facts.dtype == torch.float64:
        lines.append("The reference is in float64 already: rounding is estimated by moving inputs and weights.")
    return tuple(lines)
