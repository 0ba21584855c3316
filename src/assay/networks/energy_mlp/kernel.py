"""The fast kernel of layered networks: sweeps in place, without a temporary.

Two things make it fast; neither changes the numbers beyond rounding, and ``audit_kernel`` checks that:

* the drive of the clamped input is added, never recomputed;
* both signs of the nudge are rows of one batch, and the output error, a narrow matrix, is computed transposed.

States are (rows, width) and weights (width, width below), as in ``nn.Linear``. Everything also works with one more axis
in front of both: many networks side by side, each with its own rows (``population.py``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.networks.energy_mlp.deflation import Deflated
from assay.networks.energy_mlp.layers import Layers, Pull, activate, multiply_add
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
    return Sweep(layers, drive, None).start()


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
    units = sweep.start() if state is None else state
    steps = sweep if pull is not None else _steps(layers, sweep)
    return relax(steps, units, sweeps=sweeps, tolerance=tolerance, trace=trace, measured=steps.measured)


def _steps(layers: Layers, sweep: Sweep) -> Sweep | OverRelaxed | Deflated:
    """The steps of a free phase."""
    if layers.solver == "overrelaxed":
        return OverRelaxed(sweep)
    return Deflated(sweep) if layers.solver == "deflated" and layers.depth > 1 else sweep


class Sweep:
    """One sweep in place."""

    def __init__(self, layers: Layers, drive: Tensor, pull: Pull | None) -> None:
        self.layers, self.pull = layers, pull
        self.constants = [drive, *layers.biases[1:]]
        """What is added to the drive of a layer whatever the state: that of the input, or the bias."""

    def __call__(self, state: State) -> State:
        depth = self.layers.depth
        for layer in range(depth) if self.pull is None else reversed(range(depth)):
            self.update(layer, state)
        return state

    def update(self, layer: int, state: State) -> None:
        """Settle one layer under its neighbours."""
        layers, units = self.layers, state[layer]
        top = layer == layers.depth - 1
        pulled = self.error(units) if top and self.pull is not None and layers.readout is not None else None
        drive = self.constants[layer]
        if layer > 0:
            drive = multiply_add(drive, state[layer - 1], layers.weights[layer].mT, out=units)
        if not top:
            drive = multiply_add(drive, state[layer + 1], layers.weights[layer + 1], alpha=layers.gamma, out=units)
        elif pulled is not None and layers.readout is not None:
            drive = multiply_add(drive, pulled.mT, layers.readout[0], out=units)
        elif top and self.pull is not None:
            # Linear output units inside the state settle at (drive + beta target) / (1 + beta).
            drive = units.copy_(drive).add_(self.pull.wanted.mT).div_(1 + self.pull.beta.unsqueeze(-1))
        activate(layers, layer, drive, out=units)

    def start(self) -> State:
        """A pass up without feedback, fresh storage."""
        layers = self.layers
        state: list[Tensor] = []
        for layer in range(layers.depth):
            drive = self.constants[layer]
            if layer > 0:
                drive = multiply_add(drive, state[-1], layers.weights[layer].mT)
            # The drive of the input is needed again; that of a layer above is storage of this pass.
            units = drive if layer > 0 else torch.empty_like(drive)
            activate(layers, layer, drive, out=units)
            state.append(units)
        return tuple(state)

    def measured(self, state: State) -> list[float]:
        """One sweep, and the largest change of each layer: one by one, so that one layer is copied at a time."""
        depth = self.layers.depth
        changes = [0.0] * depth
        for layer in range(depth) if self.pull is None else reversed(range(depth)):
            before = state[layer].clone()
            self.update(layer, state)
            changes[layer] = largest(before.sub_(state[layer]))
        return changes

    def error(self, units: Tensor) -> Tensor:
        """beta (onehot - softmax(logits)), transposed: (..., classes, rows)."""
        assert self.pull is not None and self.layers.readout is not None
        weight, bias = self.layers.readout
        return self.pull.error(multiply_add(bias.mT, weight, units.mT))
