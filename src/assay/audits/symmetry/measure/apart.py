"""Every row of a batch moved by an element of its own: what statistics of the batch make of it."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.measure.endtoend import Errors, row_spread
from assay.audits.symmetry.measure.rounding import acted
from assay.audits.symmetry.subject import Subject
from assay.probe.rounding import norms
from assay.probe.subject import Leaves, Precision
from assay.probe.values import difference

MOST_ROWS = 16
"""Every row is moved by every element before its own is picked."""


def row_by_row(subject: Subject, elements: Elements) -> list[Errors]:
    """|f(g_1 x_1, g_2 x_2, ...) - (rho(g_1) f(x)_1, ...)| per row, in both precisions."""
    size = subject.first_axis(subject.cases[0])
    rows = size if subject.fixed_batch else min(size, MOST_ROWS)
    leaves: Leaves = [x[:rows] if isinstance(x, Tensor) and x.ndim and len(x) == size else x for x in subject.cases[0]]
    each, diagonal = elements[torch.arange(rows) % elements.count], torch.arange(rows)
    moved = subject.transformed(leaves, each)
    apart = [m if m is x else m[diagonal, diagonal] for m, x in zip(moved, leaves, strict=True)]
    here: dict[Precision, list[Tensor]] = {p: subject.values(leaves, p) for p in subject.precisions}
    there: dict[Precision, list[Tensor]] = {p: subject.values(apart, p) for p in subject.precisions}
    found = []
    for index in subject.tested:
        rep = subject.output(index)
        carried = {p: acted(rep, each, here[p][index])[diagonal, diagonal] for p in subject.precisions}
        low, high = (_rows(there[p][index], carried[p]) for p in ("low", "high"))
        bound = _rows(there["low"][index], there["high"][index]) + _rows(carried["low"], carried["high"])
        found.append(
            Errors(
                output=subject.output_names[index],
                screened=low,
                low=low,
                high=high,
                bound=bound,
                cluster=diagonal,
                element=diagonal % elements.count,
                sampled=torch.ones(rows, dtype=torch.bool),
                elements=elements.count,
                left=0.0,
                suspects=0,
                spread=row_spread(here["high"][index]),
                not_finite=int((~torch.isfinite(there["high"][index])).sum()),
                estimated=False,
            )
        )
    return found


def _rows(a: Tensor, b: Tensor) -> Tensor:
    return norms(difference(a, b).unsqueeze(0), True)[0]
