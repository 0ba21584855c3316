"""Layer-level feedback: every weight sends its error back by a route of its own instead of its transpose.

``torch.nn.functional.linear``, the convolutions and matrix products are replaced for the duration of one forward pass
and look their weight up by identity. This reaches weights that no layer of their own holds (``in_proj_weight`` and
``out_proj`` of ``nn.MultiheadAttention``), slices and transposes of a weight, and weights shared by several modules.
The gradient of the weight itself is the usual one, error times input; only what is sent further down changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Route(Protocol):
    """How one use of a weight sends its error to its input."""

    matrix: Tensor | None
    """In the place of the weight; a learned one receives the weight's own gradient."""

    def sends(self) -> None:
        """Called when the route is really used."""

    def direct(self, like: Tensor) -> Tensor:
        """The error for an input shaped like ``like`` when there is no matrix in the place of the weight."""


FindRoute = Callable[[Tensor, Tensor], Route | None]
"""The route for (weight, input), or None to leave this use to autograd."""

_ONE_AT_A_TIME = threading.RLock()  # the functions are global: two rules in two threads take turns


@contextmanager
def feedback_layers(find: FindRoute) -> Iterator[None]:
    """Inside, linear layers, convolutions and products with a weight send errors by ``find``'s routes."""
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


def _replacements(find: FindRoute) -> list[tuple[Any, str, Callable[..., Tensor]]]:
    linear, matmul = F.linear, torch.matmul

    def routed_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002
        route = find(weight, input)
        if route is None:
            return linear(input, weight, bias)
        result: Tensor = _Linear.apply(input, weight, bias, route.matrix, route, linear)  # type: ignore[no-untyped-call]
        return result

    def routed_matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: A002
        if out is None and isinstance(input, Tensor) and isinstance(other, Tensor):
            if other.ndim == 2 and find(other.T, input) is not None:
                return routed_linear(input, other.T)
            if input.ndim == 2 and other.ndim == 2 and find(input, other.T) is not None:
                return routed_linear(other.T, input).T
        return matmul(input, other) if out is None else matmul(input, other, out=out)

    def routed_convolution(dimensions: int, transposed: bool) -> Callable[..., Tensor]:
        name = f"conv{'_transpose' * transposed}{dimensions}d"
        original = getattr(F, name)

        def convolution(input: Tensor, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Tensor:  # noqa: A002
            route = find(weight, input)
            if route is None or input.ndim != dimensions + 2:
                result: Tensor = original(input, weight, bias, *args, **kwargs)
                return result
            named = dict(zip(_ORDER[transposed], args, strict=False)) | kwargs
            padded, settings = _settings(input, weight, named, dimensions, transposed)
            routed: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
                padded, weight, bias, route.matrix, route, settings)
            return routed

        return convolution

    return [
        (F, "linear", routed_linear), (torch, "matmul", routed_matmul), (torch, "mm", routed_matmul),
        (Tensor, "__matmul__", routed_matmul), (Tensor, "matmul", routed_matmul), (Tensor, "mm", routed_matmul),
        *((F, f"conv{n}d", routed_convolution(n, False)) for n in (1, 2, 3)),
        *((F, f"conv_transpose{n}d", routed_convolution(n, True)) for n in (1, 2, 3)),
    ]


class _Linear(torch.autograd.Function):
    """y = x W^T + b forwards; dL/dx = (dL/dy) B backwards, or whatever the route sends directly."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, matrix: Tensor | None, route: Route,
                linear: Callable[..., Tensor]) -> Tensor:
        ctx.route = route
        ctx.save_for_backward(x, matrix)
        return linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, matrix), (gradient,) = ctx.saved_tensors, gradients
        to_input, to_weight, to_bias, to_matrix = ctx.needs_input_grad[:4]
        rows = gradient.reshape(-1, gradient.shape[-1])
        sent = None
        if to_input:
            ctx.route.sends()
            sent = ctx.route.direct(x) if matrix is None else gradient @ matrix.to(gradient.dtype)
        own = rows.T @ x.reshape(-1, x.shape[-1]).to(rows.dtype) if to_weight or to_matrix else None
        return (
            sent,
            own if to_weight else None,
            rows.sum(0) if to_bias else None,
            own if to_matrix else None,  # autograd copies a tensor that two leaves would otherwise share
            None,
            None,
        )


class _Convolution(torch.autograd.Function):
    """A convolution whose input gradient is computed with the feedback kernel in place of the weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, matrix: Tensor | None, route: Route,
                settings: tuple[Any, ...]) -> Tensor:
        ctx.route, ctx.settings = route, settings
        ctx.save_for_backward(x, weight, matrix)
        result: Tensor = torch.ops.aten.convolution(x, weight, bias, *settings)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight, matrix), (gradient,) = ctx.saved_tensors, gradients
        to_input, to_weight, to_bias, to_matrix = ctx.needs_input_grad[:4]
        stride, padding, dilation, transposed, output_padding, groups = ctx.settings
        outputs = gradient.shape[1]
        # The weight enters only the gradient of the input, so handing over B in its place changes nothing else.
        sent, own, bias = torch.ops.aten.convolution_backward(
            gradient, x.to(gradient.dtype), (weight if matrix is None else matrix).to(gradient.dtype), [outputs],
            stride, padding, dilation, transposed, output_padding, groups,
            [to_input and matrix is not None, to_weight or to_matrix, to_bias],
        )
        if to_input:
            ctx.route.sends()
            sent = ctx.route.direct(x) if matrix is None else sent
        return sent, own if to_weight else None, bias, own if to_matrix else None, None, None


_ORDER = {False: ("stride", "padding", "dilation", "groups"),
          True: ("stride", "padding", "output_padding", "groups", "dilation")}


def _settings(
    x: Tensor, weight: Tensor, named: dict[str, Any], dimensions: int, transposed: bool
) -> tuple[Tensor, tuple[Any, ...]]:
    """The input (padded itself where 'same' is uneven) and the arguments of ``aten::convolution``."""

    def numbers(name: str, default: int) -> list[int]:
        value = named.get(name, default)
        return [int(value)] * dimensions if isinstance(value, int) else [int(part) for part in value]

    dilation = numbers("dilation", 1)
    if named.get("padding") == "valid":
        named["padding"] = 0
    elif named.get("padding") == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        named["padding"] = [total // 2 for total in totals]
        if any(total % 2 for total in totals):
            x = F.pad(x, [side for total in reversed(totals) for side in (0, total % 2)])
    return x, (numbers("stride", 1), numbers("padding", 0), dilation, transposed,
               numbers("output_padding", 0), named.get("groups", 1))
