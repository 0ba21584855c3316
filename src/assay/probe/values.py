"""Numbers of tensors without surprises: exact copies, differences, spreads, and other inputs of the same kind."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.probe.copies import cast


def exact(x: Tensor) -> Tensor:
    """The same values on the CPU, in float64 (complex128) if they are floating (complex)."""
    x = x.detach().cpu()
    return cast(x.clone() if x.is_inference() else x, torch.float64)


def is_continuous(x: object) -> bool:
    """Whether something is a tensor of real or complex numbers, which noise can move and derivatives exist of."""
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


def has_numbers(x: Tensor) -> bool:
    """Whether a tensor holds numbers of its own that can be copied: a nested one and one inside vmap or jacrev do not.

    >>> has_numbers(torch.ones(2))
    True
    """
    return not x.is_nested and not torch._C._functorch.is_functorch_wrapped_tensor(x)


def difference(a: Tensor, b: Tensor) -> Tensor:
    """a - b, also for integers and booleans; complex numbers stay complex."""
    return a - b if a.is_complex() or b.is_complex() else a.double() - b.double()


def exact_spread(leaf: Tensor) -> float:
    """Standard deviation of the entries; their magnitude if they are all alike, 1 if they are all zero or none."""
    value = exact(leaf) if is_continuous(leaf) else leaf.detach().double()
    spread = float(value.std()) if value.numel() > 1 else 0.0
    return spread or (float(value.abs().max()) if value.numel() else 0.0) or 1.0


def largest(x: Tensor) -> float:
    """The largest finite magnitude; booleans count as 0 and 1, nothing as 0."""
    value = x.abs() if x.is_complex() else x.double().abs()
    return float(torch.nan_to_num(value).max()) if x.numel() else 0.0


def jittered(leaves: list[Any], generator: torch.Generator) -> list[Any]:
    """Other inputs of the same kind: noise as large as the spread of the input itself; integers stay."""
    changed: list[Any] = []
    for leaf in leaves:
        if is_continuous(leaf):
            noise = torch.randn(leaf.shape, generator=generator, dtype=exact(leaf).dtype)
            changed.append((exact(leaf) + float(exact_spread(leaf)) * noise).to(leaf.dtype))
        else:
            changed.append(leaf)
    return changed
