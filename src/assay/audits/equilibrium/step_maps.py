"""The map that a relaxation repeats, as a function of the state alone, and bounds on its Lipschitz constant.

A certificate holds for every state the units can take: a unit whose activation has slope sigma' passes on at most
sup sigma' of what it receives, and with the inputs clamped its drive stays within an interval that bounds that slope.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.models import EnergyMLP, LoopedMLP
from assay.networks.energy_mlp.model import ClampedMLP
from assay.networks.looped_mlp import ClampedLoop
from assay.protocols import EquilibriumModel, State
from assay.solving.activations import Activation

RANGES = {"tanh": (-1.0, 1.0), "clipped": (0.0, 1.0), "smooth": (0.0, 1.0)}
"""The values a unit can take after one sweep."""
PEAKS = {"tanh": 0.0, "clipped": 0.5, "smooth": 0.5, "identity": 0.0}
"""The drive at which the slope is largest, 1 for each of them; slopes fall (or stay) away from it."""


@dataclass(frozen=True)
class StepMap:
    """``step`` moves the units of every row, each row by itself; ``start`` is where a relaxation begins.

    ``box`` is the range of the units of each layer, None where it is unbounded or unknown.
    """

    step: Callable[[State], State]
    start: State
    box: tuple[tuple[float, float] | None, ...]


@dataclass(frozen=True)
class Certificate:
    """Upper bounds of the Lipschitz constant: for every input at all, and for each row of the batch at hand."""

    everywhere: float
    rows: tuple[float, ...]
    method: str


def step_map(
    model: nn.Module, x: Tensor, *, step: Callable[[Tensor, Tensor], Tensor] | None = None, start: Tensor | None = None
) -> StepMap:
    """The free sweep of an equilibrium model, or the user's own ``step(x, h)`` from ``start``."""
    if step is not None:
        if start is None or len(start) != len(x):
            given = "no start" if start is None else f"start of shape {tuple(start.shape)}"
            raise expected("a start with one row per input", given=given, do="pass start=torch.zeros(len(x), units)")
        return StepMap(lambda state: (step(x, state[0]),), (start.detach(),), (None,))
    if not isinstance(model, EquilibriumModel):
        raise expected(
            "an equilibrium model, or step= and start=",
            given=type(model).__name__,
            do="in Python: audit_stability(model, x, step=lambda x, h: ..., start=the state before the first step)",
        )
    with torch.no_grad():
        clamped = model.clamp(x)
        state = model.start(clamped)
    return StepMap(lambda units: model.sweep(clamped, units), state, _box(model, len(state)))


def certify(model: nn.Module, x: Tensor) -> Certificate | None:
    """A certificate in float64 where one is known (LoopedMLP, EnergyMLP); None elsewhere."""
    with torch.no_grad():
        if isinstance(model, LoopedMLP):
            return _certify_loop(model, x)
        if isinstance(model, EnergyMLP):
            return _certify_layers(model, x)
    return None


def _certify_loop(model: LoopedMLP, x: Tensor) -> Certificate:
    """|W| for every input; for a row |D W| with D the largest slopes that its drive allows."""
    clamped: ClampedLoop = model.clamp(x)
    weight, drive = clamped.loop.double(), clamped.drive.double()
    low, high = _interval(weight, RANGES.get(model.activation.name))
    slopes = _largest_slopes(model.activation, drive + low, drive + high)
    rows = torch.linalg.matrix_norm(slopes.unsqueeze(-1) * weight, ord=2)
    return Certificate(
        float(torch.linalg.matrix_norm(weight, ord=2)), _numbers(rows), "slope bounds times the loop's norm"
    )


def _certify_layers(model: EnergyMLP, x: Tensor) -> Certificate:
    """The norm of a matrix that bounds how far each layer moves when each other layer does, composed in sweep order."""
    clamped: ClampedMLP = model.clamp(x)
    weights = [cast(nn.Linear, layer).weight.double() for layer in model.layers]
    biases = [cast(nn.Linear, layer).bias.double() for layer in model.layers]
    box = [_layer_range(model, layer) for layer in range(model.depth)]
    slopes = []
    for layer in range(model.depth):
        if layer == 0:
            low = high = clamped.drive.double()
        else:
            below = _interval(weights[layer], box[layer - 1])
            low, high = (biases[layer] + edge for edge in below)
        if layer + 1 < model.depth:
            above = _interval(model.gamma * weights[layer + 1].t(), box[layer + 1])
            low, high = low + above[0], high + above[1]
        activation = None if model.readout == "squared" and layer == model.depth - 1 else model.activation
        slopes.append(_largest_slopes(activation, low, high).expand(len(x), -1))
    rows = _composed(weights, slopes, model.gamma, len(x))
    free = [torch.ones_like(slope[:1]) for slope in slopes]
    everywhere = _composed(weights, free, model.gamma, 1)
    return Certificate(float(everywhere.max()), _numbers(rows), "block norms composed in sweep order")


def _composed(weights: list[Tensor], slopes: list[Tensor], gamma: float, rows: int) -> Tensor:
    """The norm of M with |new| <= M |old|: layer l hears the new layer below it and the old one above it."""
    depth = len(slopes)
    effect = weights[0].new_zeros(rows, depth, depth, dtype=torch.float64)
    for layer in range(depth):
        if layer + 1 < depth:
            back = torch.linalg.matrix_norm(slopes[layer].unsqueeze(-1) * weights[layer + 1].t(), ord=2)
            effect[:, layer, layer + 1] = gamma * back
        if layer > 0:
            forward = torch.linalg.matrix_norm(slopes[layer].unsqueeze(-1) * weights[layer], ord=2)
            effect[:, layer] += forward.unsqueeze(-1) * effect[:, layer - 1]
    norms: Tensor = torch.linalg.matrix_norm(effect, ord=2)
    return norms


def _interval(weight: Tensor, units: tuple[float, float] | None) -> tuple[Tensor, Tensor]:
    """The smallest and largest W s over all s in the range of the units; infinite when that is unbounded."""
    if units is None:
        edge = weight.new_full((len(weight),), float("inf"))
        return -edge, edge
    low, high = units
    rising, falling = weight.clamp_min(0).sum(1), weight.clamp_max(0).sum(1)
    return low * rising + high * falling, high * rising + low * falling


def _largest_slopes(activation: Activation | None, low: Tensor, high: Tensor) -> Tensor:
    """The largest slope over drives from low to high: at the peak if it lies between, else at the nearer end."""
    if activation is None or activation.name not in PEAKS or activation.name == "identity":
        return torch.ones_like(low)
    peak = torch.full_like(low, PEAKS[activation.name])
    nearest = torch.maximum(torch.minimum(peak, high), low)
    return activation.slope(activation.function(nearest)).clamp(max=1.0)


def _box(model: object, layers: int) -> tuple[tuple[float, float] | None, ...]:
    if isinstance(model, LoopedMLP):
        return (RANGES.get(model.activation.name),)
    if isinstance(model, EnergyMLP):
        return tuple(_layer_range(model, layer) for layer in range(layers))
    return (None,) * layers


def _layer_range(model: EnergyMLP, layer: int) -> tuple[float, float] | None:
    is_output = model.readout == "squared" and layer == model.depth - 1
    return None if is_output else RANGES.get(model.activation.name)


def _numbers(rows: Tensor) -> tuple[float, ...]:
    return tuple(float(value) for value in rows)
