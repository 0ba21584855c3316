"""A user's ``nn.Sequential`` cut into layers: the drive of each (its weight) and the activation that answers it.

Rules that give every layer a state, a target or a loss of its own need to know where one layer ends and the next
begins. Between two weights the cut comes after the last elementwise activation, so that a layer's activity is what the
next weight reads; pooling, flattening and norms behind it belong to the next layer. A module of several weights (a
residual block) is one layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from assay.errors import InputError, expected

TAKES = ("an nn.Sequential (nested ones too) of modules that take and return one tensor, each used once, without "
         "dropout or batch normalisation")
"""What can be cut into layers, in one line."""
ELEMENTWISE = (
    nn.CELU, nn.ELU, nn.GELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.LeakyReLU, nn.LogSigmoid,
    nn.Mish, nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Softshrink, nn.Softsign, nn.Tanh,
    nn.Tanhshrink, nn.Threshold,
)
"""torch's activations without parameters; a module of one's own says ``elementwise = True``."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer: ``drive`` maps the activity below to pre-activations, ``answer`` those to the activity."""

    name: str
    drive: tuple[nn.Module, ...]
    answer: tuple[nn.Module, ...]

    def driven(self, below: Tensor) -> Tensor:
        """The pre-activations, given the activity below."""
        for module in self.drive:
            below = module(below)
        return below

    def answered(self, driven: Tensor) -> Tensor:
        """The activity, given the pre-activations."""
        for module in self.answer:
            driven = module(driven)
        return driven

    def __call__(self, below: Tensor) -> Tensor:
        return self.answered(self.driven(below))

    @property
    def weights(self) -> list[nn.Module]:
        """The modules that own a weight of two axes or more."""
        return [module for module in self.drive if has_weight(module)]

    def parameters(self) -> list[nn.Parameter]:
        """Those of its parameters that learn."""
        return [p for module in (*self.drive, *self.answer) for p in module.parameters() if p.requires_grad]


def layers_of(model: nn.Module, *, rule: str) -> tuple[Layer, ...]:
    """The layers of ``model`` from the input up; an InputError for a model that is no chain, in the name of ``rule``.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3))
    >>> [(layer.name, len(layer.drive), len(layer.answer)) for layer in layers_of(net, rule="an example")]
    [('0', 1, 1), ('2', 1, 1), ('5', 2, 0)]
    """
    if not _is_sequential(model):
        raise expected(f"for {rule}: {TAKES}", given=type(model).__name__,
                       do="other architectures: backprop, feedback alignment, weight perturbation or forward gradients")
    parts = _flat(model, "")
    _check(parts, rule)
    at = [i for i, (_, module) in enumerate(parts) if has_weight(module)]
    if not at:
        raise expected(f"for {rule}: a chain with at least one weight", given=f"{len(parts)} modules without any")
    ends = [*(_cut(parts, first, second) for first, second in pairwise(at)), len(parts)]
    layers, begin = [], 0
    for where, end in zip(at, ends, strict=True):
        split = next((i for i in range(where + 1, end) if is_elementwise(parts[i][1])), end)
        layers.append(Layer(parts[where][0], tuple(m for _, m in parts[begin:split]),
                            tuple(m for _, m in parts[split:end])))
        begin = end
    return tuple(layers)


def activities(layers: tuple[Layer, ...], x: Tensor) -> list[Tensor]:
    """x and the activity of every layer, without a graph: the feed-forward pass."""
    found = [x]
    with torch.no_grad():
        for layer in layers:
            found.append(layer(found[-1]))
    return found


def has_weight(module: nn.Module) -> bool:
    """Whether it owns a parameter of two axes or more."""
    return any(parameter.ndim > 1 for parameter in module.parameters())


def is_elementwise(module: nn.Module) -> bool:
    """Whether every number of its output depends on one number of its input alone."""
    return isinstance(module, ELEMENTWISE) or getattr(module, "elementwise", False) is True


def _is_sequential(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def _flat(module: nn.Module, path: str) -> list[tuple[str, nn.Module]]:
    found: list[tuple[str, nn.Module]] = []
    for name, child in module._modules.items():
        assert child is not None  # an nn.Sequential has no empty places
        whole = f"{path}.{name}" if path else name
        found += _flat(child, whole) if _is_sequential(child) else [(whole, child)]
    return found


def _check(parts: list[tuple[str, nn.Module]], rule: str) -> None:
    seen: dict[int, str] = {}
    for name, module in parts:
        if seen.setdefault(id(module), name) != name and any(True for _ in module.parameters()):
            raise InputError(f"{rule} takes {TAKES}; '{name}' is the same module as '{seen[id(module)]}'")
        for inner in module.modules():
            if isinstance(inner, _BatchNorm | _DropoutNd):
                raise InputError(f"{rule} takes {TAKES}; '{name}' is a {type(inner).__name__}, which would not give "
                                 "the same answer twice in one step; use nn.LayerNorm or nn.GroupNorm")


def _cut(parts: list[tuple[str, nn.Module]], first: int, second: int) -> int:
    """Where the layer of the weight at ``first`` ends: behind the last activation before the weight at ``second``."""
    activations = [i for i in range(first + 1, second) if is_elementwise(parts[i][1])]
    return activations[-1] + 1 if activations else first + 1
