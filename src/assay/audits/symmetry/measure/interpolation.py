"""What interpolation alone costs: the floor under rotations that no grid carries exactly.

A rotated picture is not the picture seen from another side, so f(gx) - rho(g) f(x) does not vanish for any model. The
floor is measured at the same inputs and elements: the input is turned there and back, which is the identity but for
interpolation, and what that does to the output is what interpolation costs; outputs that are pictures themselves are
turned there and back as well. It is an estimate (the model's own sampling of the plane is not in it), so an error is
called broken only eight times above it, as every estimate here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.measure.rounding import acted, error_norms
from assay.audits.symmetry.subject import Subject
from assay.probe.rounding import norms
from assay.probe.subject import Leaves
from assay.probe.values import difference

ROUNDINGS = 64
"""Roundings of the low precision an output may carry, in its own size; as wherever no second precision tells."""


@dataclass(frozen=True)
class Interpolated:
    """Errors and floors of one output [elements, rows], and how many outputs were not finite."""

    errors: Tensor
    floors: Tensor
    not_finite: int


def interpolated(subject: Subject, case: int, elements: Elements) -> dict[int, Interpolated]:
    """Errors at every element, in the most precise run there is, and what interpolation alone costs there."""
    leaves, precision = subject.cases[case], subject.precisions[-1]
    here, group = subject.base(case, precision), subject.group(case)
    errors: dict[int, list[Tensor]] = {index: [] for index in subject.tested}
    floors: dict[int, list[Tensor]] = {index: [] for index in subject.tested}
    bad = dict.fromkeys(subject.tested, 0)
    for number in range(elements.count):
        element = elements[number]
        back = group.inverse(element)
        there = subject.over(leaves, element, precision)
        trip = subject.values(_round_trip(subject, leaves, element, back), precision)
        for index in subject.tested:
            rep = subject.output(index)
            bad[index] += int((~torch.isfinite(there[index])).sum())
            errors[index].append(error_norms(subject, rep, element, here=here[index], there=there[index]))
            lost = _norms(subject, rep.mask(element, here[index].unsqueeze(0)), difference(trip[index], here[index]))
            there_and_back = acted(rep, element, here[index])
            if rep.inexact(element):
                there_and_back = rep.act(back, there_and_back)
                gap = difference(there_and_back[0], here[index])
                lost = lost + _norms(subject, rep.mask(element, there_and_back), gap)
            # At quarter turns interpolation costs nothing, and rounding is what is left.
            rounding = ROUNDINGS * torch.finfo(subject.low_dtype).eps * _norms(subject, None, here[index])
            floors[index].append(lost + rounding)
    return {
        index: Interpolated(torch.cat(errors[index]), torch.cat(floors[index]), bad[index]) for index in subject.tested
    }


def _round_trip(subject: Subject, leaves: Leaves, there: Elements, back: Elements) -> Leaves:
    moved = [m if m is x else m[0] for m, x in zip(subject.transformed(leaves, there), leaves, strict=True)]
    return [m if m is x else m[0] for m, x in zip(subject.transformed(moved, back), moved, strict=True)]


def _norms(subject: Subject, mask: Tensor | None, gap: Tensor) -> Tensor:
    gap = gap.unsqueeze(0)
    return norms(gap if mask is None else gap * mask, subject.rows)
