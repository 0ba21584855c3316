"""What must hold before an error means anything: same answer twice, finite numbers, outputs that react to inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.layout import Coupling
from assay.audits.symmetry.representations.base import Invariant
from assay.audits.symmetry.spec import SelfTest, self_test
from assay.audits.symmetry.subject import Subject
from assay.probe.subject import Leaves
from assay.probe.trace import record
from assay.probe.tree import said
from assay.probe.values import difference, jittered
from assay.results import Check, Verdict
from assay.seeding import torch_generator


@dataclass(frozen=True)
class Sensitivity:
    """For each input the group acts on, the declared outputs that react to it."""

    reacts: dict[str, tuple[str, ...]]
    outputs: tuple[str, ...]

    @property
    def dead_outputs(self) -> tuple[str, ...]:
        """Outputs that react to no input the group acts on: their symmetry would be tested in vain."""
        alive = {output for outputs in self.reacts.values() for output in outputs}
        return tuple(output for output in self.outputs if output not in alive)

    @property
    def dead_inputs(self) -> tuple[str, ...]:
        """Inputs no output reacts to."""
        return tuple(name for name, outputs in self.reacts.items() if not outputs)


def self_tests(subject: Subject) -> list[SelfTest]:
    """The laws of a group representation, for every declared input and output."""
    generator = torch_generator(subject.seed, "self-test")
    group, tests = subject.group(), []
    for leaf, rep, name in zip(subject.cases[0], subject.inputs, subject.input_names, strict=True):
        if isinstance(leaf, Tensor) and not isinstance(rep, Invariant):
            tests.append(self_test(group, rep, leaf, f"input {name}".strip(), generator))
    for index in subject.tested:
        rep = subject.output(index)
        if not isinstance(rep, Invariant):
            value = subject.base(0, "low")[index]
            value = (
                torch.where(torch.isfinite(value), value, torch.ones_like(value))
                if value.is_floating_point()
                else value
            )
            tests.append(self_test(group, rep, value, f"output {subject.output_names[index]}", generator))
    return tests


def self_test_check(tests: list[SelfTest], group: Group) -> Check:
    """PASS if every representation is one; otherwise the test is wrong and no model is blamed."""
    wrong = next((test for test in tests if not test.holds), None)
    if wrong is None:
        worst = max((max(t.identity, t.product, t.inverse) for t in tests), default=0.0)
        return Check(
            name="self-test",
            verdict=Verdict.PASS,
            reason=f"{group.name} and its representations obey the laws to {worst:.1g}",
        )
    return Check(
        name="self-test",
        verdict=Verdict.ERROR,
        reason=(
            f"the declared representation of {wrong.where} is not one of {group.name}: {wrong}; "
            "your test is wrong, not the model"
        ),
        label="UNTESTED",
    )


def is_stochastic(subject: Subject) -> float:
    """How far two runs on the same input lie apart, 0 if within rounding."""
    first, second = (subject.values(subject.cases[0], "low") for _ in range(2))
    worst = 0.0
    for index in subject.tested:
        a, gap = first[index], float(torch.nan_to_num(difference(first[index], second[index]).abs()).max())
        # Threads may sum in another order: differences of the size of rounding are not randomness.
        limit = 64 * torch.finfo(subject.low_dtype).eps * float(torch.nan_to_num(a.abs().double()).max())
        worst = max(worst, gap if gap > limit else 0.0)
    return worst


def determinism_check(gap: float, reproducible: bool) -> Check:
    """PASS if two runs agree."""
    if not gap:
        return Check(name="determinism", verdict=Verdict.PASS, reason="the same input twice gives the same output")
    how = (
        "with the global generator set to the same state before every call it repeats itself; tested that way"
        if reproducible
        else "even with the global generator set to the same state it does not repeat itself"
    )
    return Check(
        name="determinism",
        verdict=Verdict.INCONCLUSIVE,
        reason=f"two runs on the same input differ by {gap:.2g}: the model is stochastic in evaluation mode; {how}",
        label="UNTESTED",
    )


def finiteness_check(subject: Subject) -> Check:
    """PASS if every declared output is finite; otherwise FAIL, with the first module that makes a NaN or infinity."""
    bad = [
        subject.output_names[i]
        for i in subject.tested
        for case in range(len(subject.cases))
        if not bool(torch.isfinite(subject.base(case, "low")[i]).all())
    ]
    if not bad:
        return Check(name="finiteness", verdict=Verdict.PASS, reason="all outputs are finite")
    where = first_not_finite(subject, subject.cases[0])
    return Check(
        name="finiteness",
        verdict=Verdict.FAIL,
        reason=f"{said(bad[0])} holds NaN or infinity" + (f", first made by {where}" if where else ""),
        label="BROKEN",
    )


def first_not_finite(subject: Subject, leaves: Leaves) -> str | None:
    """The first module whose output is not finite."""
    for event in record(subject, leaves, subject.low, subject.low_dtype).events:
        if event.kind == "exit" and not all(bool(torch.isfinite(t).all()) for _, t in event.tensors):
            return event.label
    return None


def coupling_check(coupling: Coupling, declared: object) -> Check:
    """Whether rows of a batch are independent."""
    name = "batch coupling"
    if not coupling.asked:
        return Check(name=name, verdict=Verdict.PASS, reason=f"no batch to couple: {coupling.why}")
    if not coupling.coupled:
        return Check(name=name, verdict=Verdict.PASS, reason="a row of the output does not depend on other rows")
    said = "declared a batch axis" if declared == 0 else "taken for a batch axis"
    return Check(
        name=name,
        verdict=Verdict.FAIL if declared == 0 else Verdict.PARTIAL,
        reason=(
            f"axis 0 was {said}, but a row of the output changes by {coupling.change:.2g} when other rows do (rounding "
            f"{coupling.floor:.1g}); the whole batch was tested as one input. If axis 0 holds parts of one input "
            "(atoms, nodes), say batch=None; otherwise something mixes the batch"
        ),
        label="BROKEN" if declared == 0 else "",
    )


def sensitivity(subject: Subject) -> Sensitivity:
    """Which declared outputs react to which inputs the group acts on."""
    precision = subject.precisions[-1]
    reacts: dict[str, tuple[str, ...]] = {}
    leaves = subject.cases[0]
    noisy = jittered(leaves, torch_generator(subject.seed, "sensitivity"))
    for place, (leaf, rep) in enumerate(zip(leaves, subject.inputs, strict=True)):
        if not isinstance(leaf, Tensor) or isinstance(rep, Invariant):
            continue
        other = noisy[place] if leaf.is_floating_point() else _other_integers(subject, leaf)
        if other is None:
            continue
        try:
            after = subject.values([*leaves[:place], other, *leaves[place + 1 :]], precision)
        except Exception:  # the model refuses the changed input: then it certainly reads it
            reacts[subject.input_names[place] or "input"] = tuple(subject.output_names[i] for i in subject.tested)
            continue
        reacts[subject.input_names[place] or "input"] = tuple(
            subject.output_names[i] for i in subject.tested if _changed(subject, i, after[i])
        )
    return Sensitivity(reacts, tuple(subject.output_names[i] for i in subject.tested))


def sensitivity_check(found: Sensitivity) -> Check:
    """VACUOUS if an output reacts to nothing the group moves, or an input is ignored."""
    name = "sensitivity"
    if found.dead_outputs:
        names = ", ".join(found.dead_outputs)
        reason = (
            f"{said(names)} does not react to any input the group acts on: every symmetry holds for a constant, in vain"
        )
        return Check(name=name, verdict=Verdict.INCONCLUSIVE, reason=reason, label="VACUOUS")
    if found.dead_inputs:
        names = ", ".join(found.dead_inputs)
        reason = f"no declared output reacts to {names}: transforming it tests nothing"
        return Check(name=name, verdict=Verdict.INCONCLUSIVE, reason=reason, label="VACUOUS")
    return Check(name=name, verdict=Verdict.PASS, reason="every output reacts to the inputs the group acts on")


def moved_by(subject: Subject, draw: Callable[[Group], Elements]) -> bool:
    """Whether the elements a generator draws change any input at all."""
    elements = draw(subject.group(0))
    moved = subject.transformed(subject.cases[0], elements)
    return any(
        after is not before and bool((after != before.cpu().expand(after.shape)).any())
        for after, before in zip(moved, subject.cases[0], strict=True)
        if isinstance(before, Tensor)
    )


def _changed(subject: Subject, index: int, after: Tensor) -> bool:
    here = subject.base(0, subject.precisions[-1])[index]
    if after.shape != here.shape:
        return True
    change = float(difference(after, here).abs().max())
    if subject.high is not None:
        floor = float(difference(subject.base(0, "low")[index], here).abs().max())
    else:
        floor = 64 * torch.finfo(subject.low_dtype).eps * float(here.abs().max())
    return change > floor


def _other_integers(subject: Subject, leaf: Tensor) -> Tensor | None:
    """The same integers on other rows; None if that changes nothing."""
    if not leaf.ndim or len(leaf) < 2 or not subject.rows:
        return None
    other = leaf.roll(1, dims=0)
    return None if bool((other == leaf).all()) else other
