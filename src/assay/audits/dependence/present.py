"""The finding of a dependence audit: verdict, the leaking module, its likely cause, who sees whom."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.audits.dependence.causes import advice, pattern
from assay.audits.dependence.declarations import Causal, Local
from assay.results import Check, Control, Figure, Finding, Issue, Measurement, Region, Series, Table, Verdict

if TYPE_CHECKING:
    from assay.audits.dependence.audit import DependenceFacts
    from assay.audits.dependence.measure import Movement

HEADLINE = "largest movement of an output that must not move"
DECADES = 12
"""Movements below 1e-12 of the spread are shown as none."""
PLANTED = (1e-9, 1e-6, 1e-3)
"""Sizes of the planted leaks, as shares of the spread of the output."""


def summarise(facts: DependenceFacts) -> Finding:
    """The finding of what was measured."""
    checks = _checks(facts)
    verdict = _verdict(facts, checks)
    issues = _issues(facts) if verdict is Verdict.FAIL else ()
    return Finding(
        subject=facts.name,
        name="dependence",
        title="Dependence",
        claim=f"{facts.depends}",
        verdict=verdict,
        reason=_reason(facts, verdict),
        key_finding=issues[0].cause if issues else "",
        headline=HEADLINE,
        measurements=_measurements(facts),
        tables=tuple(_tables(facts)),
        figures=tuple(_figures(facts)),
        checks=tuple(checks),
        controls=_controls(facts),
        issues=issues,
        limitations=_limitations(facts),
        improvements=tuple(issue.fix for issue in issues),
        varied=("values of the inputs that must not matter",),
        seeds=(facts.probe.seed,),
    )


def _checks(facts: DependenceFacts) -> list[Check]:
    checks = []
    for movement in facts.movements:
        verdict = Verdict.FAIL if movement.leaks else Verdict.PASS
        label = "LEAK" if movement.leaks else "EXACT" if movement.largest == 0 else "ROUNDING"
        name = f"{movement.label}: {_named(facts, movement.output)}"
        checks.append(Check(name=name, verdict=verdict, reason=movement.why, label=label))
    if facts.gradient is not None:
        share, name = facts.gradient
        bad = not share <= facts.gradient_limit
        reason = f"{share:.2g} of the largest derivative is by entries of {name} that must not matter" if share else (
            "derivatives by what must not matter are exactly 0")  # fmt: skip
        checks.append(Check(name="derivatives", verdict=Verdict.FAIL if bad else Verdict.PASS, reason=reason,
                            label="LEAK" if bad else "EXACT"))  # fmt: skip
    reason = facts.blind or "outputs react to what they may depend on"
    verdict, label = (Verdict.FAIL, "BLIND") if facts.blind else (Verdict.PASS, "")
    checks.append(Check(name="something matters", verdict=verdict, reason=reason, label=label))
    checks += [
        Check(name=part, verdict=Verdict.INCONCLUSIVE, reason=f"not tested: {why}", label="UNTESTED")
        for part, why in facts.untested.items()
    ]
    return checks


def _verdict(facts: DependenceFacts, checks: list[Check]) -> Verdict:
    if facts.stochastic:
        return Verdict.INCONCLUSIVE
    if any(check.verdict is Verdict.FAIL for check in checks):
        return Verdict.FAIL
    if not facts.movements:
        return Verdict.INCONCLUSIVE
    essential = set(facts.untested) - {"derivatives", "one place at a time"}
    return Verdict.INCONCLUSIVE if essential else Verdict.PASS


def _worst(facts: DependenceFacts) -> Movement | None:
    leaking = [m for m in facts.movements if m.leaks] or facts.movements
    return max(leaking, key=lambda m: m.relative, default=None)


def _named(facts: DependenceFacts, output: str) -> str:
    """An output by a word: "0" or "logits" alone says too little; gradients of weights have theirs."""
    return f"output {output}" if output != "output" and output in facts.probe.output_names else output


def _reason(facts: DependenceFacts, verdict: Verdict) -> str:
    worst = _worst(facts)
    if facts.stochastic:
        return "the same call gives another result each time: put the model into evaluation mode, or fix its noise"
    if verdict is Verdict.INCONCLUSIVE:
        part, why = next(iter(facts.untested.items()), ("everything", "no output has the claimed axis"))
        return f"{part} was not tested: {why}"
    if verdict is Verdict.PASS:
        exact = all(m.largest == 0 for m in facts.movements)
        return ("no output that must not move moved by a single bit" if exact else
                "outputs that must not move moved by no more than rounding explains")  # fmt: skip
    leaks = [m for m in facts.movements if m.leaks]
    if leaks and worst is not None:
        where = f"; first at {facts.place.where}" if facts.place is not None else ""
        return f"{_named(facts, worst.output)} {worst.why} ({worst.label}, {worst.relative:.2g} of its spread){where}"
    if facts.blind:
        return facts.blind
    assert facts.gradient is not None
    where = f"; first at {facts.place.where}" if facts.place is not None else ""
    return f"values did not move, but derivatives by {facts.gradient[1]} are not zero ({facts.gradient[0]:.2g}){where}"


def _measurements(facts: DependenceFacts) -> tuple[Measurement, ...]:
    worst = _worst(facts)
    numbers = [
        Measurement(name=HEADLINE, value=worst.largest if worst else None, n=max(1, len(facts.movements)),
                    of="comparisons", note="over changes and outputs",
                    region=Region(high=worst.allowed) if worst else None),
        Measurement(name="the same, relative to the spread of the output", value=worst.relative if worst else None,
                    n=max(1, len(facts.movements)), of="comparisons"),
        Measurement(name="passes of the model", value=float(facts.probe.cost.calls + 1), unit="calls"),
    ]  # fmt: skip
    if facts.gradient is not None:
        numbers.append(Measurement(name="largest forbidden derivative, as a share", value=facts.gradient[0]))
    return tuple(numbers)


def _tables(facts: DependenceFacts) -> list[Table]:
    rows = tuple((m.label, m.output, m.largest, m.relative, m.allowed, "yes" if m.leaks else "no")
                 for m in facts.movements)  # fmt: skip
    tables = [Table(title="Movements of outputs that must not move",
                    columns=("Change", "Output", "Largest", "Relative", "Allowed", "Leak"), rows=rows)]  # fmt: skip
    pairs = leaking_pairs(facts)
    if pairs:
        shown = tuple((t, s, value) for value, t, s in sorted(pairs, reverse=True)[:12])
        tables.append(Table(title="Places that leak", columns=("Output place", "Input place", "Movement / spread"),
                            rows=shown, note=f"the largest of {len(pairs)} pairs"))  # fmt: skip
    return tables


def leaking_pairs(facts: DependenceFacts) -> list[tuple[float, int, int]]:
    """(movement, output place, input place) of every pair that the declaration forbids and that was seen."""
    seen = facts.influence
    if seen is None or not isinstance(facts.depends, Causal | Local):
        return []
    if not any(m.leaks for m in facts.movements):
        return []
    return [(seen.seen(t, s), t, s) for t in seen.outputs for s in seen.places
            if not facts.depends.allows(t, s) and seen.seen(t, s) > 0]  # fmt: skip


def _figures(facts: DependenceFacts) -> list[Figure]:
    if facts.by_place:
        x = tuple(float(i) for i in range(len(facts.by_place)))
        series = Series(name="difference", x=x, y=tuple(facts.by_place), style="dots")
        return [Figure(key="cache-by-place", question="At which place do decoding and full pass part?", x_label="place",
                       y_label="largest difference", y_scale="log", series=(series,))]  # fmt: skip
    seen = facts.influence
    if seen is None:
        return []
    grid = tuple(tuple(_decades(value) for value in row) for row in seen.grid)
    return [
        Figure(
            key="influence",
            question="Who sees whom?",
            kind="heatmap",
            x_label="input place that was changed",
            y_label="output place that moved",
            categories=tuple(map(str, seen.places)),
            row_names=tuple(map(str, seen.outputs)),
            grid=grid,
            caption=f"Decades by which the output moved above 1e-{DECADES} of its spread; 0 stands for not at all. "
            "Above the diagonal an output sees the future.",
        )
    ]


def _decades(moved: float) -> float:
    return DECADES + (math.log10(max(moved, 10.0**-DECADES)) if math.isfinite(moved) else 3.0)


def _controls(facts: DependenceFacts) -> tuple[Control, ...]:
    """The rule of the decision, asked of outputs in which a share of another entry was planted: no further passes."""
    probe = facts.probe
    outputs = probe.base(0, probe.precisions[-1])
    first = next((y for y in outputs if y.is_floating_point() and y.numel() > 1), None)
    if first is None:
        return ()
    rough = probe.base(0, "low")[next(i for i, y in enumerate(outputs) if y is first)]
    from assay.audits.dependence.measure import decided

    rounding = 2 * float((rough - first).abs().max())
    found = [Control(name="the model itself, run again", kind="known-good", expected="accepted", observed="accepted",
                     separated=not decided(probe, 0.0, rounding, same_shape=True))]  # fmt: skip
    spread = float(first.std()) or 1.0
    caught = [size for size in PLANTED if decided(probe, size * spread, rounding, same_shape=True)]
    observed = f"caught from {min(caught):g} of the spread" if caught else "none caught"
    found.append(Control(name=f"a leak of {PLANTED[-1]:g} of the spread", kind="known-bad", expected="rejected",
                         observed=observed, separated=PLANTED[-1] in caught))  # fmt: skip
    return tuple(found)


def _issues(facts: DependenceFacts) -> tuple[Issue, ...]:
    title = "The output does not depend on what it should" if facts.blind and not _any_leak(facts) else (
        "The output depends on what it must not see")  # fmt: skip
    cause, fix = advice(facts, pattern(leaking_pairs(facts)))
    where = facts.place.where if facts.place is not None else "the model"
    return (Issue(title=title, location=where, severity="high", cause=cause, fix=fix, script=_script(facts)),)


def _any_leak(facts: DependenceFacts) -> bool:
    return any(m.leaks for m in facts.movements) or (
        facts.gradient is not None and not facts.gradient[0] <= facts.gradient_limit
    )


def _script(facts: DependenceFacts) -> str:
    if not isinstance(facts.depends, Causal) or facts.influence is None:
        return ""
    dim, out = facts.depends.inputs_dim, facts.depends.outputs_dim
    pairs = leaking_pairs(facts)
    cut = max(pairs)[1] if pairs else 0
    return (
        "import torch\n"
        "model, x = ..., ...   # what was audited; fill in\n"
        "model.eval()\n"
        f"other = x.clone()\nother.narrow({dim}, {cut + 1}, x.shape[{dim}] - {cut + 1}).copy_("
        f"x.narrow({dim}, {cut + 1}, x.shape[{dim}] - {cut + 1}).flip({dim}))   # only places after {cut} differ\n"
        "a, b = model(x), model(other)\n"
        f"print((a - b).narrow({out}, 0, {cut + 1}).abs().max().item())   # 0 for a causal model\n"
    )


def _limitations(facts: DependenceFacts) -> tuple[str, ...]:
    lines = ["Only these inputs were tried: other lengths and ranges were not."]
    if facts.probe.high is None:
        lines.append(f"There was no float64 run ({facts.probe.high_problem}): rounding is an estimate.")
    if facts.gradient is None and "derivatives" not in facts.untested:
        lines.append("Derivatives were not taken: the inputs that must not matter are not real numbers.")
    return tuple(lines)
