"""EnergyMLP: layers of units that settle between what comes from below and, more weakly, what comes from above.

    E = sum_{l=1..K} gamma^l [ R(s_l) - s_l . (W_l s_{l-1} + b_l) ],        s_0 = x

A unit at rest obeys s_l = sigma(W_l s_{l-1} + b_l + gamma W_{l+1}^T s_{l+1}): feedback is gamma times weaker than the
forward drive, which keeps deep nets close to a contraction while the energy, hence EP, stays exact. gamma = 1 is the
classic Hopfield-like network. Two ways to read a class out:

* ``softmax``: logits = W_o s_K + b_o lie outside the state; the nudge adds beta (onehot - softmax(logits)) W_o to the
  drive of s_K, and W_o itself gets its exact gradient at the free state.
* ``squared``: the last layer is linear output units inside the state, pulled towards the one-hot target.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.errors import InputError, expected, unknown
from assay.networks.energy_mlp import kernel as layered
from assay.networks.energy_mlp.deviation import deviate_layers, deviation_gradient
from assay.networks.energy_mlp.gradient import Gradients, energy_gradient, readout_gradient, tangent_gradient
from assay.networks.energy_mlp.layers import SOLVERS, Layers, Pull
from assay.networks.energy_mlp.outliers import Outliers, followed
from assay.networks.energy_mlp.tangent import relax_tangent
from assay.networks.equilibrium import Elementwise, EquilibriumModule, add_to_grad, check_inputs, seeded, softmax
from assay.protocols import Nudge, State
from assay.seeding import torch_generator
from assay.solving.activations import activation as activation_called
from assay.solving.solution import Solution


@dataclass(frozen=True)
class ClampedMLP:
    """A batch, its drive into the first layer and the bare parameters, made once for all phases that share them."""

    x: Tensor
    shared_drive: Tensor
    layers: Layers
    phases: int = 1

    @property
    def drive(self) -> Tensor:
        """The drive of every row of every phase."""
        return self.shared_drive if self.phases == 1 else self.shared_drive.repeat(self.phases, 1)

    def repeat(self, phases: int) -> Self:
        return type(self)(self.x, self.shared_drive, self.layers, phases * self.phases)


class EnergyMLP(EquilibriumModule[ClampedMLP]):
    """A layered energy network of the given ``widths`` (inputs, hidden layers, classes).

    ``solver`` says how it goes to rest: by plain ``sweeps``; ``projected``, where a nudged phase ends with the best
    multiple of every layer's deviation, for one or two sweeps; ``deflated``, which adds to that a small exact solve
    along the directions in which the weights are strong, for one or two sweeps while weights grow freely;
    ``overrelaxed``, for strong feedback and a tolerance. All have the same fixed point.

    >>> model = EnergyMLP([4, 8, 8, 3], gamma=0.25, seed=0)
    >>> model(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """

    _outliers: Outliers | None = None
    """What ``deflated`` knows of the weights, from batch to batch; nothing that a fixed point depends on."""

    def __init__(
        self, widths: Sequence[int], *, gamma: float = 0.25, activation: str = "tanh", readout: str = "softmax",
        solver: str = "sweeps", sweeps: int = 30, tolerance: float | None = 1e-6, seed: int = 0,
    ) -> None:
        if solver not in SOLVERS:
            raise InputError(unknown("solver", solver, SOLVERS))
        if len(widths) < 3 or min(widths) < 1:
            raise expected("widths [inputs, hidden, ..., classes], each >= 1", given=repr(list(widths)))
        if not 0 < gamma <= 1:
            raise expected("gamma in (0, 1]", given=f"gamma={gamma}",
                           do="1 is the classic network, 0.25 suits depth; the limit 0 is model.feedforward()")
        super().__init__(classes=widths[-1], readout=readout, sweeps=sweeps, tolerance=tolerance)
        self.widths = tuple(widths)
        self.gamma, self.solver = gamma, solver
        self.activation = activation_called(activation)
        generator = torch_generator(seed, "init", "energy-mlp")
        self.layers = nn.ModuleList(seeded(nn.Linear, n, m, generator=generator) for n, m in itertools.pairwise(widths))
        self.depth = len(widths) - (2 if readout == "softmax" else 1)

    @property
    def loss_scale(self) -> float:
        return self.gamma**self.depth

    def feedforward(self) -> nn.Sequential:
        """The limit gamma -> 0: an ordinary feed-forward net that shares these very parameters."""
        modules: list[nn.Module] = [self.layers[0]]
        for layer in list(self.layers)[1:]:
            modules += [Elementwise(self.activation.function), layer]
        return nn.Sequential(*modules)

    def clamp(self, x: Tensor) -> ClampedMLP:
        layers = self._followed(self.as_layers())
        check_inputs(x, shape=(self.widths[0],), like=layers.weights[0], model="EnergyMLP")
        return ClampedMLP(x, functional.linear(x, layers.weights[0], layers.biases[0].squeeze(0)), layers)

    def start(self, clamped: ClampedMLP) -> State:
        """A feed-forward pass: the fixed point itself when gamma -> 0."""
        if not torch.is_grad_enabled():
            return layered.start(clamped.layers, clamped.drive)
        state = [self._settle(0, clamped.drive, None, None)]
        for layer in range(1, self.depth):
            drive = functional.linear(state[-1], self._weight(layer), self._bias(layer))
            state.append(self._settle(layer, drive, None, None))
        return tuple(state)

    def sweep(self, clamped: ClampedMLP, state: State, nudge: Nudge | None = None) -> State:
        """Free sweeps go up, following the input; nudged sweeps go down, following the error."""
        new = list(state)
        for layer in range(self.depth) if nudge is None else reversed(range(self.depth)):
            if layer == 0:
                drive = clamped.drive.to(new[0].dtype)
            else:
                weight, bias = self._weight(layer, new[0]), self._bias(layer, new[0])
                drive = functional.linear(new[layer - 1], weight, bias)
            if layer + 1 < self.depth:
                drive = drive + self.gamma * (new[layer + 1] @ self._weight(layer + 1, new[0]))
            new[layer] = self._settle(layer, drive, new[layer], nudge)
        return tuple(new)

    @torch.no_grad()
    def relax(
        self, clamped: ClampedMLP, state: State | None, *, sweeps: int, tolerance: float | None = None,
        nudge: Nudge | None = None, trace: bool = False,
    ) -> Solution:
        """The sweeps above, in place; a complex nudge takes the plain road."""
        if state is not None and state[0].is_complex():
            return super().relax(clamped, state, sweeps=sweeps, tolerance=tolerance, nudge=nudge, trace=trace)
        pull = Pull.towards(nudge.target, nudge.beta, self.classes) if nudge else None
        return layered.relax_layers(
            clamped.layers, clamped.shared_drive, state, pull=pull, sweeps=sweeps, tolerance=tolerance, trace=trace
        )

    @torch.no_grad()
    def tangent(
        self, clamped: ClampedMLP, state: State, target: Tensor, *, sweeps: int, tolerance: float | None = None
    ) -> Solution:
        return relax_tangent(clamped.layers, state, target, sweeps=sweeps, tolerance=tolerance)

    @torch.no_grad()
    def deviate(
        self, clamped: ClampedMLP, free: State, nudge: Nudge, *, sweeps: int, tolerance: float | None = None,
        order: int = 2,
    ) -> Solution:
        """By the written-out kernel, whose responses are exact to every order; layer l in units of gamma^(K-l)."""
        return deviate_layers(clamped.layers, clamped.shared_drive, free, nudge.target, beta=nudge.beta, sweeps=sweeps,
                              tolerance=tolerance)

    def energy(self, clamped: ClampedMLP, state: State) -> Tensor:
        drive = clamped.drive
        total = drive.new_zeros(())
        for layer, units in enumerate(state):
            if layer > 0:
                weight, bias = self._weight(layer, units), self._bias(layer, units)
                drive = functional.linear(state[layer - 1], weight, bias)
            cost = 0.5 * units * units if self._is_output(layer) else self.activation.cost(units)
            total = total + self.gamma ** (layer + 1) * (cost - units * drive).sum(1)
        return total

    def logits(self, state: State) -> Tensor:
        if self.readout == "squared":
            return state[-1]
        return functional.linear(state[-1], self._weight(self.depth, state[-1]), self._bias(self.depth, state[-1]))

    @torch.no_grad()
    def add_energy_gradient(self, clamped: ClampedMLP, state: State, weights: Tensor) -> None:
        self._add(energy_gradient(clamped.layers, clamped.x, state, weights))

    @torch.no_grad()
    def add_tangent_gradient(self, clamped: ClampedMLP, state: State, direction: State, weight: float) -> None:
        self._add(tangent_gradient(clamped.layers, clamped.x, state, direction, weight=weight))

    @torch.no_grad()
    def add_deviation_gradient(
        self, clamped: ClampedMLP, free: State, deviation: State, coefficients: Sequence[complex], *, order: int = 2
    ) -> None:
        self._add(deviation_gradient(clamped.layers, clamped.x, free, deviation, coefficients=coefficients))

    @torch.no_grad()
    def add_readout_gradient(self, state: State, target: Tensor) -> Tensor:
        readout = None
        if self.readout == "softmax":
            readout = self._weight(self.depth), self._bias(self.depth).unsqueeze(0)
        loss, gradient = readout_gradient(readout, state[-1], target)
        if gradient is not None:
            add_to_grad((self._weight(-1), self._bias(-1)), gradient)
        return loss

    def as_layers(self) -> Layers:
        """The bare parameters, as the kernels take them."""
        pairs = [(layer.weight, layer.bias.unsqueeze(0)) for layer in cast(Iterable[nn.Linear], self.layers)]
        readout = pairs.pop() if self.readout == "softmax" else None
        weights, biases = zip(*pairs, strict=True)
        return Layers(weights, biases, readout, self.gamma, self.activation, self.solver, self._outliers)

    @torch.no_grad()
    def _followed(self, layers: Layers) -> Layers:
        """``layers`` with the strong directions of their weights, which are moved on once a batch."""
        if self.solver != "deflated" or self.depth == 1:
            return layers
        self._outliers = followed(self._outliers, layers.weights[1:])
        return replace(layers, outliers=self._outliers)

    def _add(self, gradients: Gradients) -> None:
        for layer, gradient in zip(cast(Iterable[nn.Linear], self.layers), gradients, strict=False):
            add_to_grad((layer.weight, layer.bias), gradient)

    def _settle(self, layer: int, drive: Tensor, units: Tensor | None, nudge: Nudge | None) -> Tensor:
        """Where a layer settles under its drive; at the top the loss is made linear at ``units``."""
        if self._is_output(layer):
            if nudge is None:
                return drive
            beta = nudge.beta.unsqueeze(1)
            return (drive + beta * self.one_hot(nudge.target, drive.dtype)) / (1 + beta)
        if nudge is not None and units is not None and layer == self.depth - 1:
            logits = self.logits((units,))
            error = self.one_hot(nudge.target, drive.dtype) - softmax(logits)
            drive = drive + (nudge.beta.unsqueeze(1) * error) @ self._weight(self.depth, units)
        return self.activation.function(drive)

    def _is_output(self, layer: int) -> bool:
        return self.readout == "squared" and layer == self.depth - 1

    def _weight(self, layer: int, like: Tensor | None = None) -> Tensor:
        weight = cast(nn.Linear, self.layers[layer]).weight
        return weight if like is None else weight.to(like.dtype)

    def _bias(self, layer: int, like: Tensor | None = None) -> Tensor:
        bias = cast(nn.Linear, self.layers[layer]).bias
        return bias if like is None else bias.to(like.dtype)
