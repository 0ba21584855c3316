"""Finds out whether axis 0 is a batch of independent inputs, and whether batches may be put behind each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assay.audits.symmetry.joining import Joining, apart, joining
from assay.audits.symmetry.representations.base import Invariant
from assay.audits.symmetry.subject import CHUNK_BYTES, Subject, batch_size
from assay.errors import expected
from assay.probe import tree
from assay.probe.containment import attempt
from assay.probe.memory import measure_peak
from assay.probe.subject import Leaves, Precision
from assay.probe.values import difference, jittered, largest
from assay.seeding import torch_generator

MOST_JOINED = 64
"""Graphs of one call at most."""
ADDING_UP = 2.5
"""Two graphs in one call take at most so many times the memory of one, or they are not joined: a model that compares
all nodes with each other takes four times as much, and of sixty copies it would fill any machine."""


@dataclass(frozen=True)
class Coupling:
    """Whether a row of the output depends on other rows of the input, and by how much at most."""

    asked: bool
    coupled: bool
    change: float
    floor: float
    why: str


def arrange(subject: Subject, sample: Any, inputs: int, *, stochastic: bool) -> tuple[Subject, Coupling]:
    """The subject with what its axis 0 means, and single inputs drawn again if there is no batch axis."""
    reason = _no_batch_axis(subject)
    declared = subject.symmetry.batch
    if declared == 0 and reason:
        raise expected("axis 0 to be a batch axis, as declared by batch=0", given=reason, do="say batch=None")
    if reason is None and not stochastic:
        batched = replace(subject, rows=True, _base={})
        coupling = _coupling(batched)
        rows = not coupling.coupled
        mergeable = rows and _mergeable(batched)
        fixed = rows and not mergeable and not _runs_with_fewer(batched)
    else:
        rows, mergeable, fixed = reason is None, False, False
        coupling = Coupling(False, False, 0.0, 0.0, reason or "the model is stochastic")
    cases = subject.cases
    if not rows and callable(sample) and len(cases) == 1:
        cases = _drawn_singly(subject, sample, inputs)
    arranged = replace(subject, cases=cases, rows=rows, mergeable=mergeable, fixed_batch=fixed, _base={})
    if not rows and not stochastic:
        arranged = replace(arranged, joining=_joining(arranged))
    return arranged, coupling


def _no_batch_axis(subject: Subject) -> str | None:
    """Why axis 0 cannot be a batch axis, or None if it can."""
    if subject.symmetry.batch is None:
        return "batch=None was declared"
    if len(subject.cases) > 1:
        return "the sample is a list of separate inputs"
    leaves = subject.cases[0]
    for leaf, rep, name in zip(leaves, subject.inputs, subject.input_names, strict=True):
        if isinstance(leaf, Tensor) and 0 in rep.axes(leaf.ndim):
            return f"the group acts on axis 0 of {name or 'the input'}"
    size = batch_size(leaves, subject.inputs)
    for leaf, rep in zip(leaves, subject.inputs, strict=True):
        if isinstance(leaf, Tensor) and not isinstance(rep, Invariant) and (not leaf.ndim or len(leaf) != size):
            return "inputs differ in size along axis 0"
    for index in subject.tested:
        output = subject.base(0, "low")[index]
        if not output.ndim or len(output) != size or 0 in subject.output(index).axes(output.ndim):
            return f"output {subject.output_names[index]} of shape {tuple(output.shape)} has no batch axis of {size}"
    return None


def _coupling(subject: Subject) -> Coupling:
    leaves = subject.cases[0]
    size = batch_size(leaves, subject.inputs)
    others = jittered(leaves, torch_generator(subject.seed, "coupling"))
    half = max(1, size // 2)
    if size == 1:
        changed = _rowwise(leaves, others, size, lambda a, b: torch.cat([a, b]))
    else:
        changed = _rowwise(leaves, others, size, lambda a, b: torch.cat([a[:half], b[half:]]))
    precision: Precision = "high" if subject.high is not None else "low"
    try:
        after = subject.values(changed, precision)
    except Exception as error:  # a model of one fixed batch size; the rows of size 1 stay as they are
        return Coupling(False, False, 0.0, 0.0, f"it does not run with other rows ({type(error).__name__})")
    before = subject.base(0, precision)
    change = floor = 0.0
    for index in subject.tested:
        if len(after[index]) < half:
            return Coupling(True, True, float("inf"), 0.0, "an output lost its batch axis")
        gap = float(difference(after[index][:half], before[index][:half]).abs().max())
        change = max(change, gap)
        if precision == "high":
            rough = difference(subject.base(0, "low")[index][:half], before[index][:half])
            floor = max(floor, float(rough.abs().max()))
        else:
            floor = max(floor, 64 * torch.finfo(subject.low_dtype).eps * largest(before[index]))
    return Coupling(True, change > floor, change, floor, "other rows were replaced")


def _mergeable(subject: Subject) -> bool:
    """Whether f([x, x]) = [f(x), f(x)]: then many transformed batches fit into one pass."""
    leaves = subject.cases[0]
    size = batch_size(leaves, subject.inputs)
    twice = _rowwise(leaves, leaves, size, lambda a, b: torch.cat([a, b]))
    precision: Precision = "high" if subject.high is not None else "low"
    try:
        once, double = subject.base(0, precision), subject.values(twice, precision)
    except Exception:  # a fixed batch size
        return False
    for index in subject.tested:
        if len(double[index]) != 2 * size:
            return False
        gap = difference(double[index], torch.cat([once[index]] * 2)).abs().max()
        limit = torch.finfo(subject.low_dtype).eps * largest(once[index])
        if not (float(gap) <= 64 * limit or bool(torch.isnan(gap))):
            return False
    return True


def _joining(subject: Subject) -> Joining | None:
    """How several graphs go into one call, if the model then says of each what it says of it alone."""
    found = joining(subject.cases[0], subject.inputs)
    if found is None:
        return None
    # The largest two: a call then holds many of the smaller ones.
    first, *others = sorted(subject.cases, key=found.nodes, reverse=True)
    other = others[0] if others else jittered(first, torch_generator(subject.seed, "joining"))
    count = min(MOST_JOINED, CHUNK_BYTES // max(1, subject.row_bytes * subject.first_axis(first)))
    if count < 2 or not _adds_up(subject, found, first, other):
        return None
    # As many as a call will hold: a model may have room for so many nodes only.
    graphs = [(first, other)[number % 2] for number in range(count)]
    precision = subject.precisions[-1]

    def tried() -> bool:
        alone = [subject.values(first, precision), subject.values(other, precision)]
        outputs = subject.values(found.joined(graphs), precision)
        singles = {index: [alone[number % 2][index] for number in range(count)] for index in subject.tested}
        return all(subject.same(apart(outputs[index], several), several) for index, several in singles.items())

    if not attempt(tried).value:
        return None
    return replace(found, most=sum(found.nodes(one) for one in graphs))


def _adds_up(subject: Subject, how: Joining, first: Leaves, other: Leaves) -> bool:
    """Whether two graphs in one call take about the memory of two calls; counted at every operation."""
    single, double = (
        attempt(lambda leaves=leaves: measure_peak(lambda: subject.values(leaves, "low"))).value  # type: ignore[misc]
        for leaves in (first, how.joined([first, other]))
    )
    return single is not None and double is not None and double.bytes <= ADDING_UP * max(1, single.bytes)


def _rowwise(a: Leaves, b: Leaves, size: int, join: Callable[[Tensor, Tensor], Tensor]) -> Leaves:
    return [join(x, y) if isinstance(x, Tensor) and x.ndim and len(x) == size else x for x, y in zip(a, b, strict=True)]


def _runs_with_fewer(subject: Subject) -> bool:
    """Whether the model takes another number of rows: exported models and hand-written shapes do not."""
    size = batch_size(subject.cases[0], subject.inputs)
    if size < 2:
        return True
    fewer = [x[: size // 2] if isinstance(x, Tensor) and x.ndim and len(x) == size else x for x in subject.cases[0]]
    found = attempt(lambda: subject.values(fewer, "low")).value
    return found is not None and all(y.ndim and len(y) == size // 2 for y in (found[i] for i in subject.tested))


def _drawn_singly(subject: Subject, sample: Any, inputs: int) -> list[Leaves]:
    """Without a batch axis each draw of the sample is one input; they may differ in size."""
    generator = torch_generator(subject.seed, "inputs")
    return [[leaf for _, leaf in tree.leaves(sample(1, generator))] for _ in range(inputs)]
