"""The heart of an audit: |f(gx) - rho(g) f(x)| for many x and g, and the rounding to expect.

The low precision looks at every pair (x, g); float64, which is many times slower, settles the ones that matter
(``arbitrate``).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.measure.arbitrate import sample_of, settle
from assay.audits.symmetry.measure.interpolation import interpolated
from assay.audits.symmetry.measure.perturbed import ESTIMATE_SAFETY, RoundingFloors, suspicious
from assay.audits.symmetry.measure.rounding import error_norms
from assay.audits.symmetry.subject import CHUNK_BYTES, ShapeChanged, Subject
from assay.probe.rounding import silently_low
from assay.probe.values import difference, jittered
from assay.seeding import torch_generator


@dataclass(frozen=True)
class Errors:
    """Errors of one output over pairs (input, element).

    ``screened`` is |f(gx) - rho f(x)| in the low precision at every pair. The other tensors are [settled pairs], the
    ones float64 was run at: ``low`` and ``high`` are the errors in both precisions, ``bound`` is r(gx) + r(x) with
    r = |f_low - f_high|, which by the triangle inequality no exactly equivariant model exceeds (to float64 rounding),
    ``sampled`` marks the pairs that were settled whatever the low precision said. Without float64 every pair counts as
    settled and ``estimated`` bounds come from perturbed weights.
    """

    output: str
    screened: Tensor
    low: Tensor
    high: Tensor | None
    bound: Tensor
    cluster: Tensor
    element: Tensor
    sampled: Tensor
    elements: int
    """Elements the low precision was run at."""
    left: float
    """The largest low-precision error among suspects left alone because the output was known to be broken by then."""
    suspects: int
    """Pairs whose low-precision error alone exceeds what ten rounding bounds allow."""
    spread: float
    not_finite: int
    estimated: bool
    interpolated: bool = False
    """The bound is what interpolating a grid costs, which no precision makes smaller."""
    jump: float = 0.0
    """How far the output jumps between the precisions at one input, in spreads, where that is no rounding; else 0."""

    @property
    def best(self) -> Tensor:
        """Errors in the most precise run there is."""
        return self.low if self.high is None else self.high

    @property
    def floor(self) -> Tensor:
        """The rounding of every settled pair, at least the typical one: a single rounding may vanish by luck."""
        return torch.maximum(self.bound, self.bound[self.sampled].median())

    @property
    def relative(self) -> Tensor:
        """Errors of the most precise run, relative to how far outputs of unrelated inputs lie apart."""
        return self.scaled(self.best)

    @property
    def worst(self) -> float:
        """The largest relative error seen, in float64 wherever it was run."""
        return max(float(self.relative.max()), self.left / (self.spread or 1.0))

    def scaled(self, errors: Tensor) -> Tensor:
        """Errors over the spread of the output."""
        return errors / self.spread if self.spread else errors


def measure(
    subject: Subject, draw: Callable[[Group], Elements], *, spreads: dict[int, float], everywhere: bool = False
) -> list[Errors]:
    """Errors of every declared output at the elements that ``draw`` gives for each case.

    With ``everywhere`` float64 is run at every pair.
    """
    pieces: dict[int, list[_Piece]] = {index: [] for index in subject.tested}
    estimated, first_row = subject.high is None or silently_low(subject, subject.tested), 0
    between_pixels = subject.inexact(draw(subject.group(0)))
    for case in range(len(subject.cases)):
        if between_pixels:
            found = _interpolated(subject, case, draw)
        elif estimated:
            found = _estimated(subject, case, draw, spreads)
        else:
            found = _settled(subject, case, draw, spreads=spreads, everywhere=everywhere)
        for index, piece in found.items():
            piece.cluster += first_row
            pieces[index].append(piece)
        first_row += subject.batch(case)
    joined = [
        _joined(subject, index, mine, spread=spreads.get(index, 0.0), estimated=estimated or between_pixels)
        for index, mine in pieces.items()
    ]
    return [replace(one, interpolated=between_pixels) for one in joined]


def shape_errors(subject: Subject, change: ShapeChanged, spreads: Mapping[int, float]) -> list[Errors]:
    """The errors of an output that has no fixed shape: as large as the output itself, in every precision."""
    index = subject.output_names.index(change.output)
    spread = spreads.get(index, 0.0) or 1.0
    one, bound = torch.tensor([spread]), torch.tensor([spread * torch.finfo(subject.low_dtype).eps])
    place = torch.zeros(1, dtype=torch.long)
    return [
        Errors(
            output=change.output,
            screened=one,
            low=one,
            high=None,
            bound=bound,
            cluster=place,
            element=place,
            sampled=torch.ones(1, dtype=torch.bool),
            elements=1,
            left=0.0,
            suspects=1,
            spread=spread,
            not_finite=0,
            estimated=True,
        )
    ]


def output_spreads(subject: Subject) -> dict[int, float]:
    """How far outputs of unrelated inputs lie apart, per declared output.

    Errors are divided by this and not by the norm of the output: behind a large constant every error looks small.
    """
    precision = subject.precisions[-1]
    here = subject.base(0, precision)
    spreads, other = {}, list[Tensor]()
    for index in subject.tested:
        y = here[index]
        if subject.rows and len(y) > 1:
            spreads[index] = row_spread(y)
            continue
        other = other or subject.values(jittered(subject.cases[0], torch_generator(subject.seed, "spread")), precision)
        gap = difference(other[index] if other[index].shape == y.shape else torch.zeros_like(y), y)
        spreads[index] = float(torch.linalg.vector_norm(gap))
    return spreads


def row_spread(y: Tensor) -> float:
    """How far two rows lie apart: the root of the mean square over all pairs; booleans count as 0 and 1."""
    numbers = y.to(torch.complex128) if y.is_complex() else y.double()
    centred = (numbers - numbers.mean(dim=0)).abs().reshape(len(y), -1)
    return float((2 * centred.square().sum(dim=1).mean()).sqrt())


@dataclass
class _Piece:
    """What one case adds to the errors of one output; [elements, rows] each, settled elements only but ``screened``."""

    screened: Tensor
    low: Tensor
    high: Tensor | None
    bound: Tensor
    cluster: Tensor
    element: Tensor
    sampled: Tensor
    left: float
    suspects: int
    not_finite: int
    jump: float = 0.0


def _settled(
    subject: Subject, case: int, draw: Callable[[Group], Elements], *, spreads: dict[int, float], everywhere: bool
) -> dict[int, _Piece]:
    elements = draw(subject.group(case))
    seen: dict[int, list[Tensor]] = {}
    sample = set(sample_of(elements.count, everywhere=everywhere).tolist())
    low, bad = _low_errors(subject, case, elements, sample=sample, seen=seen)
    found = {}
    rulings = settle(subject, case, elements, low, spreads=spreads, everywhere=everywhere, seen=seen)
    for index, ruling in rulings.items():
        chosen, shape = ruling.chosen, ruling.high.shape
        found[index] = _Piece(
            screened=ruling.low,
            low=ruling.low[chosen],
            high=ruling.high,
            bound=ruling.bound,
            cluster=torch.arange(shape[1]).expand(shape).clone(),
            element=chosen.unsqueeze(1).expand(shape),
            sampled=ruling.sampled.unsqueeze(1).expand(shape),
            left=ruling.left,
            suspects=ruling.suspects,
            not_finite=bad[index] + ruling.not_finite,
            jump=ruling.jump,
        )
    return found


def _estimated(
    subject: Subject, case: int, draw: Callable[[Group], Elements], spreads: dict[int, float]
) -> dict[int, _Piece]:
    """The low precision judged by an estimate of its rounding: there is no float64 to settle anything."""
    elements = draw(subject.group(case))
    low, bad = _low_errors(subject, case, elements)
    floors, found = RoundingFloors(subject, case, elements, "low"), {}
    for index in subject.tested:
        errors = low[index]
        shape = errors.shape
        found[index] = _Piece(
            screened=errors,
            low=errors,
            high=None,
            bound=_estimates(floors, index, errors, suspicious(subject, spreads.get(index, 0.0))),
            cluster=torch.arange(shape[1]).expand(shape).clone(),
            element=torch.arange(shape[0]).unsqueeze(1).expand(shape),
            sampled=torch.ones(shape, dtype=torch.bool),
            left=0.0,
            suspects=0,
            not_finite=bad[index],
        )
    return found


def _interpolated(subject: Subject, case: int, draw: Callable[[Group], Elements]) -> dict[int, _Piece]:
    """Errors at rotations that no grid carries, judged by what interpolation alone costs."""
    elements, found = draw(subject.group(case)), {}
    for index, one in interpolated(subject, case, elements).items():
        shape = one.errors.shape
        found[index] = _Piece(
            screened=one.errors,
            low=one.errors,
            high=None,
            bound=one.floors,
            cluster=torch.arange(shape[1]).expand(shape).clone(),
            element=torch.arange(shape[0]).unsqueeze(1).expand(shape),
            sampled=torch.ones(shape, dtype=torch.bool),
            left=0.0,
            suspects=0,
            not_finite=one.not_finite,
        )
    return found


def _low_errors(
    subject: Subject,
    case: int,
    elements: Elements,
    *,
    sample: Container[int] = (),
    seen: dict[int, list[Tensor]] | None = None,
) -> tuple[dict[int, Tensor], dict[int, int]]:
    """Errors of the low precision [elements, rows] and the number of outputs that are not finite.

    Outputs of one pass are reduced to their errors before the next one: memory does not grow with the elements. Those
    at the elements of the ``sample`` are put into ``seen``, as many as one pass may hold.
    """
    leaves, start, room = subject.cases[case], 0, CHUNK_BYTES
    errors: dict[int, list[Tensor]] = {index: [] for index in subject.tested}
    bad = dict.fromkeys(subject.tested, 0)
    for some in subject.chunks(leaves, elements):
        outputs = subject.over(leaves, some, "low")
        size = sum(y[0].numel() * y.element_size() for y in outputs)
        for number in range(some.count if seen is not None else 0):
            if seen is not None and start + number in sample and size <= room:
                seen[start + number], room = [y[number].clone() for y in outputs], room - size
        start += some.count
        for index in subject.tested:
            here, there = subject.base(case, "low")[index], outputs[index]
            if there.shape[1:] != here.shape:
                raise ShapeChanged(subject.output_names[index], tuple(here.shape), tuple(there.shape[1:]))
            errors[index].append(error_norms(subject, subject.output(index), some, here=here, there=there))
            bad[index] += int((~torch.isfinite(there)).sum())
    return {index: torch.cat(several) for index, several in errors.items()}, bad


def _estimates(floors: RoundingFloors, index: int, errors: Tensor, suspect: float) -> Tensor:
    """Estimated r(x) + r(gx) [elements, rows]: at gx only where r(x) twice is not enough, the worst first.

    A translation far away costs more digits at gx than at x.
    """

    def largest(draws: Tensor) -> Tensor:
        # Where a draw jumps (a sign, a sort) the middle one is the rounding.
        top: Tensor = draws.max(dim=0).values
        return top if float(top.max()) <= suspect else draws.median(dim=0).values

    here = largest(floors.here(index))
    bound = (2 * here).expand_as(errors).clone()
    known = torch.zeros(len(errors), dtype=torch.bool)
    while True:
        ratio = torch.nan_to_num(errors / bound, nan=0.0).max(dim=1).values
        if bool((ratio[known] > ESTIMATE_SAFETY).any()) or not bool((ratio[~known] > ESTIMATE_SAFETY).any()):
            return bound
        worst = int(torch.where(known, -1.0, ratio).argmax())
        bound[worst] = here + torch.maximum(here, largest(floors.there(index, worst)))
        known[worst] = True


def _joined(subject: Subject, index: int, pieces: list[_Piece], *, spread: float, estimated: bool) -> Errors:
    def flat(name: str) -> Tensor:
        return torch.cat([getattr(piece, name).reshape(-1) for piece in pieces])

    return Errors(
        output=subject.output_names[index],
        screened=flat("screened"),
        low=flat("low"),
        high=None if pieces[0].high is None else flat("high"),
        bound=flat("bound"),
        cluster=flat("cluster"),
        element=flat("element"),
        sampled=flat("sampled"),
        elements=max(len(piece.screened) for piece in pieces),
        left=max(piece.left for piece in pieces),
        suspects=sum(piece.suspects for piece in pieces),
        spread=spread,
        not_finite=sum(piece.not_finite for piece in pieces),
        estimated=estimated,
        jump=max(piece.jump for piece in pieces) / spread if spread else 0.0,
    )
