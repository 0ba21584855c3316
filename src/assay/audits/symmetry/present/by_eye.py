"""The claim as pictures: the input, its transform, f(gx), rho(g) f(x) and their difference at the worst pair."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.audits.symmetry.drawing import drawn, take_rows
from assay.audits.symmetry.facts import Facts, Test
from assay.audits.symmetry.representations.base import Invariant
from assay.audits.symmetry.subject import Subject
from assay.figures import Panel
from assay.results import Figure

MOST_PIXELS = 64
"""Pixels along each side; of a larger picture every second, third, ... is shown."""


def by_eye(facts: Facts) -> Figure | None:
    """The pair of input and element with the largest error as pictures; None if there is nothing to show.

    The model is called twice more, at x and at gx: what the reader compares is what was compared.
    """
    tests = [test for test in facts.tests if not test.errors.not_finite]
    subject = facts.subject
    moved_leaf = next(
        (k for k, (leaf, rep) in enumerate(zip(subject.cases[0], subject.inputs, strict=True))
         if isinstance(leaf, Tensor) and leaf.ndim and not isinstance(rep, Invariant)), None
    )  # fmt: skip
    if not tests or moved_leaf is None:
        return None
    test = max(tests, key=lambda one: one.judgement.excess)
    case, row, number = _worst(subject, test)
    element = drawn(facts, subject.group(case), test.generator, facts.options.transforms)[torch.tensor([number])]
    leaves, index = take_rows(subject, case, [row]), subject.output_names.index(test.errors.output)
    precision = subject.precisions[-1]
    here = subject.values(leaves, precision)[index]
    there = subject.over(leaves, element, precision)[index][0]
    wanted = subject.output(index).act(element, here.unsqueeze(0))[0]
    x, gx = leaves[moved_leaf], subject.transformed(leaves, element)[moved_leaf][0]
    x, gx, there, wanted = (_first(subject, value) for value in (x, gx, there, wanted))
    shown = _channel(there - wanted) if bool((there != wanted).any()) else 0
    pictures = (
        ("the input x", x, _channel(x), "input"),
        ("the input gx", gx, _channel(x), "input"),
        ("f(gx)", there, shown, "output"),
        ("ρ(g) f(x)", wanted, shown, "output"),
        ("their difference", there - wanted, shown, "output"),
    )
    return Figure(
        key="by-eye",
        question=f"What does {test.generator} do to the input and to {_named(test)}?",
        kind="panels",
        panels=tuple(Panel(name=name, grid=_grid(value, k), scale=scale) for name, value, k, scale in pictures),
        caption=(
            "The input and the element with the largest error among those tested. f(gx) and ρ(g) f(x) should be the "
            "same picture. Blue is below zero, orange above; both outputs and their difference have one scale."
            + _left_out(x, there)
        ),
    )


def _named(test: Test) -> str:
    return "the output" if test.errors.output == "output" else f"the output '{test.errors.output}'"


def _worst(subject: Subject, test: Test) -> tuple[int, int, int]:
    """Case, row and element of the largest error over its rounding."""
    errors = test.errors
    place = int(torch.nan_to_num(errors.best / errors.floor, nan=0.0).argmax())
    cluster, element = int(errors.cluster[place]), int(errors.element[place])
    return (cluster, 0, element) if len(subject.cases) > 1 else (0, cluster, element)


def _first(subject: Subject, value: Tensor) -> Tensor:
    value = value.detach().cpu()
    value = value.abs() if value.is_complex() else value
    return (value[0] if subject.rows and value.ndim else value).double()


def _planes(value: Tensor) -> Tensor:
    """[planes, rows, columns]; a vector is one row, a number one pixel."""
    return value.reshape(-1, *value.shape[-2:]) if value.ndim >= 2 else value.reshape(1, 1, -1)


def _channel(value: Tensor) -> int:
    """The plane in which most happens."""
    return int(torch.nan_to_num(_planes(value)).square().sum((1, 2)).argmax())


def _step(value: Tensor) -> int:
    return -(-max(_planes(value).shape[1:]) // MOST_PIXELS)


def _grid(value: Tensor, plane: int) -> tuple[tuple[float, ...], ...]:
    step = _step(value)
    return tuple(tuple(row) for row in _planes(value)[plane][::step, ::step].tolist())


def _left_out(x: Tensor, output: Tensor) -> str:
    parts = []
    if len(_planes(x)) > 1 or len(_planes(output)) > 1:
        parts.append("of several planes the one with the largest difference is shown")
    if max(_step(x), _step(output)) > 1:
        parts.append("large pictures are thinned out")
    return f" {'; '.join(parts).capitalize()}." if parts else ""
