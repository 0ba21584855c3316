"""Can this test tell right from wrong, for this group, on these inputs? Two maps whose answer is known are put to it.

The known-good one hands the input through, which commutes with every action. The known-bad one adds a fixed pattern of
a hundredth of the input's size, which no action leaves alone. Both are measured and judged like the model. A grid that
has to be interpolated hides what is smaller than the interpolation: there the pattern is an input, as large and as
smooth as the others, and what is handed through may be approximate.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.measure.endtoend import measure, output_spreads
from assay.audits.symmetry.measure.tolerance import judge
from assay.audits.symmetry.representations.base import Invariant, Representation
from assay.audits.symmetry.spec import Symmetry
from assay.audits.symmetry.subject import Subject, prepare
from assay.results import Control
from assay.seeding import torch_generator

PLANTED = 0.01
"""Size of the planted pattern, as a share of the size of the input."""
ELEMENTS = 8
ROWS = 4


class HandedThrough(nn.Module):
    """The input as it is."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0


class PlantedModel(nn.Module):
    """The input and a fixed pattern."""

    pattern: Tensor

    def __init__(self, pattern: Tensor) -> None:
        super().__init__()
        self.register_buffer("pattern", pattern)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pattern


def controls(subject: Subject) -> tuple[Control, ...]:
    """Both controls on the first continuous input that the group moves; none if it moves no such input."""
    moved = [
        (leaf, rep)
        for leaf, rep in zip(subject.cases[0], subject.inputs, strict=True)
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.ndim and not isinstance(rep, Invariant)
    ]
    if not moved:
        return ()
    leaf, rep = moved[0]
    x = leaf.detach().cpu()
    x = (x[:ROWS] if subject.rows else x).to(subject.low_dtype)
    size = float(x.double().square().mean().sqrt()) or 1.0
    drawn = torch.randn(x.shape[1:] if subject.rows else x.shape, generator=torch_generator(subject.seed, "planted"))
    between = subject.inexact(_drawn(subject)(subject.group()))
    right, told = ("APPROXIMATE", "another input") if between else ("EXACT", f"a fixed pattern of {PLANTED:.0%}")
    pattern = (x[0].clone() if subject.rows else x.clone()) if between else (PLANTED * size * drawn).to(x.dtype)
    healthy = _label(HandedThrough(), x, rep, subject)
    broken = _label(PlantedModel(pattern), x, rep, subject)
    return (
        Control(name="the input handed through", kind="known-good", expected=right, observed=healthy,
                separated=healthy in ("EXACT", "FLOAT-LIMITED", right)),
        Control(name=f"{told} added", kind="known-bad", expected="BROKEN", observed=broken,
                separated=broken == "BROKEN"),
    )  # fmt: skip


def _label(model: nn.Module, x: Tensor, rep: Representation, subject: Subject) -> str:
    claim = Symmetry(subject.symmetry.group, inputs=rep, outputs=rep, batch=None)
    mine = prepare(model, x, claim, seed=subject.seed, inputs=1)
    errors = measure(mine, _drawn(subject), spreads=output_spreads(mine))
    return judge(errors[0], low_dtype=mine.low_dtype).label


def _drawn(subject: Subject) -> Callable[[Group], Elements]:
    """Elements that differ from those the model is tested with."""
    return lambda group: group.sample(ELEMENTS, torch_generator(subject.seed, "controls"))
