"""Layer-level feedback: every weight sends its error back by a route of its own instead of its transpose.

Products with a weight are replaced for the duration of one step and look their weight up by identity (``places`` lists
them). This reaches weights that no layer of their own holds (``in_proj_weight`` and ``out_proj`` of
``nn.MultiheadAttention``), slices and transposes of a weight, and weights shared by several modules.

The operation itself stays PyTorch's own, forwards and backwards. A matrix route exchanges one thing: of the tensors
autograd saves for the backward pass, the weight gives way to the feedback matrix, which enters only what is sent to the
input. A direct route cuts the input off and answers for it. The gradient of the weight is the usual one either way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

Operation = Callable[[Tensor, Tensor], Tensor]
"""A product of (input, weight), bias and settings filled in."""


class Route(Protocol):
    """How one use of a weight sends its error to its input."""

    def run(self, operation: Operation, x: Tensor, weight: Tensor) -> Tensor:
        """``operation(x, weight)``, whose backward pass sends the error by this route."""


FindRoute = Callable[[Tensor, Tensor], Route | None]
"""The route for (weight, input), or None to leave this use to autograd."""
LOW = (torch.float32, torch.float16, torch.bfloat16)
PRODUCTS = ("AddmmBackward0", "MmBackward0")
RESHAPES = ("ViewBackward0", "UnsafeViewBackward0")


def run_with_matrix(operation: Operation, x: Tensor, weight: Tensor, *, matrix: Tensor, sends: Callable[[], None]
                    ) -> Tensor:
    """``operation(x, weight)`` with ``matrix`` in the place of the weight in the backward pass; it calls ``sends``.

    Where the operation saves no tensor that is the weight's memory (it copies the weight first), the error to the input
    is computed from the same operation with the matrix, which costs its forward pass again.
    """
    # Autocast itself leaves float64 and complex numbers alone.
    if torch.is_autocast_enabled(weight.device.type) and weight.dtype in LOW:
        weight = weight.to(torch.get_autocast_dtype(weight.device.type))
    if matrix.requires_grad or matrix.dtype is not weight.dtype:
        matrix = matrix.detach().to(weight.dtype)
    if matrix.stride() != weight.stride():  # a weight in channels-last order, say
        matrix = torch.empty_like(weight.detach()).copy_(matrix)
    memory, offset, found = weight.data_ptr(), matrix.storage_offset(), False

    def save(tensor: Tensor) -> Tensor | Callable[[], Tensor]:
        nonlocal found
        if tensor.data_ptr() != memory:
            return tensor
        found = True
        exchanged = matrix.as_strided(tensor.shape, tensor.stride(), offset)

        def load() -> Tensor:
            sends()
            return exchanged

        return load

    with saved_tensors_hooks(save, _load_saved):
        result = operation(x, weight)
    if found or not result.requires_grad:
        return result
    return _run_twice(operation, x, weight, matrix=matrix, sends=sends)


def run_linear(x: Tensor, weight: Tensor, bias: Tensor | None, unpack: Callable[[Any], Tensor]) -> Tensor | None:
    """``linear(x, weight, bias)`` with what ``unpack`` gives in the place of W^T, or None where that does not fit.

    One hook on the one tensor concerned: on a small model the general way costs a quarter of a step.
    """
    if _HOOKS(False) is not None or _AUTOCAST():  # a checkpoint keeps its own book; autocast saves a copy
        return None
    result: Tensor = _LINEAR(x, weight, bias)
    node: Any = result.grad_fn
    kind = type(node).__name__
    if kind not in PRODUCTS:
        node = node.next_functions[0][0] if kind in RESHAPES else None
        if type(node).__name__ not in PRODUCTS:
            return None
    node._raw_saved_mat2.register_hooks(_forget, unpack)
    return result


def run_direct(operation: Operation, x: Tensor, weight: Tensor, answer: Callable[[Tensor], Tensor]) -> Tensor:
    """``operation(x, weight)`` with ``answer(x)`` as the gradient of ``x``."""
    result: Tensor = Direct.apply(  # type: ignore[no-untyped-call]
        x, operation(x.detach(), weight), lambda value, _: answer(value))
    return result


_HOOKS = torch._C._autograd._top_saved_tensors_default_hooks
_AUTOCAST = torch._C._is_any_autocast_enabled
_LINEAR = torch.nn.functional.linear  # PyTorch's own, whatever is in its place later


def _run_twice(operation: Operation, x: Tensor, weight: Tensor, *, matrix: Tensor, sends: Callable[[], None]) -> Tensor:
    def answer(x: Tensor, error: Tensor) -> Tensor:
        sends()
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            return torch.autograd.grad(operation(again, matrix), again, error)[0]

    result: Tensor = Direct.apply(x, operation(x.detach(), weight), answer)  # type: ignore[no-untyped-call]
    return result


class Direct(torch.autograd.Function):
    """Gives ``result`` its gradient unchanged and ``x`` what ``answer`` makes of x and the error."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, result: Tensor, answer: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        ctx.answer = answer
        ctx.save_for_backward(x)
        if result._is_view():  # whoever changes the result in place next may not do so to a view made here
            return result.clone()
        ctx.mark_dirty(result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        return ctx.answer(*ctx.saved_tensors, gradients[0]), gradients[0], None


def _load_saved(saved: Tensor | Callable[[], Tensor]) -> Tensor:
    return saved if isinstance(saved, Tensor) else saved()


def _forget(tensor: Tensor) -> None:
    """Nothing of the weight needs to be kept."""
