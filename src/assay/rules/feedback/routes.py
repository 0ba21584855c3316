"""Which route each weight takes: the feedback variants of the layer level, and the record of who really used one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from assay.probe.blocks import evaluating
from assay.probe.samples import Layout, find_layout, other_first_sample
from assay.rules.feedback.direct import direct_signal
from assay.rules.feedback.layers import Operation, Route, feedback_layers, run_direct, run_with_matrix
from assay.rules.feedback.matrices import Matrices

Feedback = Literal["random", "sign", "sign-fixed", "sign-batch", "kolen-pollack", "weights"]


@dataclass
class Usage:
    """What happened to the weights during one backward pass, by parameter name."""

    sent: set[str] = field(default_factory=set)
    at_input: set[str] = field(default_factory=set)
    odd_layout: set[str] = field(default_factory=set)


class WeightNames:
    """Parameters of a model by identity, also through a slice or transpose of one."""

    def __init__(self, model: nn.Module) -> None:
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}

    def find(self, weight: Tensor) -> tuple[str, Tensor] | None:
        """The name of the parameter ``weight`` is, or is a view of, and that parameter."""
        base = weight if id(weight) in self.names else weight._base
        if base is None or id(base) not in self.names:
            return None
        return self.names[id(base)], base


@dataclass
class MatrixRoute:
    """A matrix in the place of the weight (feedback alignment and its relatives)."""

    name: str
    matrix: Tensor
    usage: Usage

    def run(self, operation: Operation, x: Tensor, weight: Tensor) -> Tensor:
        return run_with_matrix(operation, x, weight, self.matrix, lambda: self.usage.sent.add(self.name))


class AlignedRoutes:
    """Routes of feedback alignment: every weight's error goes through its own matrix B, shaped like the weight."""

    def __init__(self, model: nn.Module, matrices: Matrices, feedback: Feedback, *, step: int) -> None:
        self.known, self.matrices, self.feedback, self.step = WeightNames(model), matrices, feedback, step
        self.usage = Usage()

    def __call__(self, weight: Tensor, x: Tensor) -> Route | None:
        found = self.known.find(weight)
        if found is None:
            return None
        name, parameter = found
        if not x.requires_grad:
            self.usage.at_input.add(name)
            return None
        matrix = self._matrix(name, parameter)
        if weight is not parameter:
            matrix = matrix.as_strided(weight.shape, weight.stride(), weight.storage_offset())
        return MatrixRoute(name, matrix, self.usage)

    def _matrix(self, name: str, weight: Tensor) -> Tensor:
        shape, scale = tuple(weight.shape), weight_scale(weight)
        now = weight.detach()
        match self.feedback:
            case "weights":
                return now
            case "sign":
                return torch.copysign(now.new_tensor(scale), now)
            case "sign-fixed":
                return torch.copysign(self.matrices.draw(name, shape, scale=scale, like=now), now)
            case "sign-batch":
                return torch.copysign(self.matrices.fresh(name, shape, scale=scale, like=now, step=self.step), now)
            case _:
                return self.matrices.draw(name, shape, scale=scale, like=now)


@dataclass
class DirectRoute:
    """The output error, straight to the input of the weight."""

    name: str
    layout: Layout
    routes: DirectRoutes

    def run(self, operation: Operation, x: Tensor, weight: Tensor) -> Tensor:
        return run_direct(operation, x, weight, self.answer)

    def answer(self, x: Tensor) -> Tensor:
        self.routes.usage.sent.add(self.name)
        error = self.routes.error[0]
        # A weight used on inputs of two sizes needs a matrix for each.
        name = f"{self.name}@{x.numel() // len(error)}"
        return direct_signal(self.routes.matrices, name, error, x, self.layout)


class DirectRoutes:
    """Routes of direct feedback alignment: the input of every weight receives B e."""

    def __init__(self, model: nn.Module, matrices: Matrices, layouts: dict[str, Layout | None]) -> None:
        self.known, self.matrices, self.layouts = WeightNames(model), matrices, layouts
        self.usage = Usage()
        self.error: list[Tensor] = []

    def __call__(self, weight: Tensor, x: Tensor) -> Route | None:
        found = self.known.find(weight)
        if found is None:
            return None
        name = found[0]
        if not x.requires_grad:
            self.usage.at_input.add(name)
            return None
        layout = self.layouts.get(name, "batch first")
        if layout is None:
            self.usage.odd_layout.add(name)
            return None
        return DirectRoute(name, layout, self)


def measure_layouts(model: nn.Module, x: Tensor) -> dict[str, Layout | None]:
    """Where the batch lives in the input of each weight; None where one sample touches the inputs of all."""
    changed = other_first_sample(x)
    if changed is None:
        return {}
    before, after = _inputs_of_weights(model, x), _inputs_of_weights(model, changed)
    return {name: find_layout(before[name], after[name], len(x)) for name in before if name in after}


def weight_scale(weight: Tensor) -> float:
    """1/sqrt(fan_in): the size PyTorch's own initialisation would give, so that feedback is as strong as the weight."""
    return float(max(1, weight.numel() // max(1, len(weight))) ** -0.5)


def _inputs_of_weights(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    known, seen = WeightNames(model), dict[str, Tensor]()

    def look(weight: Tensor, value: Tensor) -> None:
        found = known.find(weight)
        if found is not None:
            seen.setdefault(found[0], value.detach().clone())

    # Attention has a fused path without gradients that never calls linear; a forward pass with gradients avoids it.
    with evaluating(model), torch.enable_grad(), feedback_layers(look):
        model(x)
    return seen
