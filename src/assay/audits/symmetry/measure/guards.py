"""What must hold before an error means anything: same answer twice, finite numbers, outputs that react to inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.audits.symmetry.edges import EDGES
from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.layout import Coupling
from assay.audits.symmetry.measure.perturbed import ESTIMATE_SAFETY, perturbed
from assay.audits.symmetry.representations.base import Invariant
from assay.audits.symmetry.spec import SelfTest, self_test
from assay.audits.symmetry.subject import Subject
from assay.probe.containment import attempt, told
from assay.probe.rounding import norms
from assay.probe.subject import Leaves
from assay.probe.trace import record
from assay.probe.tree import said
from assay.probe.values import difference, exact, is_continuous, jittered, largest
from assay.results import Check, Verdict
from assay.seeding import torch_generator


@dataclass(frozen=True)
class Sensitivity:
    """For each input the group acts on, the declared outputs that react to it."""

    reacts: Mapping[str, tuple[str, ...]]
    outputs: tuple[str, ...]
    complete: bool = True
    """Every such input could be changed."""

    @property
    def dead_outputs(self) -> tuple[str, ...]:
        """Outputs that react to no input the group acts on: their symmetry would be tested in vain."""
        if not self.complete:
            return ()
        alive = {output for outputs in self.reacts.values() for output in outputs}
        return tuple(output for output in self.outputs if output not in alive)

    @property
    def dead_inputs(self) -> tuple[str, ...]:
        """Inputs no output reacts to."""
        return tuple(name for name, outputs in self.reacts.items() if not outputs)

    def reacts_to(self, output: str, inputs: Iterable[str]) -> bool:
        """Whether an output reacts to one of these inputs; what could not be changed counts as read."""
        return any(output in self.reacts.get(name, (output,)) for name in inputs)


def self_tests(subject: Subject) -> list[SelfTest]:
    """The laws of a group representation, for every declared input and output."""
    generator = torch_generator(subject.seed, "self-test")
    group, tests = subject.group(), []
    for leaf, rep, name in zip(subject.cases[0], subject.inputs, subject.input_names, strict=True):
        if isinstance(leaf, Tensor) and not isinstance(rep, Invariant):
            tests.append(self_test(group, rep, leaf, where=f"input {name}".strip(), generator=generator))
    for index in subject.tested:
        rep = subject.output(index)
        if not isinstance(rep, Invariant):
            value = subject.base(0, "low")[index]
            value = (
                torch.where(torch.isfinite(value), value, torch.ones_like(value))
                if value.is_floating_point()
                else value
            )
            where = f"output {subject.output_names[index]}"
            tests.append(self_test(group, rep, value, where=where, generator=generator))
    return tests


def self_test_check(tests: list[SelfTest], group: Group) -> Check:
    """PASS if every representation is one; otherwise the test is wrong and no model is blamed."""
    wrong = next((test for test in tests if not test.holds), None)
    if wrong is None:
        worst = max((test.worst for test in tests), default=0.0)
        how = " (interpolated grids: the identity alone)" if any(test.interpolated for test in tests) else ""
        return Check(
            name="self-test",
            verdict=Verdict.PASS,
            reason=f"{group.name} and its representations obey the laws to {worst:.1g}{how}",
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
    return _apart(subject, first, second)


def remembers(subject: Subject) -> float:
    """How far runs on the same input lie apart when another input came between them, 0 if within rounding."""
    leaves = subject.cases[0]
    first = subject.base(0, "low")
    other = attempt(lambda: subject.values(jittered(leaves, torch_generator(subject.seed, "between")), "low"))
    return 0.0 if other.problem else _apart(subject, first, subject.values(leaves, "low"))


def _apart(subject: Subject, first: list[Tensor], second: list[Tensor]) -> float:
    worst = 0.0
    for index in subject.tested:
        if first[index].shape != second[index].shape:
            return math.inf
        a, gap = first[index], float(torch.nan_to_num(difference(first[index], second[index]).abs()).max())
        # Threads may sum in another order: differences of the size of rounding are not randomness.
        limit = 64 * torch.finfo(subject.low_dtype).eps * largest(a)
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


def memory_check(gap: float) -> Check | None:
    """Says that a model keeps state between calls; None if it does not."""
    if not gap:
        return None
    reason = (
        f"the same input gives another output (by {gap:.2g}) after another call: the model keeps state "
        "between calls; its state was put back before every call, and it was tested that way"
    )
    return Check(name="memory", verdict=Verdict.INCONCLUSIVE, reason=reason, label="UNTESTED")


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
    generator, complete = torch_generator(subject.seed, "sensitivity"), True
    noisy = jittered(leaves, generator)
    for place, (leaf, rep) in enumerate(zip(leaves, subject.inputs, strict=True)):
        if not isinstance(leaf, Tensor) or isinstance(rep, Invariant):
            continue
        other = noisy[place] if is_continuous(leaf) else _other_integers(leaf, generator)
        if other is None:
            complete = False
            continue
        try:
            after = subject.values([*leaves[:place], other, *leaves[place + 1 :]], precision)
        except Exception:  # the model refuses the changed input: then it certainly reads it
            reacts[subject.input_names[place] or "input"] = tuple(subject.output_names[i] for i in subject.tested)
            continue
        found = tuple(subject.output_names[i] for i in subject.tested if _changed(subject, i, after[i]))
        if found or (is_continuous(leaf) and rep.parts != {EDGES}):
            # Labels that do not matter (one species of atoms) and spare fields of edges take nothing from the others.
            reacts[subject.input_names[place] or "input"] = found
    return Sensitivity(reacts, tuple(subject.output_names[i] for i in subject.tested), complete)


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


def moved_by(subject: Subject, draw: Callable[[Group], Elements]) -> tuple[str, ...]:
    """The inputs that the elements a generator draws change."""
    elements = draw(subject.group(0))
    step = subject.chunk(subject.batch(0))
    found: list[str] = []
    for start in range(0, elements.count, step):
        moved = subject.transformed(subject.cases[0], elements[start : start + step])
        for name, after, before in zip(subject.input_names, moved, subject.cases[0], strict=True):
            if isinstance(before, Tensor) and after is not before and name not in found:
                changed = after != exact(before).expand(after.shape)
                found += [name] if bool(changed.any()) else []
        if len(found) == len(moved):
            break
    return tuple(name or "input" for name in found)


def mode_check(model: nn.Module) -> Check | None:
    """Says that copies in evaluation mode are tested, if the model, or a part of it, was given in training mode."""
    training = [name for name, module in model.named_modules() if module.training]
    if not training:
        return None
    whole = model.training and len(training) == len(list(model.modules()))
    which = "the model was" if whole else f"{len(training)} modules ({', '.join(training[:3]) or 'the model'}) were"
    return Check(
        name="mode",
        verdict=Verdict.PASS,
        reason=f"{which} given in training mode; copies in evaluation mode were tested, and training mode apart",
    )


def compiled_check(model: nn.Module) -> Check | None:
    """Says that the original code of a compiled model is tested; None of any other."""
    if not any(type(module).__name__ == "OptimizedModule" for module in model.modules()):
        return None
    reason = "the code that torch.compile was given was tested; audit_same says whether the compiled one does the same"
    return Check(name="compiled", verdict=Verdict.PASS, reason=reason)


def twin_check(subject: Subject) -> Check | None:
    """Whether a float64 version given by the user is the same function, at the inputs and at others; None without one.

    It may differ from the model by as much as the model moves when weights and inputs move by one rounding, and by
    the safety factor of that estimate.
    """
    if not subject.given_twin:
        return None
    worst, name = 0.0, "twin"
    for leaves in (subject.cases[0], jittered(subject.cases[0], torch_generator(subject.seed, "twin"))):
        try:
            low, high = subject.values(leaves, "low"), subject.values(leaves, "high")
        except Exception as error:
            why = f"the float64 version given as twin= does not run: {told(error)}"
            return Check(name=name, verdict=Verdict.ERROR, reason=why, label="UNTESTED")
        if [y.shape for y in low] != [y.shape for y in high]:
            why = "the float64 version given as twin= returns other shapes than the model: it is another function"
            return Check(name=name, verdict=Verdict.ERROR, reason=why, label="UNTESTED")
        allowed = perturbed(subject, leaves, "low", tag="twin")
        for index in subject.tested:
            gap = norms(difference(low[index], high[index]).unsqueeze(0), subject.rows)[0]
            bound = 2 * ESTIMATE_SAFETY * allowed[index].max(dim=0).values
            worst = max(worst, float(torch.where(gap == 0, 0.0, gap / bound).max()))
    if worst > 1:
        why = f"the float64 version given as twin= is another function: off by {worst:.2g} times what rounding allows"
        return Check(name=name, verdict=Verdict.ERROR, reason=why, label="UNTESTED")
    reason = f"the float64 version is the same function: it differs by {worst:.2g} of what rounding allows"
    return Check(name=name, verdict=Verdict.PASS, reason=reason)


def _changed(subject: Subject, index: int, after: Tensor) -> bool:
    here = subject.base(0, subject.precisions[-1])[index]
    if after.shape != here.shape:
        return True
    change = float(difference(after, here).abs().max())
    if subject.high is not None:
        floor = float(difference(subject.base(0, "low")[index], here).abs().max())
    else:
        floor = 64 * torch.finfo(subject.low_dtype).eps * largest(here)
    # Not ``change > floor``: edges drawn at random may join an atom to itself, and NaN is a reaction too.
    return not change <= floor


def _other_integers(leaf: Tensor, generator: torch.Generator) -> Tensor | None:
    """Other integers or booleans between the smallest and the largest; None if there is only one of them."""
    low, high = int(leaf.min()), int(leaf.max())
    other = torch.randint(low, high + 1, leaf.shape, generator=generator).to(leaf)
    return None if bool((other == leaf).all()) else other
