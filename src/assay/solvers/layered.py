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

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from assay.protocols import State
from assay.solvers.activations import Activation
from assay.solvers.relaxation import ROUNDING, end_status, relax
from assay.solvers.solution import Solution, Status

IDENTITY = (1.0, 1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Layers:
    """The parameters of a layered network: ``weights[0]`` maps the input, ``readout`` the last hidden state.

    Biases are (..., 1, width). ``readout`` is None when the last layer is itself the (linear) output.
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

    @property
    def classes(self) -> int:
        """The number of outputs."""
        return (self.weights[-1] if self.readout is None else self.readout[0]).shape[-2]

    def affine(self, layer: int) -> tuple[float, float, float, float]:
        """(p, q, r, t) of a layer; the identity for clipped and linear units."""
        return IDENTITY if self.is_output(layer) or self.activation.sigmoid is None else self.activation.sigmoid

    def is_output(self, layer: int) -> bool:
        """Whether a layer is made of linear output units."""
        return self.readout is None and layer == self.depth - 1

    def logits(self, top: Tensor) -> Tensor:
        """The output read from the top layer."""
        if self.readout is None:
            return top
        return multiply_add(self.readout[1], top, self.readout[0].mT)


@dataclass(frozen=True)
class Pull:
    """The nudge as the kernel wants it: beta of each row, and beta times the one-hot target, (..., classes, rows)."""

    beta: Tensor
    wanted: Tensor

    @staticmethod
    def towards(target: Tensor, beta: Tensor, classes: int) -> Pull:
        """Pull each row towards its class index."""
        return Pull(beta, functional.one_hot(target, classes).mT * beta)


def drive_of(layers: Layers, x: Tensor) -> Tensor:
    """What the clamped input adds to the first layer."""
    return multiply_add(layers.biases[0], x, layers.weights[0].mT)


def start(layers: Layers, drive: Tensor) -> State:
    """A feed-forward pass from the drive of the first layer: the free state of a network without feedback."""
    sweep = _Sweep(layers, drive, None, feedback=False)
    units = tuple(drive.new_zeros(*drive.shape[:-1], weight.shape[-2]) for weight in layers.weights)
    return sweep.decode(sweep(units))


def relax_layers(
    layers: Layers, drive: Tensor, state: State, *, pull: Pull | None, sweeps: int, tolerance: float | None = None,
    trace: bool = False,
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


def multiply_add(z: Tensor, a: Tensor, b: Tensor, *, alpha: float = 1.0, out: Tensor | None = None) -> Tensor:
    """z + alpha a b, for one network or for many side by side."""
    return (torch.addmm if a.dim() == 2 else torch.baddbmm)(z, a, b, alpha=alpha, out=out)


class _Sweep:
    """One sweep in place, with every constant computed beforehand."""

    def __init__(self, layers: Layers, drive: Tensor, pull: Pull | None, *, feedback: bool = True) -> None:
        self.layers, self.pull, self.feedback = layers, pull, feedback
        self.constants = [self._constant(layer, drive) for layer in range(layers.depth)]
        if layers.readout is not None and pull is not None:
            weight, bias = layers.readout
            self.logit_constant = bias.mT + layers.affine(layers.depth - 1)[3] * weight.sum(-1, keepdim=True)

    def __call__(self, state: State) -> State:
        depth = self.layers.depth
        for layer in range(depth) if self.pull is None else reversed(range(depth)):
            self._update(layer, state)
        return state

    def error(self, units: Tensor) -> Tensor:
        """beta (onehot - softmax(logits)), transposed: (..., classes, rows)."""
        assert self.pull is not None and self.layers.readout is not None
        p = self.layers.affine(self.layers.depth - 1)[0]
        return self.error_of(multiply_add(self.logit_constant, self.layers.readout[0], units.mT, alpha=p))

    def error_of(self, logits: Tensor) -> Tensor:
        """The same from transposed logits."""
        assert self.pull is not None
        return torch.addcmul(self.pull.wanted, torch.softmax(logits, -2), self.pull.beta, value=-1)

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
            _map(units, 1 / p, -t / p)
        return state

    def decode(self, state: State) -> State:
        """u to s, in place."""
        for layer, units in enumerate(state):
            p, _, _, t = self.layers.affine(layer)
            _map(units, p, t)
        return state

    def _update(self, layer: int, state: State) -> None:
        """Settle one layer under its neighbours."""
        layers, units = self.layers, state[layer]
        q = layers.affine(layer)[1]
        top = layer == layers.depth - 1
        pulled = self.error(units) if top and self.pull is not None and layers.readout is not None else None
        z = self.constants[layer]
        if layer > 0:
            scale = q * layers.affine(layer - 1)[0]
            z = multiply_add(z, state[layer - 1], layers.weights[layer].mT, alpha=scale, out=units)
        if not top and self.feedback:
            scale = layers.gamma * q * layers.affine(layer + 1)[0]
            z = multiply_add(z, state[layer + 1], layers.weights[layer + 1], alpha=scale, out=units)
        elif pulled is not None and layers.readout is not None:
            z = multiply_add(z, pulled.mT, layers.readout[0], alpha=q, out=units)
        elif top and self.pull is not None:
            # Linear output units inside the state settle at (drive + beta target) / (1 + beta).
            z = units.copy_(z).add_(self.pull.wanted.mT).div_(1 + self.pull.beta.unsqueeze(-1))
        self.activate(layer, z, out=units)

    def _constant(self, layer: int, drive: Tensor) -> Tensor:
        """What is added to z whatever the state: input drive or bias, and the offsets t of the neighbouring layers."""
        layers = self.layers
        _, q, r, _ = layers.affine(layer)
        total = drive
        if layer > 0:
            total = layers.biases[layer]
            if t := layers.affine(layer - 1)[3]:
                total = total + t * layers.weights[layer].sum(-1).unsqueeze(-2)
        if layer + 1 < layers.depth and self.feedback and (t := layers.affine(layer + 1)[3]):
            total = total + layers.gamma * t * layers.weights[layer + 1].sum(-2, keepdim=True)
        if (q, r) == (1.0, 0.0):
            return total
        return torch.add(torch.full((), r, dtype=total.dtype, device=total.device), total, alpha=q)


def _map(units: Tensor, scale: float, offset: float) -> None:
    """units <- scale units + offset, in one pass."""
    if (scale, offset) != (1.0, 0.0):
        torch.add(torch.full((), offset, dtype=units.dtype, device=units.device), units, alpha=scale, out=units)


def _relax_lone_layer(
    layers: Layers, drive: Tensor, state: State, *, pull: Pull | None, sweeps: int, tolerance: float | None
) -> Solution:
    """A single hidden layer depends on nothing but the input and the output error, which is narrow and cheap to watch.

    Free, one sweep is the fixed point, bit for bit. Nudged, the state is a function of the error alone: once the error
    moves by rounding only, further sweeps would repeat the last one and are left out. The residual is the change of
    the error times the largest column sum of the readout, an upper bound of the change of any unit (slopes are <= 1).
    """
    sweep = _Sweep(layers, drive, pull)
    if pull is None:
        return Solution(sweep.decode(sweep(state)), Status.CONVERGED, (0.0,), 1)
    assert layers.readout is not None
    weight = layers.readout[0]
    units = state[0]
    reach = float(weight.abs().sum(-2).max())
    rest = ROUNDING * torch.finfo(units.dtype).eps * float(pull.beta.abs().max())
    limit = max(rest, (tolerance or 0.0) / max(reach, torch.finfo(units.dtype).tiny))
    logits = multiply_add(layers.readout[1].mT, weight, units.mT)
    error, changes = sweep.error_of(logits), []
    for _ in range(sweeps):
        multiply_add(sweep.constants[0], error.mT, weight, alpha=layers.affine(0)[1], out=units)
        sweep.activate(0, units, out=units)
        previous, error = error, sweep.error(units)
        changes.append(float((error - previous).abs().max()))
        if not changes[-1] > limit:
            break
    status = end_status(changes, limit=limit, with_tolerance=tolerance is not None)
    return Solution(sweep.decode(state), status, tuple(reach * change for change in changes), len(changes))
