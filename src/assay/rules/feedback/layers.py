"""Layer-level feedback: every weight sends its error back by a route of its own instead of its transpose.

``torch.nn.functional.linear``, the convolutions and matrix products are replaced for the duration of one step and look
their weight up by identity. This reaches weights that no layer of their own holds (``in_proj_weight`` and ``out_proj``
of ``nn.MultiheadAttention``), slices and transposes of a weight, and weights shared by several modules.

The operation itself stays PyTorch's own, forwards and backwards. A matrix route exchanges one thing: of the tensors
autograd saves for the backward pass, the weight gives way to the feedback matrix, which enters only what is sent to the
input. A direct route cuts the input off and answers for it. The gradient of the weight is the usual one either way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch.nn.functional as F
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

_ONE_AT_A_TIME = threading.RLock()  # the functions are global: two rules in two threads take turns


@contextmanager
def feedback_layers(find: FindRoute) -> Iterator[None]:
    """Inside, linear layers, convolutions and products with a weight send errors by ``find``'s routes.

    The backward pass belongs inside too: a checkpointed model runs parts of its forward pass again there.
    """
    with _ONE_AT_A_TIME:
        places = _replacements(find)
        originals = [(owner, name, owner.__dict__.get(name, _MISSING)) for owner, name, _ in places]
        try:
            for owner, name, replacement in places:
                setattr(owner, name, replacement)
            yield
        finally:
            for owner, name, original in originals:
                if original is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)


_MISSING = object()


def run_with_matrix(operation: Operation, x: Tensor, weight: Tensor, matrix: Tensor, sends: Callable[[], None]
                    ) -> Tensor:
    """``operation(x, weight)`` with ``matrix`` in the place of the weight in the backward pass; it calls ``sends``.

    Where the operation saves no tensor that is the weight's memory (an operation that copies it first), nothing is
    exchanged and ``sends`` is never called: the coverage report then says that the weight was not reached.
    """
    weight = _as_autocast(weight)
    matrix = matrix.detach().to(weight.dtype)
    if matrix.stride() != weight.stride():  # a weight in channels-last order, say
        matrix = torch.empty_like(weight.detach()).copy_(matrix)
    place, offset = weight.data_ptr(), matrix.storage_offset()

    def save(tensor: Tensor) -> Tensor | Callable[[], Tensor]:
        if tensor.data_ptr() != place:
            return tensor
        exchanged = matrix.as_strided(tensor.shape, tensor.stride(), offset)

        def load() -> Tensor:
            sends()
            return exchanged

        return load

    def load_saved(saved: Tensor | Callable[[], Tensor]) -> Tensor:
        return saved if isinstance(saved, Tensor) else saved()

    with saved_tensors_hooks(save, load_saved):
        return operation(x, weight)


def run_direct(operation: Operation, x: Tensor, weight: Tensor, answer: Callable[[Tensor], Tensor]) -> Tensor:
    """``operation(x, weight)`` with ``answer(x)`` as the gradient of ``x``."""
    result: Tensor = _Direct.apply(x, operation(x.detach(), weight), answer)  # type: ignore[no-untyped-call]
    return result


def _replacements(find: FindRoute) -> list[tuple[Any, str, Callable[..., Tensor]]]:
    matmul = torch.matmul

    def routed_matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: A002
        if out is None and isinstance(input, Tensor) and isinstance(other, Tensor):
            if other.ndim == 2 and (route := find(other, input)) is not None:
                return route.run(matmul, input, other)
            if input.ndim == 2 and other.ndim == 2 and (route := find(input, other)) is not None:
                return route.run(lambda x, weight: matmul(weight, x), other, input)
        return matmul(input, other) if out is None else matmul(input, other, out=out)

    def routed(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def operation(input: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # noqa: A002
            route = find(weight, input)
            if route is None:
                return original(input, weight, *args, **kwargs)
            return route.run(lambda x, w: original(x, w, *args, **kwargs), input, weight)

        return operation

    names = ("linear", *(f"conv{n}d" for n in (1, 2, 3)), *(f"conv_transpose{n}d" for n in (1, 2, 3)))
    return [
        (torch, "matmul", routed_matmul), (torch, "mm", routed_matmul), (Tensor, "__matmul__", routed_matmul),
        (Tensor, "matmul", routed_matmul), (Tensor, "mm", routed_matmul),
        *((F, name, routed(getattr(F, name))) for name in names),
    ]


class _Direct(torch.autograd.Function):
    """Gives ``result`` its gradient unchanged and ``x`` another one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, result: Tensor, answer: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.answer = answer
        ctx.save_for_backward(x)
        if result._is_view():  # whoever changes the result in place next may not do so to a view made here
            return result.clone()
        ctx.mark_dirty(result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        return ctx.answer(*ctx.saved_tensors), gradients[0], None


def _as_autocast(weight: Tensor) -> Tensor:
    """The weight in the precision autocast would give it, so that what autograd saves is this very memory."""
    kind = weight.device.type
    return weight.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else weight
