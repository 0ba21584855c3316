"""Which pairs (input, element) need the slow float64 run, so that no error above ten rounding bounds escapes.

Let e = |f(gx) - rho f(x)|, r = |f_low - f_64| and b = r(gx) + r(x). The triangle inequality gives e_64 <= e_low + b.
f_64(x) is known at every input, so r(x) is, and b >= r(x). A pair with e_low <= 9 r(x) therefore has e_64 <= 10 b: it
is no error above ten bounds, and float64 need not look. Of a sound model almost no pair is left (e_low <= b, so it
takes r(gx) > 8 r(x)); of a broken one the worst few decide. A fixed sample of elements is settled in any case: it gives
the typical rounding, the float64 numbers of the report, and a chance at errors between one and ten bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.measure.perturbed import BROKEN_BAND, JUMP, RoundingFloors, suspicious
from assay.audits.symmetry.measure.rounding import carried_rounding, error_norms, rounding_there
from assay.audits.symmetry.measure.statistics import count_needed
from assay.audits.symmetry.subject import Subject

PROMISED = 10.0
"""Errors above this many rounding bounds are found wherever the low precision looked."""
SAMPLED = count_needed(0.5)
"""Elements settled in any case: 5, so that what shows at half of all elements is met at one of them with 95 %."""


@dataclass
class Ruling:
    """What is known of one output at one case; [elements, rows], ``high`` and ``bound`` at the chosen elements."""

    low: Tensor
    suspicion: Tensor
    """e_low over the part of the bound that is known beforehand."""
    high: Tensor
    bound: Tensor
    chosen: Tensor
    sampled: Tensor
    not_finite: int = 0
    jump: float = 0.0
    """The largest difference between the precisions that was no rounding (a sign, a sort), and allowed no error."""

    @property
    def broken(self) -> bool:
        """Some settled pair exceeds its bound, and the typical one of its sample."""
        typical = self.bound[self.sampled].median()
        return self.not_finite > 0 or bool((self.high > torch.maximum(self.bound, typical)).any())

    @property
    def open(self) -> Tensor:
        """Elements with a suspect that float64 has not seen."""
        waiting = self.suspicion.max(dim=1).values > PROMISED - 1
        waiting[self.chosen] = False
        return waiting

    @property
    def suspects(self) -> int:
        """Pairs that may exceed ten bounds, by their low precision alone."""
        return int((self.suspicion > PROMISED - 1).sum())

    @property
    def left(self) -> float:
        """The largest low-precision error float64 was not asked about although it might have been."""
        rest = self.low[self.open]
        return float(rest.max()) if rest.numel() else 0.0


def settle(
    subject: Subject,
    case: int,
    elements: Elements,
    low: Mapping[int, Tensor],
    *,
    spreads: Mapping[int, float],
    everywhere: bool = False,
    seen: Mapping[int, list[Tensor]] | None = None,
) -> dict[int, Ruling]:
    """Runs float64 at the sample, then at suspects, the worst first, until every output is cleared or broken.

    ``low`` holds the errors of the low precision [elements, rows], for every output; ``seen`` the outputs themselves at
    some elements, which are not computed again there.
    """
    sample = sample_of(elements.count, everywhere=everywhere)
    caps = _Caps(subject, spreads, RoundingFloors(subject, case, elements, "high"))
    rulings = {
        index: _screen(subject, case, elements=elements, index=index, errors=low[index], sample=sample, caps=caps)
        for index in subject.tested
    }
    run = partial(_run, subject, case, elements=elements, rulings=rulings, caps=caps, seen=seen or {})
    run(numbers=sample, sampled=True)
    step = SAMPLED
    while True:
        undecided = [ruling for ruling in rulings.values() if bool(ruling.open.any()) and not ruling.broken]
        if not undecided:
            return rulings
        score = torch.stack([ruling.suspicion.max(dim=1).values * ruling.open for ruling in undecided]).amax(dim=0)
        batch = score.argsort(descending=True)[:step]
        run(numbers=batch[score[batch] > 0], sampled=False)
        step *= 2


def sample_of(count: int, *, everywhere: bool) -> Tensor:
    """The numbers of the elements that are settled in any case."""
    if count <= 2 * SAMPLED or everywhere:
        return torch.arange(count)
    return torch.linspace(0, count - 1, SAMPLED).round().long()


class _Caps:
    """Bounds too large to be believed are cut down to what perturbed float64 copies show."""

    def __init__(self, subject: Subject, spreads: Mapping[int, float], floors: RoundingFloors) -> None:
        self._subject, self._spreads, self._floors = subject, spreads, floors

    def cut(self, index: int, bound: Tensor, numbers: Tensor) -> tuple[Tensor, float]:
        """The bound [elements, rows] and the largest jump: taken out of it, or what every copy does."""
        if not bool((bound > suspicious(self._subject, self._spreads.get(index, 0.0))).any()):
            return bound, 0.0
        worst, spread = int(numbers[bound.max(dim=1).values.argmax()]), self._spreads.get(index, 0.0)
        limit = self._floors.jump_limit(index, bound, worst).expand_as(bound)
        jumps = bound[bound > limit]
        jump = float(jumps.max()) if jumps.numel() else 0.0
        # A step in a coarser dtype inside (autocast) is no jump, though no error is allowed for it.
        coarse = JUMP * torch.finfo(self._subject.lowest or self._subject.low_dtype).eps * spread
        moves = float(limit.max()) / (2 * JUMP)
        if moves > max(BROKEN_BAND * spread, coarse):
            # The copies themselves jump: every input lies at an edge (a hard cutoff at the distance of a lattice).
            return torch.minimum(bound, limit), max(jump, moves)
        return torch.minimum(bound, limit), jump if jump > coarse else 0.0


def _screen(
    subject: Subject, case: int, *, elements: Elements, index: int, errors: Tensor, sample: Tensor, caps: _Caps
) -> Ruling:
    rep = subject.output(index)
    some = subject.chunks(subject.cases[case], elements)
    known = torch.cat([carried_rounding(subject, rep, few, case=case, index=index) for few in some])
    known, jump = caps.cut(index, known, torch.arange(elements.count))
    if len(subject.cases) == 1:
        # The bound a pair is judged by is at least the typical one, which is at least the typical r(x).
        known = torch.maximum(known, known[sample].median())
    suspicion = torch.where(errors == 0, torch.zeros_like(errors), errors / known)
    empty = errors.new_zeros(0, errors.shape[1])
    none = torch.zeros(0, dtype=torch.long)
    # What is not finite in the low precision is a verdict already.
    return Ruling(errors, torch.nan_to_num(suspicion, nan=0.0), empty, empty, none, none.bool(), jump=jump)


def _run(
    subject: Subject,
    case: int,
    *,
    elements: Elements,
    numbers: Tensor,
    rulings: dict[int, Ruling],
    caps: _Caps,
    seen: Mapping[int, list[Tensor]],
    sampled: bool,
) -> None:
    """Adds float64 at some elements to the rulings of every output."""
    leaves, parts = subject.cases[case], {index: ([], []) for index in rulings}  # type: ignore[var-annotated]
    start = 0
    for some in subject.chunks(leaves, elements[numbers]):
        known = [seen.get(number) for number in numbers[start : start + some.count].tolist()]
        start += some.count
        high = subject.over(leaves, some, "high")
        if None in known:
            low = subject.over(leaves, some, "low")
        else:
            low = [torch.stack(several) for several in zip(*[one for one in known if one is not None], strict=True)]
        for index, ruling in rulings.items():
            rep = subject.output(index)
            carried = carried_rounding(subject, rep, some, case=case, index=index)
            here = subject.base(case, "high")[index]
            parts[index][0].append(error_norms(subject, rep, some, here=here, there=high[index]))
            parts[index][1].append(rounding_there(subject, rep, some, low=low[index], high=high[index]) + carried)
            ruling.not_finite += int((~torch.isfinite(high[index])).sum())
    for index, ruling in rulings.items():
        error, whole = (torch.cat(several) for several in parts[index])
        bound, jump = caps.cut(index, whole, numbers)
        ruling.jump = max(ruling.jump, jump)
        ruling.high, ruling.bound = torch.cat([ruling.high, error]), torch.cat([ruling.bound, bound])
        ruling.chosen = torch.cat([ruling.chosen, numbers])
        ruling.sampled = torch.cat([ruling.sampled, torch.full((len(numbers),), sampled)])
