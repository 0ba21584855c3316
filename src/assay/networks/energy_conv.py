"""EnergyConv: a convolutional network whose feature maps settle between the map below and the map above.

    E = sum_{l=1..K} gamma^l [ R(s_l) - s_l . P(w_l * s_{l-1} + b_l) ],        s_0 = image

``*`` is a convolution, P the pooling. What a map hears from above is their transpose, gamma w_{l+1}^T P^T s_{l+1}: an
average spreads it over its window, a maximum sends it back to the entry that won. A maximum is convex, so with units
that are never negative -s . max(...) is concave in s_{l-1}, and linearising it, as the sweep does, can only lower E.
Signed (tanh) units lose that guarantee and are seen to flip between winners for ever, so they are refused with ``max``.
The energy is then only piecewise smooth: a nudge that changes a winner is a jump, like the kink of a clipped unit.
A linear softmax readout of the last maps lies outside the state, as in EnergyMLP.

An average of a convolution is itself a convolution, with stride 2 and a kernel one wider: 36 products a pooled entry
instead of 100 at kernel 5. The widened kernels are made once per batch, in ``clamp``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.errors import InputError, expected, unknown
from assay.networks.equilibrium import Elementwise, EquilibriumModule, check_inputs, seeded, softmax
from assay.protocols import Nudge, State
from assay.seeding import torch_generator
from assay.solving.activations import activation as activation_called

POOLINGS = ("average", "max")


@dataclass(frozen=True)
class ClampedImages:
    """Images, their pooled drive into the first maps, and the kernels that go with the pooling, computed once."""

    x: Tensor
    drive: Tensor
    kernels: tuple[Tensor, ...]

    def repeat(self, phases: int) -> Self:
        return type(self)(self.x, torch.cat([self.drive] * phases), self.kernels)


class EnergyConv(EquilibriumModule[ClampedImages]):
    """A convolutional energy network on images of ``shape`` (channels, height, width).

    Every layer is a ``kernel`` x ``kernel`` convolution that keeps the size of the map, then pooling by 2; ``channels``
    gives the maps of each layer.

    >>> model = EnergyConv((1, 8, 8), [4, 8], classes=10, seed=0)
    >>> model(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self, shape: tuple[int, int, int], channels: Sequence[int], *, classes: int = 10, kernel: int = 3,
        pooling: str = "max", gamma: float = 0.1, activation: str = "clipped", sweeps: int = 20,
        tolerance: float | None = 1e-6, seed: int = 0,
    ) -> None:
        size = 2 ** len(channels)
        if not channels or min(channels) < 1 or kernel % 2 == 0:
            raise expected("at least one layer of >= 1 channels and an odd kernel",
                           given=f"channels={list(channels)}, {kernel=}")
        if shape[1] % size or shape[2] % size:
            raise expected(f"a height and width divisible by {size} (pooling by 2 in each layer)",
                           given=f"shape {shape}", do="crop or pad the images, or use fewer layers")
        if not 0 < gamma <= 1:
            raise expected("gamma in (0, 1]", given=f"gamma={gamma}")
        if pooling not in POOLINGS:
            raise InputError(unknown("pooling", pooling, POOLINGS))
        if pooling == "max" and activation not in ("clipped", "smooth"):
            raise expected("units that are never negative under max pooling", given=f"activation='{activation}'",
                           do="use activation='clipped' or 'smooth', or pooling='average'")
        super().__init__(classes=classes, readout="softmax", sweeps=sweeps, tolerance=tolerance)
        generator = torch_generator(seed, "init", "energy-conv")
        self.shape, self.kernel, self.gamma, self.pooling = tuple(shape), kernel, gamma, pooling
        self.activation = activation_called(activation)
        depths = [shape[0], *channels]
        self.layers = nn.ModuleList(
            seeded(nn.Conv2d, below, above, kernel, padding=kernel // 2, generator=generator)
            for below, above in itertools.pairwise(depths)
        )
        features = channels[-1] * (shape[1] // size) * (shape[2] // size)
        self.output = cast(nn.Linear, seeded(nn.Linear, features, classes, generator=generator))
        self.depth = len(channels)

    @property
    def loss_scale(self) -> float:
        return self.gamma**self.depth

    def feedforward(self) -> nn.Sequential:
        """The limit gamma -> 0: an ordinary convolutional net that shares these very parameters."""
        pool = nn.MaxPool2d(2) if self.pooling == "max" else nn.AvgPool2d(2)
        blocks = [nn.Sequential(conv, pool, Elementwise(self.activation.function)) for conv in self.layers]
        return nn.Sequential(*blocks, nn.Flatten(), self.output)

    def clamp(self, x: Tensor) -> ClampedImages:
        check_inputs(x, shape=self.shape, like=self.output.weight, model="EnergyConv")
        kernels = tuple(self._kernel(layer) for layer in range(self.depth))
        return ClampedImages(x, channels_last(self._drive(kernels, 0, x)), kernels)

    def start(self, clamped: ClampedImages) -> State:
        state = [self.activation.function(clamped.drive)]
        for layer in range(1, self.depth):
            state.append(self.activation.function(self._drive(clamped.kernels, layer, state[-1])))
        return tuple(state)

    def sweep(self, clamped: ClampedImages, state: State, nudge: Nudge | None = None) -> State:
        """Free sweeps go up, nudged sweeps down."""
        new = [channels_last(units) for units in state]
        winners: dict[int, Tensor | None] = {}  # of this sweep; going down, a layer's feedback finds its own here
        for layer in range(self.depth) if nudge is None else reversed(range(self.depth)):
            units, drive = new[layer], clamped.drive.to(state[0].dtype)
            if layer > 0:
                drive, winners[layer] = self._pooled(clamped.kernels, layer, new[layer - 1])
            if layer + 1 < self.depth:
                heard = self._feedback(clamped.kernels, layer + 1, new[layer + 1], units, winners.get(layer + 1))
                drive = drive + self.gamma * heard
            elif nudge is not None:
                error = self.one_hot(nudge.target, units.dtype) - softmax(self.logits(tuple(new)))
                pull = (nudge.beta.unsqueeze(1) * error) @ self.output.weight.to(units.dtype)
                drive = drive + pull.view_as(units)
            new[layer] = self.activation.function(drive)
        return tuple(new)

    def energy(self, clamped: ClampedImages, state: State) -> Tensor:
        total = self.coupling(clamped, state)
        for layer, units in enumerate(state):
            total = total + self.gamma ** (layer + 1) * self.activation.cost(units).sum((1, 2, 3))
        return total

    def coupling(self, clamped: ClampedImages, state: State) -> Tensor:
        total = torch.zeros((), dtype=state[0].dtype, device=state[0].device)
        for layer, units in enumerate(state):
            drive = clamped.drive if layer == 0 else self._drive(clamped.kernels, layer, state[layer - 1])
            total = total - self.gamma ** (layer + 1) * (units * drive).sum((1, 2, 3))
        return total

    def logits(self, state: State) -> Tensor:
        maps = state[-1]
        return functional.linear(maps.flatten(1), self.output.weight.to(maps.dtype), self.output.bias.to(maps.dtype))

    def readout_parameters(self) -> tuple[nn.Parameter, ...]:
        return tuple(self.output.parameters())

    def _kernel(self, layer: int) -> Tensor:
        """The weights of a layer; under an average, the mean of their four shifts by at most one pixel."""
        weight = cast(nn.Conv2d, self.layers[layer]).weight
        if self.pooling == "max":
            return channels_last(weight)
        return channels_last(functional.avg_pool2d(functional.pad(weight, (1, 1, 1, 1)), 2, stride=1))

    def _drive(self, kernels: Sequence[Tensor], layer: int, below: Tensor) -> Tensor:
        """P(w * s + b): what a layer receives from the maps below."""
        return self._pooled(kernels, layer, below)[0]

    def _pooled(self, kernels: Sequence[Tensor], layer: int, below: Tensor) -> tuple[Tensor, Tensor | None]:
        """The drive of a layer and, under a maximum, which entries won."""
        if self.pooling == "average":
            return self._convolve(kernels, layer, below, stride=2), None
        drive, winners = functional.max_pool2d(self._convolve(kernels, layer, below), 2, return_indices=True)
        return drive, winners

    def _feedback(
        self, kernels: Sequence[Tensor], layer: int, above: Tensor, below: Tensor, winners: Tensor | None
    ) -> Tensor:
        """w^T P^T s: what the maps ``below`` receive from the layer above them."""
        kernel, padding = kernels[layer].to(above.dtype), self.kernel // 2
        if self.pooling == "average":
            return functional.conv_transpose2d(above, kernel, stride=2, padding=padding)
        if winners is None:
            _, winners = self._pooled(kernels, layer, below)
        spread = functional.max_unpool2d(above, cast(Tensor, winners), [2, 2])
        return functional.conv_transpose2d(spread, kernel, padding=padding)

    def _convolve(self, kernels: Sequence[Tensor], layer: int, below: Tensor, *, stride: int = 1) -> Tensor:
        bias = cast(Tensor, cast(nn.Conv2d, self.layers[layer]).bias)
        kernel = kernels[layer].to(below.dtype)
        return functional.conv2d(below, kernel, bias.to(below.dtype), stride=stride, padding=self.kernel // 2)


def channels_last(maps: Tensor) -> Tensor:
    """The same numbers with the channels innermost in memory: pooling and transposed convolutions are faster so."""
    return maps.contiguous(memory_format=torch.channels_last)
