"""The conditions under which two models are compared: inputs as given, at the edges, and after a step of training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from assay.audits.same.quantities import Kind, Quantities, Quantity
from assay.probe.values import is_continuous
from assay.seeding import torch_generator

AGAIN, STRIDED, AFTER_STEP = "the same call again", "non-contiguous inputs", "after a step of training"
EXTREME, ONE_ROW, NO_ROW = "large, tiny and repeated rows", "one row", "no row"
SECOND = "second derivatives"
PARTS = (AGAIN, STRIDED, EXTREME, ONE_ROW, NO_ROW, AFTER_STEP, SECOND)
"""What a candidate need not claim: the words of ``without``."""
LARGE, TINY = 100.0, 0.01
STEP = 0.01
"""A step of training moves each weight by this share of its norm, against the gradient."""


def rows_of(leaves: list[Any]) -> int:
    """Size of axis 0 of the first tensor."""
    return next((len(leaf) for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim), 1)


def edges(leaves: list[Any]) -> list[Any]:
    """Rows that are large, tiny and all the same, in one batch; with fewer than three rows all are large."""
    size = rows_of(leaves)
    third = size // 3

    def edge(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.ndim or len(leaf) != size:
            return leaf
        if third == 0:
            return leaf * LARGE if is_continuous(leaf) else leaf
        new = leaf.clone()
        if is_continuous(leaf):
            new[:third] *= LARGE
            new[third : 2 * third] *= TINY
        new[2 * third :] = leaf[:1]
        return new

    return [edge(leaf) for leaf in leaves]


def first_rows(leaves: list[Any], count: int) -> list[Any]:
    """The first ``count`` rows of everything that has the batch axis."""
    size = rows_of(leaves)
    return [leaf[:count] if isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == size else leaf for leaf in leaves]


def non_contiguous(leaves: list[Any]) -> list[Any]:
    """The same values in another order of memory."""

    def strided(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.ndim or leaf.numel() < 2:
            return leaf
        if leaf.ndim == 1:
            return torch.stack([leaf, leaf], 1)[:, 0]
        return leaf.transpose(0, -1).contiguous().transpose(0, -1)

    return [strided(leaf) for leaf in leaves]


def nudged_leaves(leaves: list[Any], dtype: torch.dtype, seed: int) -> list[Any]:
    """Inputs moved by one rounding of ``dtype``, in float64."""
    generator = torch_generator(seed, "nudged inputs")
    return [_nudged(leaf, dtype, generator) if is_continuous(leaf) else leaf for leaf in leaves]


def nudge_weights(model: nn.Module, dtype: torch.dtype, seed: int) -> None:
    """Moves weights and buffers of a float64 model by one rounding of ``dtype``."""
    generator = torch_generator(seed, "nudged weights")
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if is_continuous(tensor):
                tensor.copy_(_nudged(tensor, dtype, generator))


def _nudged(x: Tensor, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    eps = torch.finfo(dtype).eps
    uniform = 2 * torch.rand(x.shape, generator=generator, dtype=torch.float64) - 1
    wide = x.detach().to(torch.complex128 if x.is_complex() else torch.float64)
    return wide * (1 + eps * uniform.to(x.device))


def step_weights(reference: nn.Module, gradients: Quantities) -> dict[str, Tensor]:
    """New values of the reference's weights after one step against the gradient, by name."""
    new = {}
    for name, weight in reference.named_parameters():
        gradient = gradients.get(Quantity(Kind.GRADIENT, name))
        if gradient is None or not float(gradient.norm()):
            continue
        size = float(weight.detach().norm()) or 1.0
        moved = weight.detach().double() - STEP * size / float(gradient.norm()) * gradient.to(weight.device)
        new[name] = moved.to(weight.dtype)
    return new


def put(model: nn.Module, values: dict[str, Tensor], names: dict[str, str] | None = None) -> bool:
    """Writes values into the parameters of a model; whether every value found its parameter."""
    own = {(names or {}).get(name, name): p for name, p in model.named_parameters()}
    if any(name not in own for name in values):
        return False
    with torch.no_grad():
        for name, value in values.items():
            own[name].copy_(value)
    return True
