"""Is the test wrong? Looks for another representation of an output or input under which the symmetry holds."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from assay.audits.symmetry.explain.candidates import Conjugate, Reshaped, candidates
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.measure.endtoend import measure
from assay.audits.symmetry.measure.perturbed import BROKEN_BAND
from assay.audits.symmetry.measure.rounding import compare, error_norms
from assay.audits.symmetry.measure.tolerance import judge
from assay.audits.symmetry.representations.base import Invariant, Representation
from assay.audits.symmetry.subject import Subject
from assay.errors import InputError
from assay.probe.subject import Leaves
from assay.probe.tree import said
from assay.probe.values import exact

TRIED = 8
"""Alternatives tried per input; each costs a few passes."""


@dataclass(frozen=True)
class Alternative:
    """Another declaration that fits within rounding where the given one does not."""

    kind: Literal["output", "input"]
    name: str
    declared: str
    fits: str

    def __str__(self) -> str:
        if self.kind == "output":
            return f"{said(self.name)} was declared {self.declared} but behaves as {self.fits}"
        if self.declared == "invariant":
            return f"input {self.name} was not transformed; if it is transformed as {self.fits}, the symmetry holds"
        return f"input {self.name} was declared {self.declared}; as {self.fits} the symmetry holds"


def alternatives(
    subject: Subject,
    leaves: Leaves,
    elements: Elements,
    broken: list[str],
    *,
    spreads: Mapping[int, float],
    others: Sequence[tuple[Elements, Container[str]]] = (),
) -> list[Alternative]:
    """Declarations that differ from the given one in one place and hold at inputs and elements where that one fails.

    They must keep what held: ``others`` are elements of each other generator with the outputs that it leaves whole.
    Inputs are never declared invariant where they were not: a test that transforms nothing holds for every model.
    """
    small = dataclasses.replace(subject, cases=[leaves], _base={})
    found: list[Alternative] = []
    low = small.over(small.cases[0], elements, "low")
    high = small.over(small.cases[0], elements, "high") if small.high is not None else None
    for index in subject.tested:
        if subject.output_names[index] in broken and high is not None:
            for rep in _output_options(small, index, elements):
                _, error, bound = compare(small, rep, elements, case=0, index=index, low=low[index], high=high[index])
                if error is not None and bound is not None and bool((error <= bound.maximum(bound.median())).all()):
                    name, declared = subject.output_names[index], repr(subject.output(index))
                    kept = [some for some, whole in others if name in whole]
                    if not all(_output_fits(small, rep, some, index) for some in kept):
                        continue
                    found.append(Alternative("output", name, declared, _plain(rep)))
                    break
    if found:
        return found
    for place, (leaf, rep) in enumerate(zip(small.cases[0], small.inputs, strict=True)):
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            continue
        alone = not any("linear" in one.parts for one in [*small.inputs[:place], *small.inputs[place + 1 :]])
        for other in _input_options(small, leaf, rep, elements):
            # A mirror image of a lone pseudovector is a rotation: no test of reflections at all.
            if not _moves(other, elements, leaf) or (alone and "pseudo" in repr(other)):
                continue
            inputs = [*small.inputs[:place], other, *small.inputs[place + 1 :]]
            if any(_moves(rep, some, leaf) and not _moves(other, some, leaf) for some, _ in others):
                continue
            trial = dataclasses.replace(small, inputs=inputs, _base={})
            if _holds(trial, elements, spreads) and all(_holds(trial, some, spreads, whole) for some, whole in others):
                found.append(Alternative("input", subject.input_names[place] or "x", repr(rep), _plain(other)))
                break
    return found


def _options(shape: tuple[int, ...], elements: Elements, subject: Subject) -> list[Representation]:
    group = subject.group(0)
    lead = shape if subject.rows else (1, *shape)
    tried = candidates(lead, elements, group)
    tried += [Conjugate(rep, group) for rep in tried[1:]]
    return [rep if subject.rows else Reshaped(rep, lead, plain=True) for rep in tried]


def _output_options(subject: Subject, index: int, elements: Elements) -> list[Representation]:
    shape = tuple(subject.base(0, "low")[index].shape)
    declared = subject.output(index)
    options = _options(shape, elements, subject)
    if not isinstance(declared, Invariant):
        options.insert(0, Conjugate(declared, subject.group(0)))
    options.sort(key=lambda rep: "basis" not in repr(rep))  # more is said by a basis than by an inverse
    return [rep for rep in options if _plain(rep) != repr(declared)]


def _input_options(subject: Subject, leaf: Tensor, rep: Representation, elements: Elements) -> list[Representation]:
    options = _options(tuple(leaf.shape), elements, subject)
    if not isinstance(rep, Invariant) and not subject.symmetry.is_invariance:
        # With invariant outputs the inverse of every element gives the same test again.
        options.insert(0, Conjugate(rep, subject.group(0)))
    return [one for one in options if not _is_invariant(one) and _plain(one) != repr(rep)][:TRIED]


def _moves(rep: Representation, elements: Elements, leaf: Tensor) -> bool:
    """Whether every element changes the input: a test that moves nothing holds for every model."""
    value = exact(leaf).expand(elements.count, *leaf.shape)
    try:
        moved = rep.act(elements, value)
    except (InputError, RuntimeError, IndexError):
        return False
    return all(bool((after != before).any()) for after, before in zip(moved, value, strict=True))


def _output_fits(subject: Subject, rep: Representation, elements: Elements, index: int) -> bool:
    """Whether an output follows another representation at elements at which it followed the declared one."""
    low, high = (subject.over(subject.cases[0], elements, precision)[index] for precision in ("low", "high"))
    _, error, bound = compare(subject, rep, elements, case=0, index=index, low=low, high=high)
    return error is not None and bound is not None and bool((error <= bound.maximum(bound.median())).all())


def _holds(
    subject: Subject, elements: Elements, spreads: Mapping[int, float], outputs: Container[str] | None = None
) -> bool:
    """Whether every output (of ``outputs``) holds: an input declared otherwise must not break one that held before."""
    try:
        if outputs is None and _far_off(subject, elements[0], spreads):
            return False
        errors = measure(subject, lambda group: elements, spreads={})
    except (RuntimeError, ValueError, IndexError):
        return False
    judged = [judge(one, low_dtype=subject.low_dtype) for one in errors if outputs is None or one.output in outputs]
    return bool(judged or outputs is not None) and all(one.label in ("EXACT", "FLOAT-LIMITED") for one in judged)


def _far_off(subject: Subject, element: Elements, spreads: Mapping[int, float]) -> bool:
    """Whether one element is enough: an error too large to be called a symmetry, in one pass of the low precision."""
    leaves = subject.cases[0]
    there = subject.over(leaves, element, "low")
    for index in subject.tested:
        here = subject.base(0, "low")[index]
        errors = error_norms(subject, subject.output(index), element, here=here, there=there[index])
        spread = spreads.get(index, 0.0)
        if spread and not bool((errors <= BROKEN_BAND * spread).all()):  # also where it is not a number
            return True
    return False


def _is_invariant(rep: Representation) -> bool:
    return isinstance(rep, Invariant) or (isinstance(rep, Reshaped) and isinstance(rep.rep, Invariant))


def _plain(rep: Representation) -> str:
    """The name without the axis numbers of the search."""
    text = repr(rep)
    return text if "@" in text else re.sub(r"\(axis=-?\d+(, )?", "(", text).replace("()", "")
