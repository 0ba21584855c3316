"""Where the samples of a batch live in a tensor inside a model: change one sample and see what changes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

ROUNDINGS = 64
"""Units in the last place of the largest value: sums over thousands of terms in another order differ by less."""
Layout = Literal["batch first", "batch second", "batch-major rows", "token-major rows"]


def find_layout(before: Tensor, after: Tensor, samples: int) -> Layout | None:
    """Where sample 0 of a batch of ``samples`` lives, given the tensor before and after that sample was changed."""
    if before.shape != after.shape or not before.ndim or not before.numel():  # an expert that was given nothing
        return None
    changed = _changed(before, after)
    candidates: list[tuple[Layout, Tensor]] = []
    if before.shape[0] == samples:
        candidates.append(("batch first", changed[1:]))
    if before.ndim > 2 and before.shape[1] == samples:
        candidates.append(("batch second", changed[:, 1:]))
    if before.shape[0] % samples == 0:
        tokens = before.shape[0] // samples
        candidates.append(("batch-major rows", changed[tokens:]))
        candidates.append(("token-major rows", changed.reshape(tokens, samples, -1)[:, 1:]))
    return next((layout for layout, elsewhere in candidates if not bool(elsewhere.any())), None)


def _changed(before: Tensor, after: Tensor) -> Tensor:
    """Where two tensors differ by more than rounding: experts that run on other rows sum in another order."""
    if not (before.is_floating_point() or before.is_complex()):
        return before != after
    sizes = before.abs()
    finite = sizes[sizes.isfinite()]
    allowed = ROUNDINGS * torch.finfo(before.dtype).eps * float(finite.max()) if len(finite) else 0.0
    return ~((before - after).abs() <= allowed) & ~((before == after) | (before.isnan() & after.isnan()))


def other_first_sample(x: Tensor) -> Tensor | None:
    """``x`` with its first sample replaced by a different one of the batch, or None if all are the same."""
    different = (x != x[:1]).reshape(len(x), -1).any(1).nonzero()
    if not len(different):
        return None
    changed = x.clone()
    changed[0] = x[int(different[0])]
    return changed
