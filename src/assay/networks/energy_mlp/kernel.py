"""The fast kernel of layered networks: sweeps in place, without a temporary, in the cheapest coordinates.

Three things make it fast; none changes the numbers beyond rounding, and ``audit_kernel`` checks that:

* the drive of the clamped input is added, never recomputed;
* units that are an affine function of a sigmoid, s = p sigmoid(q a + r) + t, are relaxed as u = sigmoid(z). For tanh
  this costs a third, and the affine maps disappear into constants: z = c + (q p) u_below W^T + (q p gamma) u_above W;
* both signs of the nudge are rows of one batch, and the output error, a narrow matrix, is computed transposed.

States are (rows, width) and weights (width, width below), as in ``nn.Linear``. Everything also works with one more axis
in front of both: many networks side by side, each with its own rows (``population.py``).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.networks.energy_mlp.deflation import Deflated
from assay.networks.energy_mlp.layers import Layers, Pull, activate, map_affine, multiply_add
from assay.networks.energy_mlp.lone_layer import relax_lone_layer
from assay.networks.energy_mlp.overrelaxation import OverRelaxed
from assay.protocols import State
from assay.solving.deviation import largest
from assay.solving.relaxation import relax
from assay.solving.solution import Solution


def drive_of(layers: Layers, x: Tensor) -> Tensor:
    """What the clamped input adds to the first layer."""
    return multiply_add(layers.biases[0], x, layers.weights[0].mT)


def start(layers: Layers, drive: Tensor) -> State:
    """A feed-forward pass from the drive of the first layer: the free state of a network without feedback."""
    sweep = Sweep(layers, drive, None)
    return sweep.decode(sweep.start())


def relax_layers(
    layers: Layers, drive: Tensor, state: State | None, *, pull: Pull | None, sweeps: int,
    tolerance: float | None = None, trace: bool = False,
) -> Solution:
    """The network relaxed from ``state``, which is overwritten: upwards when free, downwards when pulled.

    The rows of the state may be several phases of the rows of ``drive``. Without a state it begins at ``start``.
    """
    if layers.depth == 1 and layers.readout is not None:
        return relax_lone_layer(layers, drive, state, pull=pull, sweeps=sweeps, tolerance=tolerance)
    phases = 1 if state is None else state[0].shape[-2] // drive.shape[-2]
    sweep = Sweep(layers, drive if phases == 1 else torch.cat([drive] * phases, -2), pull)
    units = sweep.start() if state is None else sweep.encode(state)
    # The steepest affine map turns changes of u into changes of s.
    scale = max(layers.affine(layer)[0] for layer in range(layers.depth))
    inner = None if tolerance is None else tolerance / scale
    steps = sweep if pull is not None else _steps(layers, sweep)
    found = relax(steps, units, sweeps=sweeps, tolerance=inner, trace=trace, measured=steps.measured)
    residuals = tuple(scale * residual for residual in found.residuals)
    return Solution(sweep.decode(found.value), found.status, residuals, found.steps)


def _steps(layers: Layers, sweep: Sweep) -> Sweep | OverRelaxed | Deflated:
    """The steps of a free phase."""
    if layers.solver == "overrelaxed":
        return OverRelaxed(sweep)
    return Deflated(sweep) if layers.solver == "deflated" and layers.depth > 1 else sweep


class Sweep:
    """One sweep in place, with every constant computed beforehand."""

    def __init__(self, layers: Layers, drive: Tensor, pull: Pull | None) -> None:
        self.layers, self.pull = layers, pull
        self.upwards = [self._upward_constant(layer, drive) for layer in range(layers.depth)]
        self.constants = [self._constant(layer) for layer in range(layers.depth)]
        if layers.readout is not None and pull is not None:
            weight, bias = layers.readout
            self.logit_constant = bias.mT + layers.affine(layers.depth - 1)[3] * weight.sum(-1, keepdim=True)

    def __call__(self, state: State) -> State:
        depth = self.layers.depth
        for layer in range(depth) if self.pull is None else reversed(range(depth)):
            self.update(layer, state)
        return state

    def update(self, layer: int, state: State) -> None:
        """Settle one layer under its neighbours."""
        layers, units = self.layers, state[layer]
        q = layers.affine(layer)[1]
        top = layer == layers.depth - 1
        pulled = self.error(units) if top and self.pull is not None and layers.readout is not None else None
        z = self.constants[layer]
        if layer > 0:
            scale = q * layers.affine(layer - 1)[0]
            z = multiply_add(z, state[layer - 1], layers.weights[layer].mT, alpha=scale, out=units)
        if not top:
            scale = layers.gamma * q * layers.affine(layer + 1)[0]
            z = multiply_add(z, state[layer + 1], layers.weights[layer + 1], alpha=scale, out=units)
        elif pulled is not None and layers.readout is not None:
            z = multiply_add(z, pulled.mT, layers.readout[0], alpha=q, out=units)
        elif top and self.pull is not None:
            # Linear output units inside the state settle at (drive + beta target) / (1 + beta).
            z = units.copy_(z).add_(self.pull.wanted.mT).div_(1 + self.pull.beta.unsqueeze(-1))
        activate(layers, layer, z, out=units)

    def start(self) -> State:
        """A pass up without feedback, as u, fresh storage."""
        layers = self.layers
        state: list[Tensor] = []
        for layer in range(layers.depth):
            z = self.upwards[layer]
            if layer > 0:
                scale = layers.affine(layer)[1] * layers.affine(layer - 1)[0]
                z = multiply_add(z, state[-1], layers.weights[layer].mT, alpha=scale)
            units = torch.empty_like(z)
            activate(layers, layer, z, out=units)
            state.append(units)
        return tuple(state)

    def measured(self, state: State) -> float:
        """One sweep, and the largest change it made: layer by layer, so that one layer is copied at a time."""
        depth, changes = self.layers.depth, []
        for layer in range(depth) if self.pull is None else reversed(range(depth)):
            before = state[layer].clone()
            self.update(layer, state)
            changes.append(largest(before.sub_(state[layer])))
        return math.nan if any(math.isnan(change) for change in changes) else max(changes)

    def error(self, units: Tensor) -> Tensor:
        """beta (onehot - softmax(logits)), transposed: (..., classes, rows)."""
        assert self.pull is not None and self.layers.readout is not None
        p = self.layers.affine(self.layers.depth - 1)[0]
        return self.pull.error(multiply_add(self.logit_constant, self.layers.readout[0], units.mT, alpha=p))

    def encode(self, state: State) -> State:
        """s to u, in place."""
        for layer, units in enumerate(state):
            p, _, _, t = self.layers.affine(layer)
            map_affine(units, 1 / p, -t / p)
        return state

    def decode(self, state: State) -> State:
        """u to s, in place."""
        for layer, units in enumerate(state):
            p, _, _, t = self.layers.affine(layer)
            map_affine(units, p, t)
        return state

    def _upward_constant(self, layer: int, drive: Tensor) -> Tensor:
        """What is added to z whatever the state above: input drive or bias, and the offset t of the layer below."""
        layers = self.layers
        _, q, r, _ = layers.affine(layer)
        total = drive
        if layer > 0:
            total = layers.biases[layer]
            if t := layers.affine(layer - 1)[3]:
                total = total + t * layers.weights[layer].sum(-1).unsqueeze(-2)
        if (q, r) == (1.0, 0.0):
            return total
        return torch.add(torch.full((), r, dtype=total.dtype, device=total.device), total, alpha=q)

    def _constant(self, layer: int) -> Tensor:
        """The same with the offset t of the layer above, which feeds back."""
        layers, total = self.layers, self.upwards[layer]
        if layer + 1 < layers.depth and (t := layers.affine(layer + 1)[3]):
            scale = layers.gamma * t * layers.affine(layer)[1]
            total = torch.add(total, layers.weights[layer + 1].sum(-2, keepdim=True), alpha=scale)
        return total
