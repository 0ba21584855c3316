"""The heart of an audit: |f(gx) - rho(g) f(x)| for many x and g in two precisions, and the rounding to expect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.audits.symmetry.copies import duplicate
from assay.audits.symmetry.elements import Elements
from assay.audits.symmetry.groups import Group
from assay.audits.symmetry.layout import jittered
from assay.audits.symmetry.representations import Representation
from assay.audits.symmetry.subject import Leaves, Subject, difference, exact
from assay.seeding import torch_generator


@dataclass(frozen=True)
class Errors:
    """Errors of one output over pairs (input, element); all tensors are [pairs].

    ``low`` and ``high`` are |f(gx) - rho f(x)| in the low precision and in float64; ``bound`` is r(gx) + r(x) with
    r = |f_low - f_high|, which by the triangle inequality no exactly equivariant model exceeds (to float64 rounding).
    ``estimated`` bounds come from perturbed weights instead, for a model that does not run in float64.
    """

    output: str
    low: Tensor
    high: Tensor | None
    bound: Tensor
    cluster: Tensor
    element: Tensor
    spread: float
    not_finite: int
    estimated: bool

    @property
    def best(self) -> Tensor:
        """Errors in the most precise run there is."""
        return self.low if self.high is None else self.high

    @property
    def relative(self) -> Tensor:
        """Errors of the most precise run, relative to how far outputs of unrelated inputs lie apart."""
        return self.best / self.spread if self.spread else self.best


def measure(subject: Subject, draw: Callable[[Group], Elements], *, spreads: dict[int, float]) -> list[Errors]:
    """Errors of every declared output at the elements that ``draw`` gives for each case."""
    collected: dict[int, list[tuple[Tensor, Tensor | None, Tensor, Tensor, Tensor, int]]] = {
        i: [] for i in subject.tested
    }
    estimated, first_row = subject.high is None or _silently_low(subject), 0
    for case, leaves in enumerate(subject.cases):
        elements = draw(subject.group(case))
        rows = subject.batch(case)
        low_there = subject.over(leaves, elements, "low")
        high_there = subject.over(leaves, elements, "high") if subject.high is not None else None
        floors = _perturbed_floor(subject, case) if estimated else None
        for index in subject.tested:
            low, high, bound = compare(
                subject,
                subject.output(index),
                elements,
                case,
                index,
                low_there[index],
                None if high_there is None else high_there[index],
            )
            if floors is not None:
                bound = floors[index].unsqueeze(0).expand(low.shape)
            assert bound is not None
            cluster = torch.arange(first_row, first_row + rows).expand(elements.count, rows)
            number = torch.arange(elements.count).unsqueeze(1).expand(elements.count, rows)
            bad = int((~torch.isfinite(low_there[index])).sum())
            bad += 0 if high_there is None else int((~torch.isfinite(high_there[index])).sum())
            flat = [t.reshape(-1) for t in (low, bound, cluster, number)]
            collected[index].append(
                (flat[0], None if high is None else high.reshape(-1), flat[1], flat[2], flat[3], bad)
            )
        first_row += rows
    return [
        Errors(
            output=subject.output_names[index],
            low=torch.cat([one[0] for one in pieces]),
            high=None if pieces[0][1] is None else torch.cat([one[1] for one in pieces if one[1] is not None]),
            bound=torch.cat([one[2] for one in pieces]),
            cluster=torch.cat([one[3] for one in pieces]),
            element=torch.cat([one[4] for one in pieces]),
            spread=spreads.get(index, 0.0),
            not_finite=sum(one[5] for one in pieces),
            estimated=estimated,
        )
        for index, pieces in collected.items()
    ]


def compare(
    subject: Subject, rep: Representation, elements: Elements, case: int, index: int, low: Tensor, high: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Errors in both precisions and the rounding bound of one output that is supposed to transform as ``rep``."""
    low_error = _gap(subject, rep, elements, subject.base(case, "low")[index], low)
    if high is None:
        return low_error, None, None
    high_error = _gap(subject, rep, elements, subject.base(case, "high")[index], high)
    return low_error, high_error, _rounding(subject, rep, elements, index, case, low, high)


def output_spreads(subject: Subject) -> dict[int, float]:
    """How far outputs of unrelated inputs lie apart, per declared output.

    Errors are divided by this and not by the norm of the output: behind a large constant every error looks small.
    """
    precision = subject.precisions[-1]
    here = subject.base(0, precision)
    other = subject.values(jittered(subject, subject.cases[0], torch_generator(subject.seed, "spread")), precision)
    spreads = {}
    for index in subject.tested:
        y = here[index].to(torch.complex128) if here[index].is_complex() else here[index].double()
        if subject.rows and len(y) > 1:
            centred = (y - y.mean(dim=0)).abs().reshape(len(y), -1)
            spreads[index] = float((2 * centred.square().sum(dim=1).mean()).sqrt())
        elif other[index].shape == y.shape:
            spreads[index] = float(torch.linalg.vector_norm(difference(other[index], y)))
        else:
            spreads[index] = float(torch.linalg.vector_norm(y))
    return spreads


def norms(gap: Tensor, rows: bool) -> Tensor:
    """Norms over everything but the element axis and, with a batch axis, the rows: [n, rows]."""
    gap = gap.abs().double()
    flat: Tensor = torch.linalg.vector_norm(gap.reshape(*gap.shape[: 1 + rows], -1), dim=-1)
    return flat.reshape(len(gap), -1)


def acted(rep: Representation, elements: Elements, x: Tensor) -> Tensor:
    """rho(g) x for every element."""
    return rep.act(elements, x.expand(elements.count, *x.shape))


def _gap(subject: Subject, rep: Representation, elements: Elements, here: Tensor, there: Tensor) -> Tensor:
    gap = difference(there, acted(rep, elements, here))
    mask = rep.mask(elements, there)
    return norms(gap if mask is None else gap * mask, subject.rows)


def _rounding(
    subject: Subject, rep: Representation, elements: Elements, index: int, case: int, low: Tensor, high: Tensor
) -> Tensor:
    """r(gx) + r(x), the second one carried to where rho(g) puts it."""
    here_low, here_high = subject.base(case, "low")[index], subject.base(case, "high")[index]
    moved = difference(acted(rep, elements, here_low), acted(rep, elements, here_high))
    there, mask = difference(low, high), rep.mask(elements, high)
    if mask is not None:
        moved, there = moved * mask, there * mask
    return norms(there, subject.rows) + norms(moved, subject.rows)


def _silently_low(subject: Subject) -> bool:
    """Whether the float64 copy computes in low precision all the way: same output, to the last bit of the low dtype."""
    low, high = subject.base(0, "low"), subject.base(0, "high")
    floating = [index for index in subject.tested if high[index].is_floating_point()]
    return bool(floating) and all(bool((low[index] == high[index]).all()) for index in floating)


def _perturbed_floor(subject: Subject, case: int, draws: int = 4) -> list[Tensor]:
    """For each output and row, how far the output moves if weights and inputs move by the rounding of the low dtype.

    This mimics rounding at every layer; it is an estimate, not a bound, and verdicts that rest on it say so.
    """
    eps = torch.finfo(subject.low_dtype).eps
    generator = torch_generator(subject.seed, "perturbed", case)
    worst: list[Tensor] = []
    for _ in range(draws):
        model = duplicate(subject.low)
        with torch.no_grad():
            for weight in [*model.parameters(), *model.buffers()]:
                if weight.is_floating_point():
                    weight.mul_(1 + eps * _uniform(weight, generator))
        nudged: Leaves = [
            leaf * (1 + eps * _uniform(leaf, generator))
            if isinstance(leaf, Tensor) and leaf.is_floating_point()
            else leaf
            for leaf in subject.cases[case]
        ]
        moved = [exact(y) for y in subject.run(nudged, model, subject.low_dtype)]
        here = subject.base(case, "low")
        step = [norms(difference(m, h).unsqueeze(0), subject.rows)[0] for m, h in zip(moved, here, strict=True)]
        worst = step if not worst else [torch.maximum(a, b) for a, b in zip(worst, step, strict=True)]
    return [2 * one for one in worst]


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return (2 * torch.rand(like.shape, generator=generator, dtype=torch.float64) - 1).to(like)
