"""The elementwise activations at which a network is split into units: monotone ones, each with a cost of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from assay.solving.activations import Activation, activation, entropy

IDENTITY = activation("identity")
"""A place where a network branches: a linear unit, whose cost is half its square."""


def unit_of(node: fx.Node, modules: dict[str, nn.Module]) -> Activation | None:
    """The unit a node of a traced network stands for, or None: then it belongs to a link."""
    if node.op == "call_module":
        make = _MODULES.get(type(modules[str(node.target)]))
        return None if make is None else make(modules[str(node.target)])
    if node.op == "call_method" and node.target in ("tanh", "sigmoid", "relu", "relu_"):
        return _NAMED[str(node.target).rstrip("_")]
    if node.op == "call_function" and node.target in _FUNCTIONS and len(node.args) == 1:
        return _FUNCTIONS[node.target]
    return None


def _rectifier(low: float, high: float, leak: float = 0.0) -> Activation:
    def function(a: Tensor) -> Tensor:
        clipped = a.clamp(low, high)
        return clipped + leak * (a - clipped) if leak else clipped

    def slope(s: Tensor) -> Tensor:
        return torch.where((s > low) & (s < high), 1.0, leak).to(s.dtype)

    def cost(s: Tensor) -> Tensor:
        inside = s.clamp(low, high)
        return 0.5 * s * s + (0.5 * (1 / leak - 1) * (s - inside).square() if leak else 0.0)

    return Activation("rectifier", function, cost, slope, smooth=False, bounds=(low, high), leak=leak)


def _no_cost(s: Tensor) -> Tensor:
    return torch.full_like(s, math.nan)


def _softplus(module: Any) -> Activation:
    sharp = float(module.beta)
    return Activation(
        "softplus", lambda a: functional.softplus(a, sharp), _no_cost, lambda s: -torch.expm1(-sharp * s), smooth=False
    )


def _elu(module: Any) -> Activation:
    alpha = float(module.alpha)
    return Activation(
        "elu", lambda a: functional.elu(a, alpha), _no_cost, lambda s: torch.where(s > 0, 1.0, s + alpha).to(s.dtype),
        smooth=False,
    )


_SIGMOID = Activation("sigmoid", torch.sigmoid, entropy, lambda s: s * (1 - s), sigmoid=(1.0, 1.0, 0.0, 0.0))
_NAMED = {"tanh": activation("tanh"), "sigmoid": _SIGMOID, "relu": _rectifier(0.0, math.inf)}
_MODULES: dict[type[nn.Module], Callable[[Any], Activation]] = {
    nn.Tanh: lambda _: _NAMED["tanh"],
    nn.Sigmoid: lambda _: _SIGMOID,
    nn.ReLU: lambda _: _NAMED["relu"],
    nn.ReLU6: lambda _: _rectifier(0.0, 6.0),
    nn.Hardtanh: lambda m: _rectifier(float(m.min_val), float(m.max_val)),
    nn.LeakyReLU: lambda m: _rectifier(0.0, math.inf, float(m.negative_slope)),
    nn.Softplus: _softplus,
    nn.ELU: _elu,
}
_FUNCTIONS: dict[Any, Activation] = {
    torch.tanh: _NAMED["tanh"], functional.tanh: _NAMED["tanh"], torch.sigmoid: _SIGMOID, functional.sigmoid: _SIGMOID,
    torch.relu: _NAMED["relu"], functional.relu: _NAMED["relu"],
}
