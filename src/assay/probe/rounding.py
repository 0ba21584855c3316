"""What rounding does to a model: two precisions of it, or copies whose weights and inputs moved by the last bit."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from assay.probe.copies import duplicate
from assay.probe.subject import Leaves, Probe
from assay.probe.values import difference, exact, is_continuous
from assay.seeding import torch_generator

VANISHES = math.sqrt(torch.finfo(torch.float64).eps)
"""Below this share of an error something is float64 rounding: no defect leaves it by chance."""


def norms(gap: Tensor, rows: bool) -> Tensor:
    """Norms over everything but the element axis and, with a batch axis, the rows: [n, rows]."""
    gap = gap.abs().double()
    flat: Tensor = torch.linalg.vector_norm(gap.reshape(*gap.shape[: 1 + rows], -1), dim=-1)
    return flat.reshape(len(gap), -1)


def silently_low(probe: Probe, outputs: Iterable[int]) -> bool:
    """Whether the float64 copy computes in low precision all the way: same output, to the last bit of the low dtype."""
    low, high = probe.base(0, "low"), probe.base(0, "high")
    floating = [index for index in outputs if is_continuous(high[index])]
    return bool(floating) and all(bool((low[index] == high[index]).all()) for index in floating)


def perturbed_floor(probe: Probe, case: int, *, rows: bool, draws: int = 4) -> list[Tensor]:
    """For each output and row, how far the output moves if weights and inputs move by the rounding of the low dtype.

    This mimics rounding at every layer; it is an estimate, not a bound, and verdicts that rest on it say so.
    """
    eps = torch.finfo(probe.low_dtype).eps
    generator = torch_generator(probe.seed, "perturbed", case)
    worst: list[Tensor] = []
    for _ in range(draws):
        model = duplicate(probe.low)
        with torch.no_grad():
            for weight in [*model.parameters(), *model.buffers()]:
                if weight.is_floating_point():
                    weight.mul_(1 + eps * _uniform(weight, generator))
        nudged: Leaves = [
            leaf * (1 + eps * _uniform(leaf, generator))
            if isinstance(leaf, Tensor) and leaf.is_floating_point()
            else leaf
            for leaf in probe.cases[case]
        ]
        moved = [exact(y) for y in probe.run(nudged, model, probe.low_dtype)]
        here = probe.base(case, "low")
        step = [norms(difference(m, h).unsqueeze(0), rows)[0] for m, h in zip(moved, here, strict=True)]
        worst = step if not worst else [torch.maximum(a, b) for a, b in zip(worst, step, strict=True)]
    return [2 * one for one in worst]


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return (2 * torch.rand(like.shape, generator=generator, dtype=torch.float64) - 1).to(like)
