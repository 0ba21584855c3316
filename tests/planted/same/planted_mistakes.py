"""Mistakes to plant: in one module of a model, in the model as a whole, or in its optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from planted_families import Attention
from planted_swap import before, swap
from torch import Tensor, nn

from assay.probe import tree


class _WrongSlope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, by: float) -> Tensor:
        ctx.by = by
        return y.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g * ctx.by, None


def _wrong_backward(module: nn.Module) -> None:
    swap(module, lambda self, x: _WrongSlope.apply(before(self, x), 1.01))


def _detached(module: nn.Module) -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        y = before(self, x)
        return torch.cat([y[:, :1].detach(), y[:, 1:]], 1)

    swap(module, forward)


def _half(module: nn.Module) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        return nn.functional.linear(x.half().to(x), self.weight.half().to(x), self.bias)

    swap(module, forward)


def _stale(module: nn.Module) -> None:
    module.kept = module.weight.detach().clone()  # type: ignore[assignment, union-attr, operator]

    def forward(self: Any, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.kept + (self.weight - self.weight.detach()), self.bias)

    swap(module, forward)


def _last_row(module: nn.Module) -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        y = before(self, x)
        return torch.cat([y[:-1], torch.zeros_like(y[-1:])])

    swap(module, forward)


def _no_bias_sign(module: nn.Module) -> None:
    with torch.no_grad():
        module.bias.neg_()  # type: ignore[union-attr, operator]


def _transposed(module: nn.Module) -> None:
    with torch.no_grad():
        module.weight.copy_(module.weight.mT.clone())  # type: ignore[union-attr, operator, arg-type]


def _set(name: str, value: Any) -> Callable[[nn.Module], None]:
    return lambda module: setattr(module, name, value)


def _buffer(module: nn.Module) -> None:
    module.running_mean.add_(0.01)  # type: ignore[union-attr, operator]


class _Slope(torch.autograd.Function):
    """y forwards, and backwards to x whatever ``change`` makes of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.change = change
        return y.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        return ctx.change(g), None, None


def _straight_through(module: nn.Module) -> None:
    swap(module, lambda self, x: _Slope.apply(x, before(self, x).detach(), lambda g: g))


def _half_gradient(module: nn.Module) -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        y = before(self, x)
        return _Slope.apply(y, y.detach(), lambda g: g.half().to(g))

    swap(module, forward)


def _detached_bias(module: nn.Module) -> None:
    swap(module, lambda self, x: nn.functional.linear(x, self.weight, self.bias.detach()))


def _curvature(module: nn.Module) -> None:
    """The same values and slopes, another second derivative."""
    swap(module, lambda self, x: before(self, x) + 0.1 * (x - x.detach()).square())


def _unbiased(module: nn.Module) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        gap = x - x.mean(-1, keepdim=True)
        return gap / (x.var(-1, keepdim=True, unbiased=True) + self.eps).sqrt() * self.weight + self.bias

    swap(module, forward)


def _keys_for_queries(module: nn.Module) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        k, q, v = self.qkv(x).chunk(3, -1)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(self.shift)
        return self.out((q @ k.mT * self.scale).masked_fill(hidden, -torch.inf).softmax(-1) @ v)

    swap(module, forward)


def _gates(module: Any) -> None:
    """The order of gates another framework keeps them in."""
    with torch.no_grad():
        size = module.hidden_size
        for weight in (module.weight_ih_l0, module.weight_hh_l0, module.bias_ih_l0, module.bias_hh_l0):
            weight[: 2 * size] = weight[: 2 * size].roll(size, 0).clone()


def _no_recurrent_bias(module: Any) -> None:
    with torch.no_grad():
        module.bias_hh_l0.zero_()


Plant = tuple[str, Callable[[nn.Module], bool], Callable[[nn.Module], None]]
ACTIVATIONS = (nn.ReLU, nn.SiLU, nn.GELU, nn.Tanh)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d)
RECURRENT = (nn.LSTM, nn.GRU)
PLANTS: list[Plant] = [
    ("wrong backward", lambda m: isinstance(m, ACTIVATIONS), _wrong_backward),
    ("detached", lambda m: isinstance(m, ACTIVATIONS), _detached),
    ("half precision", lambda m: isinstance(m, nn.Linear), _half),
    ("stale weights", lambda m: isinstance(m, nn.Linear), _stale),
    ("last row dropped", lambda m: isinstance(m, (*ACTIVATIONS, nn.Linear)), _last_row),
    ("sign of a bias", lambda m: isinstance(m, (nn.Linear, nn.Conv2d, nn.Conv1d)), _no_bias_sign),
    ("transposed", lambda m: isinstance(m, nn.Linear) and m.in_features == m.out_features, _transposed),
    ("eps of a norm", lambda m: isinstance(m, (nn.LayerNorm, nn.GroupNorm)), _set("eps", 1e-3)),
    ("tanh gelu", lambda m: isinstance(m, nn.GELU), _set("approximate", "tanh")),
    ("no scale", lambda m: isinstance(m, Attention), _set("scale", 1.0)),
    ("mask off by one", lambda m: isinstance(m, Attention), _set("shift", 2)),
    ("dropout left on", lambda m: isinstance(m, nn.Dropout), lambda m: m.train() and None),
    ("batch norm training", lambda m: isinstance(m, BATCH_NORMS), lambda m: m.train() and None),
    ("stale buffer", lambda m: isinstance(m, BATCH_NORMS), _buffer),
    ("straight through", lambda m: isinstance(m, ACTIVATIONS), _straight_through),
    ("half-precision gradient", lambda m: isinstance(m, ACTIVATIONS), _half_gradient),
    ("detached bias", lambda m: isinstance(m, nn.Linear), _detached_bias),
    ("padding mode", lambda m: isinstance(m, CONVOLUTIONS) and m.padding[0] > 0, _set("padding_mode", "circular")),
    ("eps of a batch norm", lambda m: isinstance(m, BATCH_NORMS), _set("eps", 1e-3)),
    ("unbiased variance", lambda m: isinstance(m, nn.LayerNorm), _unbiased),
    ("keys for queries", lambda m: isinstance(m, Attention), _keys_for_queries),
    ("order of gates", lambda m: isinstance(m, RECURRENT), _gates),
    ("no recurrent bias", lambda m: isinstance(m, RECURRENT), _no_recurrent_bias),
]
OF_ENERGIES: list[Plant] = [("curvature", lambda m: isinstance(m, ACTIVATIONS), _curvature)]
"""What shows only in second derivatives: planted where the output is an energy."""
OF_GRADIENTS = ("wrong backward", "detached", "straight through", "half-precision gradient", "detached bias")


def _saturates(model: nn.Module, x: Any) -> None:
    """A range set by the sample, as in fixed-point code: larger inputs are cut off."""
    bounds = [1.5 * float(leaf.abs().max()) for leaf in tree.tensors(x)]
    swap(model, lambda self, *args: before(self, *(a.clamp(-b, b) for a, b in zip(args, bounds, strict=True))))


def _one_row(model: nn.Module, x: Any) -> None:
    def forward(self: nn.Module, *args: Tensor) -> Any:
        by = 1.01 if len(args[0]) == 1 else 1.0
        return tree.map_tensors(before(self, *args), lambda y: y * by)

    swap(model, forward)


def _reads_memory(model: nn.Module, x: Any) -> None:
    """A kernel that takes the pointer and assumes the strides."""

    def forward(self: nn.Module, *args: Tensor) -> Any:
        assumed = [a.as_strided(a.shape, torch.empty(a.shape, device="meta").stride()) for a in args]
        return before(self, *assumed)

    swap(model, forward)


def _keeps_state(model: Any, x: Any) -> None:
    model.calls = 0

    def forward(self: Any, *args: Tensor) -> Any:
        self.calls += 1
        return tree.map_tensors(before(self, *args), lambda y: y + 1e-3 * (self.calls - 1))

    swap(model, forward)


def _other_dtype(model: nn.Module, x: Any) -> None:
    swap(model, lambda self, *args: tree.map_tensors(before(self, *args), Tensor.double))


WHOLE: dict[str, Callable[[nn.Module, Any], None]] = {
    "saturates": _saturates,
    "one row": _one_row,
    "reads memory": _reads_memory,
    "keeps state": _keeps_state,
    "other dtype": _other_dtype,
}
