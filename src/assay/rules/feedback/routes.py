"""Which route each weight takes: the feedback variants of the layer level, and the record of who really used one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from assay.probe.blocks import evaluating
from assay.probe.copies import as_it_was
from assay.probe.samples import Layout, find_layout, other_first_sample
from assay.rules.feedback.direct import direct_signal
from assay.rules.feedback.layers import Operation, Route, run_direct, run_linear, run_with_matrix
from assay.rules.feedback.matrices import Matrices
from assay.rules.feedback.places import feedback_layers
from assay.rules.feedback.weights import WeightNames

Feedback = Literal["random", "sign", "sign-fixed", "sign-batch", "kolen-pollack", "weights"]


@dataclass
class Usage:
    """What happened to the weights during one backward pass, by parameter name."""

    sent: set[str] = field(default_factory=set)


@dataclass
class MatrixRoute:
    """A matrix in the place of the weight (feedback alignment and its relatives)."""

    name: str
    matrix: Tensor
    usage: Usage

    def run(self, operation: Operation, x: Tensor, weight: Tensor) -> Tensor:
        return run_with_matrix(operation, x, weight, matrix=self.matrix, sends=lambda: self.usage.sent.add(self.name))


class LinearRoute:
    """The same for a whole weight whose matrix lasts: a linear layer goes the short way."""

    __slots__ = ("matrix", "name", "unpack", "usage")

    def __init__(self, name: str, matrix: Tensor, usage: Usage) -> None:
        transposed = matrix.t()
        self.name, self.matrix, self.usage = name, matrix, usage
        self.unpack = lambda _: transposed

    def short(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
        moved = weight.dtype is not self.matrix.dtype or weight.device != self.matrix.device
        if moved or not x.requires_grad:
            return None
        result = run_linear(x, weight, bias, self.unpack)
        if result is not None:
            self.usage.sent.add(self.name)
        return result

    def run(self, operation: Operation, x: Tensor, weight: Tensor) -> Tensor:
        return MatrixRoute(self.name, self.matrix.to(weight.device), self.usage).run(operation, x, weight)


class AlignedRoutes:
    """Routes of feedback alignment: every weight's error goes through its own matrix B, shaped like the weight.

    ``skip`` numbers the uses that belong to a product of weights alone: there the matrix would enter the gradient of a
    weight instead of the error.
    """

    def __init__(self, known: WeightNames, matrices: Matrices, feedback: Feedback, *, step: int,
                 skip: Collection[int] = (), prepared: dict[int, LinearRoute] | None = None) -> None:
        self.known, self.matrices, self.feedback, self.step = known, matrices, feedback, step
        self.skip, self.prepared = skip, {} if prepared is None else prepared
        self.usage = Usage()
        for route in self.prepared.values():
            route.usage = self.usage
        self.ready = {} if skip else self.prepared
        self.calls = 0

    def __call__(self, weight: Tensor, x: Tensor) -> Route | None:
        if not self.skip:
            if not x.requires_grad:
                return None
            ready = self.prepared.get(id(weight))
            if ready is not None:
                return ready
        found = self.known.find(weight)
        if found is None or self.known.find(x) is not None:
            return None
        self.calls += 1
        name, parameter = found
        computed = parameter.ndim < 2 or not isinstance(parameter, nn.Parameter)
        # A weight that is computed has no gradient step of its own that Kolen-Pollack's matrix could share; a vector
        # is not known for a weight before the first step, when the optimiser takes the matrices.
        if self.calls in self.skip or not x.requires_grad or (computed and self.feedback == "kolen-pollack"):
            return None
        matrix = self._matrix(name, parameter)
        if weight is not parameter:
            matrix = matrix.as_strided(weight.shape, weight.stride(), weight.storage_offset())
        elif self._lasts(matrix, weight):
            self.prepared[id(weight)] = LinearRoute(name, matrix.detach(), self.usage)
            return self.prepared[id(weight)]
        return MatrixRoute(name, matrix, self.usage)

    def _lasts(self, matrix: Tensor, weight: Tensor) -> bool:
        """Whether this very matrix will serve the next step too."""
        fixed = self.feedback in ("random", "kolen-pollack") and isinstance(weight, nn.Parameter)
        return fixed and weight.ndim == 2 and matrix.stride() == weight.stride() and matrix.dtype == weight.dtype

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
        return direct_signal(self.routes.matrices, name, error, x, layout=self.layout)


class DirectRoutes:
    """Routes of direct feedback alignment: the input of every weight receives B e."""

    def __init__(self, known: WeightNames, matrices: Matrices, layouts: dict[str, Layout | None], *,
                 skip: Collection[int] = ()) -> None:
        self.known, self.matrices, self.layouts, self.skip = known, matrices, layouts, skip
        self.usage = Usage()
        self.error: list[Tensor] = []
        self.calls = 0

    def __call__(self, weight: Tensor, x: Tensor) -> Route | None:
        found = self.known.find(weight)
        if found is None or self.known.find(x) is not None:
            return None
        self.calls += 1
        layout = self.layouts.get(found[0], "batch first")
        if layout is None or not x.requires_grad or self.calls in self.skip:
            return None
        return DirectRoute(found[0], layout, self)


def measure_layouts(model: nn.Module, x: Tensor, known: WeightNames) -> dict[str, Layout | None]:
    """Where the batch lives in the input of each weight; None where one sample touches the inputs of all."""
    changed = other_first_sample(x)
    if changed is None:
        return {}
    before, after = _inputs_of_weights(model, x, known), _inputs_of_weights(model, changed, known)
    found: dict[str, Layout | None] = {}
    for name, uses in before.items():
        others = after.get(name, [])
        layouts = {find_layout(one, two, len(x)) for one, two in zip(uses, others, strict=False)}
        # A weight has one layout; where its uses differ (a packed batch that shrinks) no answer fits all of them.
        found[name] = layouts.pop() if len(uses) == len(others) and len(layouts) == 1 else None
    return found


def weight_scale(weight: Tensor) -> float:
    """1/sqrt(fan_in): the size PyTorch's own initialisation would give, so that feedback is as strong as the weight."""
    fan_in = weight.numel() // max(1, len(weight)) if weight.ndim > 1 else weight.numel()
    return float(max(1, fan_in) ** -0.5)


def _inputs_of_weights(model: nn.Module, x: Tensor, known: WeightNames) -> dict[str, list[Tensor]]:
    seen = dict[str, list[Tensor]]()

    def look(weight: Tensor, value: Tensor) -> None:
        found = known.find(weight)
        if found is not None and known.find(value) is None:
            seen.setdefault(found[0], []).append(value.detach().clone())

    # Attention has a fused path without gradients that never calls linear; a forward pass with gradients avoids it.
    with as_it_was(model), evaluating(model), torch.enable_grad(), feedback_layers(look), known.watched():
        model(x)
    return seen
