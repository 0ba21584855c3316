"""The fast kernel of layered networks: sweeps in place, without a temporary, in the cheapest coordinates.

Three things make it fast; none changes the numbers beyond rounding, and ``audit_kernel`` checks that:

* the drive of the clamped input is added, never recomputed;
* units that are an affine function of a sigmoid, s = p sigmoid(q a + r) + t, are relaxed as u = sigmoid(z). For tanh
  this costs a third, and the affine maps disappear into constants: z = c + (q p) u_below W^T + (q p gamma) u_above W;
* both signs of the nudge are rows of one batch, and the output error, a narrow matrix, is computed transposed.

States are tuples of (rows, width) tensors, weights are (width, width below), as in ``nn.Linear``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.protocols import State
from assay.solvers.activations import Activation
from assay.solvers.relaxation import ROUNDING, end_status, relax
from assay.solvers.solution import Solution, Status

IDENTITY = (1.0, 1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Layers:
    """The parameters of a layered network: ``weights[0]`` maps the input, ``readout`` the last hidden state.

    ``readout`` is None when the last layer is itself the (linear) output.
    """

    weights: Sequence[Tensor]
    biases: Sequence[Tensor]
    readout: tuple[Tensor, Tensor] | None
    gamma: float
    activation: Activation

    @property
    def depth(self) -> int:
        """The number of layers of units."""
        return len(self.weights)

    def affine(self, layer: int) -> tuple[float, float, float, float]:
        """(p, q, r, t) of a layer; the identity for clipped and linear units."""
        return IDENTITY if self.is_output(layer) or self.activation.sigmoid is None else self.activation.sigmoid

    def is_output(self, layer: int) -> bool:
        """Whether a layer is made of linear output units."""
        return self.readout is None and layer == self.depth - 1


@dataclass(frozen=True)
class Pull:
    """The nudge as the kernel wants it: beta and beta times the one-hot target, one column per row of the state."""

    beta: Tensor
    wanted: Tensor

    @staticmethod
    def towards(target: Tensor, beta: Tensor, classes: int) -> Pull:
        """Pull each row towards its class index."""
        wanted = torch.zeros(classes, len(target), dtype=beta.dtype, device=beta.device)
        return Pull(beta, wanted.scatter_(0, target.unsqueeze(0), beta.unsqueeze(0)))


def start(layers: Layers, drive: Tensor) -> State:
    """A feed-forward pass from the drive of the first layer: the free state of a network without feedback."""
    forward = _Sweep(replace(layers, gamma=0.0), drive, None)
    widths = [weight.shape[0] for weight in layers.weights]
    units = tuple(drive.new_zeros(len(drive), width) for width in widths)
    for layer in range(layers.depth):
        forward.update(layer, units, feedback=False)
    return forward.decode(units)


def relax_layers(
    layers: Layers, drive: Tensor, state: State, *, pull: Pull | None, sweeps: int, tolerance: float | None, trace: bool
) -> Solution:
    """The network relaxed from ``state``, which is overwritten: upwards when free, downwards when pulled."""
    if layers.depth == 1 and layers.readout is not None:
        return _relax_lone_layer(layers, drive, state, pull=pull, sweeps=sweeps, tolerance=tolerance)
    sweep = _Sweep(layers, drive, pull)
    # The steepest affine map turns changes of u into changes of s.
    scale = max(layers.affine(layer)[0] for layer in range(layers.depth))
    inner = None if tolerance is None else tolerance / scale
    found = relax(sweep, sweep.encode(state), sweeps=sweeps, tolerance=inner, trace=trace, in_place=True)
    residuals = tuple(scale * residual for residual in found.residuals)
    return Solution(sweep.decode(found.value), found.status, residuals, found.steps)


class _Sweep:
    """One sweep in place, with every constant computed beforehand."""

    def __init__(self, layers: Layers, drive: Tensor, pull: Pull | None) -> None:
        self.layers, self.pull = layers, pull
        self.constants = [self._constant(layer, drive) for layer in range(layers.depth)]
        if layers.readout is not None and pull is not None:
            weight, bias = layers.readout
            self.logit_constant = (bias + layers.affine(layers.depth - 1)[3] * weight.sum(1)).unsqueeze(1)

    def __call__(self, state: State) -> State:
        depth = self.layers.depth
        for layer in range(depth) if self.pull is None else reversed(range(depth)):
            self.update(layer, state)
        return state

    def update(self, layer: int, state: State, *, feedback: bool = True) -> None:
        """Settle one layer under its neighbours, in place."""
        layers, units = self.layers, state[layer]
        q = layers.affine(layer)[1]
        top = layer == layers.depth - 1
        pulled = self.error(units) if top and self.pull is not None and layers.readout is not None else None
        z = self.constants[layer]
        if layer > 0:
            scale = q * layers.affine(layer - 1)[0]
            z = torch.addmm(z, state[layer - 1], layers.weights[layer].t(), alpha=scale, out=units)
        if not top and feedback:
            scale = layers.gamma * q * layers.affine(layer + 1)[0]
            z = torch.addmm(z, state[layer + 1], layers.weights[layer + 1], alpha=scale, out=units)
        elif pulled is not None and layers.readout is not None:
            z = torch.addmm(z, pulled.t(), layers.readout[0], alpha=q, out=units)
        elif top and self.pull is not None:
            # Linear output units inside the state settle at (drive + beta target) / (1 + beta).
            z = units.copy_(z).add_(self.pull.wanted.t()).div_(1 + self.pull.beta.unsqueeze(1))
        self.activate(layer, z, out=units)

    def _constant(self, layer: int, drive: Tensor) -> Tensor:
        """What is added to z whatever the state: input drive or bias, and the offsets t of the neighbouring layers."""
        layers = self.layers
        _, q, r, _ = layers.affine(layer)
        total = drive
        if layer > 0:
            total = layers.biases[layer] + layers.affine(layer - 1)[3] * layers.weights[layer].sum(1)
        if layer + 1 < layers.depth and (t := layers.affine(layer + 1)[3]):
            total = total + layers.gamma * t * layers.weights[layer + 1].sum(0)
        return total if (q, r) == (1.0, 0.0) else q * total + r

    def error(self, units: Tensor) -> Tensor:
        """beta (onehot - softmax(logits)), transposed: (classes, rows)."""
        assert self.pull is not None and self.layers.readout is not None
        p = self.layers.affine(self.layers.depth - 1)[0]
        logits = torch.addmm(self.logit_constant, self.layers.readout[0], units.t(), alpha=p)
        return torch.addcmul(self.pull.wanted, torch.softmax(logits, 0), self.pull.beta, value=-1)

    def activate(self, layer: int, z: Tensor, *, out: Tensor) -> None:
        """u of a layer from its z."""
        layers = self.layers
        if layers.affine(layer) != IDENTITY:
            torch.sigmoid(z, out=out)
        elif layers.activation.name == "clipped" and not layers.is_output(layer):
            torch.clamp(z, 0.0, 1.0, out=out)
        elif z is not out:
            out.copy_(z)

    def encode(self, state: State) -> State:
        """s to u, in place."""
        for layer, units in enumerate(state):
            p, _, _, t = self.layers.affine(layer)
            if (p, t) != (1.0, 0.0):
                units.sub_(t).div_(p)
        return state

    def decode(self, state: State) -> State:
        """u to s, in place."""
        for layer, units in enumerate(state):
            p, _, _, t = self.layers.affine(layer)
            if (p, t) != (1.0, 0.0):
                units.mul_(p).add_(t)
        return state


def _relax_lone_layer(
    layers: Layers, drive: Tensor, state: State, *, pull: Pull | None, sweeps: int, tolerance: float | None
) -> Solution:
    """A single hidden layer depends on nothing but the input and the output error, which is narrow and cheap to watch.

    Free, one sweep is the fixed point, bit for bit. Nudged, the state is a function of the error alone: once the error
    moves by rounding only, further sweeps would repeat the last one and are left out. The residual is the change of
    the error times the largest row sum of the readout, an upper bound of the change of any unit (slopes are at most 1).
    """
    sweep = _Sweep(layers, drive, pull)
    if pull is None:
        return Solution(sweep.decode(sweep(state)), Status.CONVERGED, (0.0,), 1)
    assert layers.readout is not None
    units = sweep.encode(state)[0]
    reach = float(layers.readout[0].abs().sum(0).max())
    rest = ROUNDING * torch.finfo(units.dtype).eps * float(pull.beta.abs().max())
    limit = max(rest, (tolerance or 0.0) / max(reach, 1e-30))
    error, changes = sweep.error(units), []
    for _ in range(sweeps):
        torch.addmm(sweep.constants[0], error.t(), layers.readout[0], alpha=layers.affine(0)[1], out=units)
        sweep.activate(0, units, out=units)
        previous, error = error, sweep.error(units)
        changes.append(float((error - previous).abs().max()))
        if not changes[-1] > limit:
            break
    status = end_status(changes, limit=limit, with_tolerance=tolerance is not None)
    return Solution(sweep.decode(state), status, tuple(reach * change for change in changes), len(changes))
