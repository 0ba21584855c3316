"""How far outputs move when weights and inputs move by one rounding: rounding without a second precision.

It replaces |f_low - f_64| where there is no float64 run, and checks it where there is one: a sign, a sort or an
eigenvector jumps between two precisions by far more than rounding, and such a jump allows no error.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.subject import Subject
from assay.probe.copies import duplicate
from assay.probe.noise import uniform
from assay.probe.rounding import norms
from assay.probe.subject import Leaves, Precision
from assay.probe.values import difference, exact, is_continuous
from assay.seeding import torch_generator

DRAWS = 4
ESTIMATE_SAFETY = 8.0
"""Without float64 the bound is an estimate from four perturbed copies: one is called broken only this far above it."""
JUMP = ESTIMATE_SAFETY**2
"""A rounding this many times larger than what perturbed float64 copies show is a jump, not rounding."""
BROKEN_BAND = 1e-2
"""The original template calls relative errors above this broken: no test passes there, whatever rounding allows."""


def suspicious(subject: Subject, spread: float) -> float:
    """The rounding from which on it is checked for jumps: a thousand times that of the dtype, at most the broken band.

    Infinite if the spread of the output is not known.
    """
    return spread * min(BROKEN_BAND, 1e3 * torch.finfo(subject.low_dtype).eps) if spread else torch.inf


def perturbed(subject: Subject, leaves: Leaves, precision: Precision, *, tag: str | int = 0) -> list[Tensor]:
    """[draws, rows] per output: how far it moves if weights and inputs move by the rounding of the low dtype.

    This mimics rounding at every layer; it is an estimate, not a bound, and verdicts that rest on it say so.
    """
    eps = torch.finfo(subject.low_dtype).eps
    generator = torch_generator(subject.seed, "perturbed", tag)
    here = subject.values(leaves, precision)
    steps: list[list[Tensor]] = []
    for _ in range(DRAWS):
        model, nudged = nudge(subject, leaves, precision, generator)
        moved = [exact(y) for y in subject.run(nudged, model, subject.dtype(precision))]
        # No output is more precise than its own last bit, even if none of these draws happens to move it.
        steps.append([_moved(a, b, subject.rows, eps) for a, b in zip(moved, here, strict=True)])
    return [torch.stack(several) for several in zip(*steps, strict=True)]


def nudge(
    subject: Subject, leaves: Leaves, precision: Precision, generator: torch.Generator
) -> tuple[nn.Module, Leaves]:
    """A copy of the model and the inputs, every continuous number moved by at most one rounding of the low dtype."""
    eps, model = torch.finfo(subject.low_dtype).eps, duplicate(subject.twin(precision))
    with torch.no_grad():
        for weight in [*model.parameters(), *model.buffers()]:
            if is_continuous(weight):
                weight.mul_(uniform(weight, generator).mul_(eps).add_(1))
    moved = [exact(x) * (1 + eps * uniform(exact(x), generator)) if is_continuous(x) else x for x in leaves]
    return model, moved


class RoundingFloors:
    """Estimates of rounding at an input and at its transforms, each computed when it is first asked for."""

    def __init__(self, subject: Subject, case: int, elements: Elements, precision: Precision) -> None:
        self._subject, self._case, self._elements, self._precision = subject, case, elements, precision
        self._known: dict[int | None, list[Tensor]] = {}

    def here(self, index: int) -> Tensor:
        """[draws, rows] at the input itself."""
        return self._at(None)[index]

    def there(self, index: int, number: int) -> Tensor:
        """[draws, rows] at the input moved by one element."""
        return self._at(number)[index]

    def _at(self, number: int | None) -> list[Tensor]:
        if number not in self._known:
            leaves = self._subject.cases[self._case]
            if number is not None:
                moved = self._subject.transformed(leaves, self._elements[number : number + 1])
                leaves = [m if m is x else m[0] for m, x in zip(moved, leaves, strict=True)]
            tag = f"{self._case} {number}"
            self._known[number] = perturbed(self._subject, leaves, self._precision, tag=tag)
        return self._known[number]

    def jump_limit(self, index: int, bound: Tensor, worst: int) -> Tensor:
        """[rows]: what rounding can be at most; the middle of the draws, so that one that jumps does not count.

        What the copies show at the input is enough if no bound exceeds it; else they are asked at gx as well.
        """
        here = self.here(index).median(dim=0).values
        if bool((bound <= 2 * JUMP * here).all()):
            return 2 * JUMP * here
        return JUMP * (here + torch.maximum(here, self.there(index, worst).median(dim=0).values))


def _moved(a: Tensor, b: Tensor, rows: bool, eps: float) -> Tensor:
    if a.shape != b.shape:  # the length of an output hangs on a rounding
        return torch.full((len(b) if rows else 1,), torch.inf, dtype=torch.float64)
    gap, size = difference(a, b), b if b.is_complex() else b.double()
    return torch.maximum(norms(gap.unsqueeze(0), rows)[0], eps * norms(size.unsqueeze(0), rows)[0])
