"""Noise shaped like a tensor, real or complex, drawn in float64 on the CPU so that every device sees the same."""

from __future__ import annotations

import torch
from torch import Tensor


def normal(like: Tensor, generator: torch.Generator) -> Tensor:
    """Gaussian numbers with the shape, device and dtype of ``like``; float64 for integers.

    >>> normal(torch.zeros(2, dtype=torch.complex64), torch.Generator().manual_seed(0)).dtype
    torch.complex64
    """
    drawn = torch.randn(like.shape, generator=generator, dtype=_exact_dtype(like))
    return drawn.to(like) if like.is_floating_point() or like.is_complex() else drawn


def uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers between -1 and 1, in both parts of complex ones, with the shape, device and dtype of ``like``."""
    drawn = torch.rand(like.shape, generator=generator, dtype=_exact_dtype(like))
    return drawn.mul_(2).sub_(_middle(like)).to(like)  # in place: a network has millions of them


def _exact_dtype(like: Tensor) -> torch.dtype:
    return torch.complex128 if like.is_complex() else torch.float64


def _middle(like: Tensor) -> complex | float:
    return 1 + 1j if like.is_complex() else 1.0
