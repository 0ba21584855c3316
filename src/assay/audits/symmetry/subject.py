"""A model, example inputs and a declared symmetry, ready to be evaluated: many transformations in one batched pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.audits.symmetry.edges import EDGES, along_edges, edge_axis, per_edge, with_edge_order
from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.joining import Joining, apart
from assay.audits.symmetry.recall import remember
from assay.audits.symmetry.representations.base import Invariant, Representation, merge_sizes
from assay.audits.symmetry.spec import Symmetry, atoms, match
from assay.errors import expected
from assay.probe import subject as probing
from assay.probe import tree
from assay.probe.containment import attempt
from assay.probe.copies import duplicate
from assay.probe.state import Remembering
from assay.probe.subject import Call, Leaves, Precision, Probe
from assay.probe.values import difference, exact, largest

LARGE_BYTES = 2 << 20
"""All activations of one input, in float64, above which a model is traced at fewer inputs and elements: the same is
then said of it in a fraction of the time and memory (an image of 64 x 64 makes 5 MB in a ResNet-18)."""
CHUNK_BYTES = 4 << 20
"""Activations of one pass: larger batches fall out of the cache and run slower, measured on CNN and EGNN."""


@dataclass(kw_only=True)
class Subject(Probe):
    """A probe with a symmetry declared: inputs and outputs have representations, and axis 0 may be a batch."""

    symmetry: Symmetry
    inputs: list[Representation]
    outputs: list[Representation | None] = field(default_factory=list)
    rows: bool = False
    """Axis 0 of every input and output is a batch of independent inputs."""
    mergeable: bool = False
    """Several transformed batches may be put behind each other into one."""
    joining: Joining | None = None
    """How several transformed graphs become the inputs of one call, if the model takes them so."""
    fixed_batch: bool = False
    """The model takes this number of rows and no other."""
    given_twin: bool = False
    """The float64 version is the user's own."""
    recalled: str = ""
    """The name by which the scripts of issues get at what was given."""
    own_call: Call | None = None
    """The call that the user gave."""

    @property
    def tested(self) -> list[int]:
        """Indices of the outputs that were declared."""
        return [index for index, rep in enumerate(self.outputs) if rep is not None]

    def output(self, index: int) -> Representation:
        """The declared representation of an output."""
        rep = self.outputs[index]
        assert rep is not None
        return rep

    def group(self, case: int = 0) -> Group:
        """The group with its open sizes taken from a case."""
        return bound(self.symmetry.group, self.inputs, self.cases[case])

    @property
    def large(self) -> bool:
        """Whether one input makes so many activations that the expensive parts are run at fewer of them."""
        return self.trace_bytes * (1 if self.rows else self.first_axis(self.cases[0])) > LARGE_BYTES

    def inexact(self, elements: Elements) -> bool:
        """Whether a grid has to be interpolated at one of these elements."""
        return any(rep is not None and rep.inexact(elements) for rep in [*self.inputs, *self.outputs])

    def batch(self, case: int = 0) -> int:
        """Rows of a case; 1 without a batch axis."""
        return self.rows_of(self.cases[case])

    def rows_of(self, leaves: Leaves) -> int:
        """Rows of these leaves; 1 without a batch axis."""
        return self.first_axis(leaves) if self.rows else 1

    def first_axis(self, leaves: Leaves) -> int:
        """The size of axis 0 of the first input the group acts on."""
        return batch_size(leaves, self.inputs)

    def transformed(self, leaves: Leaves, elements: Elements) -> Leaves:
        """Leaves with a leading element axis where the group acts on them, unchanged where it does not."""
        moved: Leaves = []
        for leaf, rep in zip(leaves, self.inputs, strict=True):
            if not isinstance(leaf, Tensor) or isinstance(rep, Invariant):
                moved.append(leaf)
                continue
            value = exact(leaf)
            moved.append(rep.act(elements, value.expand(elements.count, *value.shape)))
        return moved

    def over(self, leaves: Leaves, elements: Elements, precision: Precision) -> list[Tensor]:
        """Outputs at every transformed input, each [n, *shape]; for a few elements, since all of them are kept."""
        pieces = [self._chunk_over(leaves, some, precision) for some in self.chunks(leaves, elements)]
        self._check_shapes([[y[0] for y in outputs] for outputs in pieces])
        return [torch.cat(parts) for parts in zip(*pieces, strict=True)]

    def chunks(self, leaves: Leaves, elements: Elements) -> Iterator[Elements]:
        """The elements in groups that go into one pass; what a group returns is used up before the next one is run."""
        step = self.chunk(self.first_axis(leaves))
        if self.joining is not None:
            step = max(1, self.joining.most // self.joining.nodes(leaves) - 1)
        for start in range(0, elements.count, step):
            yield elements[start : start + step]

    def chunk(self, batch: int) -> int:
        """How many transformations go into one pass: as many as keep the activations within the cache."""
        return max(1, CHUNK_BYTES // max(1, self.row_bytes * batch))

    def _chunk_over(self, leaves: Leaves, elements: Elements, precision: Precision) -> list[Tensor]:
        moved, n = self.transformed(leaves, elements), elements.count
        acts = [
            isinstance(leaf, Tensor) and not isinstance(r, Invariant)
            for leaf, r in zip(leaves, self.inputs, strict=True)
        ]
        if not self.mergeable:
            singles = [[m[i] if a else m for m, a in zip(moved, acts, strict=True)] for i in range(n)]
            results = self._joined(leaves, singles, precision) or [self.values(single, precision) for single in singles]
            self._check_shapes(results)
            return [torch.stack(outputs) for outputs in zip(*results, strict=True)]
        batch = batch_size(leaves, self.inputs)
        merged: Leaves = []
        for leaf, original, acted in zip(moved, leaves, acts, strict=True):
            if acted:
                merged.append(leaf.flatten(0, 1))
            elif isinstance(original, Tensor) and original.ndim and len(original) == batch:
                merged.append(original.repeat(n, *[1] * (original.ndim - 1)))
            else:
                merged.append(original)
        found = self.values(merged, precision)
        for name, output in zip(self.output_names, found, strict=True):
            if not output.ndim or len(output) != n * batch:
                raise ShapeChanged(name, (n * batch, *output.shape[1:]), tuple(output.shape))
        return [output.reshape(n, batch, *output.shape[1:]) for output in found]

    def _joined(self, leaves: Leaves, graphs: list[Leaves], precision: Precision) -> list[list[Tensor]] | None:
        """Outputs at each of several versions of a graph from one call; None where the model takes one at a time.

        The graph itself goes with them: what is said of it must be what is said of it alone.
        """
        if self.joining is None or len(graphs) < 2:
            return None
        joining, case = self.joining, next((i for i, one in enumerate(self.cases) if one is leaves), None)
        alone = self.values(leaves, precision) if case is None else self.base(case, precision)
        found = attempt(lambda: self.values(joining.joined([leaves, *graphs]), precision)).value
        if found is None:
            return None
        parts = [apart(y, [one] * (1 + len(graphs))) for y, one in zip(found, alone, strict=True)]
        if not all(self.same(parts[index], [alone[index]]) for index in self.tested):
            return None
        # What was not declared is not looked at.
        return [[one if part is None else part[i] for part, one in zip(parts, alone, strict=True)]
                for i in range(1, 1 + len(graphs))]

    def same(self, parts: list[Tensor] | None, alone: list[Tensor]) -> bool:
        """Whether the first parts of a joined output are what the model says of each graph alone, up to rounding."""
        eps = torch.finfo(self.low_dtype).eps
        return parts is not None and all(
            float(difference(part, one).abs().max()) <= 64 * eps * largest(one)
            for part, one in zip(parts, alone, strict=False)
            if one.numel()
        )

    def _check_shapes(self, results: list[list[Tensor]]) -> None:
        for outputs in results:
            for name, first, other in zip(self.output_names, results[0], outputs, strict=True):
                if first.shape != other.shape:
                    raise ShapeChanged(name, tuple(first.shape), tuple(other.shape))


class ShapeChanged(RuntimeError):
    """An output has another shape at gx than at hx: no representation does that, so the symmetry is broken."""

    def __init__(self, output: str, first: tuple[int, ...], other: tuple[int, ...]) -> None:
        self.output, self.shapes = output, f"shape {first} at one element and {other} at another"
        super().__init__(f"{tree.said(output)} has {self.shapes}")


def prepare(
    model: nn.Module,
    sample: Any,
    symmetry: Symmetry,
    *,
    seed: int,
    inputs: int,
    call: Call | None = None,
    twin: nn.Module | None = None,
) -> Subject:
    """The subject of an audit: copies in two precisions, inputs checked, structure of the outputs known."""
    probing.check_module(model)
    given = symmetry
    template, cases = probing.drawn(sample, inputs, seed)
    names = probing.input_names(model, template)
    reps = [rep or Invariant() for rep in match(symmetry.inputs, template, "input")]
    for case in cases:
        probing.check_inputs(case, names)
        _check_representations(case, reps, symmetry)
    ordered = with_edge_order(symmetry, reps, cases)
    if ordered is not None:
        symmetry, reps = ordered, along_edges(reps, cases[0])
    cases = [_admissible(case, reps, symmetry) for case in cases]
    copies = probing.copies(model, template, cases)
    subject = Subject(template=template, cases=cases, call=call, seed=seed, symmetry=symmetry, inputs=reps, **copies)
    subject.recalled, subject.own_call = remember(model, sample, given, call=call, seed=seed), call
    _declare_outputs(subject, probing.learn_outputs(subject))
    if twin is None:
        probing.add_high(subject)
    else:
        probing.check_module(twin)
        subject.high, subject.given_twin = duplicate(twin, dtype=torch.float64), True
    return subject


def restored(subject: Subject) -> Subject:
    """The subject with fresh copies whose state is put back before every call."""
    low = duplicate(subject.model, dtype=subject.low_dtype if subject.low_dtype != subject.native else None)
    high = subject.high
    if high is not None and not subject.given_twin:
        high = duplicate(subject.model, dtype=torch.float64)
    return replace(subject, low=low, high=high, call=Remembering(subject.call, subject.seed), _base={})


def batch_size(leaves: Leaves, reps: Sequence[Representation]) -> int:
    """Size of axis 0 of the first input the group acts on, else of the first tensor."""
    tensors = [(leaf, rep) for leaf, rep in zip(leaves, reps, strict=True) if isinstance(leaf, Tensor) and leaf.ndim]
    acted = [leaf for leaf, rep in tensors if not isinstance(rep, Invariant)]
    return len(acted[0]) if acted else len(tensors[0][0]) if tensors else 1


def bound(group: Group, reps: Sequence[Representation], leaves: Leaves) -> Group:
    """The group with open sizes taken from these leaves."""
    found = [rep.sizes(tuple(leaf.shape)) for rep, leaf in zip(reps, leaves, strict=True) if isinstance(leaf, Tensor)]
    return group.bind(merge_sizes(found))


def _check_representations(case: Leaves, reps: list[Representation], symmetry: Symmetry) -> None:
    group = bound(symmetry.group, reps, case)
    for leaf, rep in zip(case, reps, strict=True):
        if isinstance(leaf, Tensor):
            rep.check(group.identity(), tuple(leaf.shape))
    if all(isinstance(rep, Invariant) for rep in reps):
        raise expected("at least one input that the group acts on", given=f"inputs all invariant under {group.name}")


def _admissible(case: Leaves, reps: list[Representation], symmetry: Symmetry) -> Leaves:
    """Inputs on which interpolated representations lose nothing at the edge; the others as they are."""
    some = bound(symmetry.group, reps, case).sample(8, torch.Generator().manual_seed(0))
    pairs = zip(case, reps, strict=True)
    return [rep.admissible(x) if isinstance(x, Tensor) and rep.inexact(some) else x for x, rep in pairs]


def _declare_outputs(subject: Subject, result: Any) -> None:
    """Matches what the model returned with what was declared of it."""
    declared = match(subject.symmetry.outputs, result, "output", partial=True)
    found = zip(declared, tree.leaves(result), strict=True)
    subject.outputs = [rep for rep, (_, leaf) in found if isinstance(leaf, Tensor)]
    edges = edge_axis([atoms(rep)[0] for rep in subject.inputs], subject.cases[0])
    if edges is not None and EDGES in subject.symmetry.group.parts:
        count = subject.cases[0][edges[0]].shape[edges[1]]
        values = tree.tensors(result)
        pairs = zip(subject.outputs, values, strict=True)
        subject.outputs = [None if rep is None else per_edge(rep, y, count) for rep, y in pairs]
    if not any(rep is not None for rep in subject.outputs):
        kinds = ", ".join(dict.fromkeys(type(leaf).__name__ for _, leaf in tree.leaves(result)))
        names, do = subject.output_names, "return tensors, or make one in call=(model, inputs) -> outputs"
        given = f"outputs {', '.join(names)}" if names else f"a model that returns {kinds}"
        raise expected("at least one declared output tensor", given=given, do=None if names else do)
    identity = subject.group().identity()
    for rep, leaf in zip(subject.outputs, tree.tensors(result), strict=True):
        if rep is not None:
            rep.check(identity, tuple(leaf.shape))
