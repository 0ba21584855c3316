"""Another device, played on the CPU: tensors that compute for real, and refuse to meet a tensor of this machine.

Where there is no accelerator, torch's own fake tensors neither run backward nor give numbers. A tensor ``Away`` claims
to live on the device ``meta`` (which autograd serves without a driver) and carries its numbers along; under
``elsewhere()`` whatever is made on or moved to that device is such a tensor. Meeting an ordinary tensor that is more
than a number is the error that a GPU would raise, and so is ``.numpy()``. Results can be compared with the CPU's bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

THERE = torch.device("meta")
MOVES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default, torch.ops.aten._local_scalar_dense.default)
"""What may touch both devices: copies from one to the other, and a number read out."""


class Away(Tensor):
    """A tensor that says it is on the other device; ``inside`` has its numbers."""

    inside: Tensor

    @staticmethod
    def __new__(cls, inside: Tensor) -> Away:
        made: Away = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inside.size(), strides=inside.stride(), storage_offset=inside.storage_offset(), dtype=inside.dtype,
            layout=inside.layout, requires_grad=inside.requires_grad, device=THERE,
        )
        made.inside = inside
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Away({self.inside!r})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class Dispatched(TorchDispatchMode):
    """Operations, below autograd."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class Called(TorchFunctionMode):
    """Functions that never become an operation: numbers written out, addresses."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.tensor and kwargs.get("device") is not None and torch.device(kwargs["device"]) == THERE:
            del kwargs["device"]
            return torch.tensor(*args, **kwargs).to(THERE)
        if func is Tensor.new_tensor and isinstance(args[0], Away):
            return args[0].inside.new_tensor(*args[1:], **kwargs).to(THERE)
        if func in (Tensor.data_ptr, Tensor.tolist) and isinstance(args[0], Away):
            return func(args[0].inside)
        return func(*args, **kwargs)


@contextmanager
def elsewhere() -> Iterator[torch.device]:
    """While it lasts, tensors made on or moved to the device it gives are real ones that live there."""
    autocast = torch.is_autocast_enabled
    torch.is_autocast_enabled = lambda kind="cpu": kind != THERE.type and autocast(kind)  # it knows no such device
    swaps = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)  # assigning to .data would leave the numbers behind
    try:
        with Dispatched(), Called():
            yield THERE
    finally:
        torch.is_autocast_enabled = autocast
        torch.__future__.set_swap_module_params_on_conversion(swaps)


def here(value: Tensor) -> Tensor:
    """The numbers of a tensor, wherever it is."""
    return value.detach().inside if isinstance(value, Away) else value


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    away, near = [], []

    def look(value: Any) -> Any:
        if isinstance(value, Away):
            away.append(value)
            return value.inside
        if isinstance(value, Tensor) and value.dim() > 0:
            near.append(value)
        return value

    plain, named = tree_map(look, args), tree_map(look, kwargs)
    device = named.pop("device", None)
    asked = torch.device(device) if device is not None else None
    if away and near and func not in MOVES:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found one elsewhere and one on the CPU: {func}, "
            f"{[tuple(value.shape) for value in near]}")
    stays = (bool(away) and func is not torch.ops.aten._to_copy.default) if asked is None else asked == THERE
    if asked is None and func is torch.ops.aten._to_copy.default:
        stays = bool(away)
    if asked is not None:
        named["device"] = torch.device("cpu")
    result = func(*plain, **named)
    if func is torch.ops.aten.copy_.default:
        return args[0]
    written = _written(func, args, kwargs, plain, named)

    def wrap(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        for inner, outer in written:
            if value is inner:
                return outer
        return Away(value) if stays else value

    return tree_map(wrap, result)


def _written(func: Any, args: Any, kwargs: Any, plain: Any, named: Any) -> list[tuple[Any, Any]]:
    """Inner and outer tensors of arguments that the operation writes to and returns."""
    found = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            outer = kwargs.get(argument.name, args[index] if index < len(args) else None)
            inner = named.get(argument.name, plain[index] if index < len(plain) else None)
            pairs = zip(inner, outer, strict=True) if isinstance(outer, list | tuple) else [(inner, outer)]
            found += [(a, b) for a, b in pairs if isinstance(b, Tensor)]
    return found
