"""EnergyConv: a convolutional network whose feature maps settle between the map below and the map above.

    E = sum_{l=1..K} gamma^l [ R(s_l) - s_l . P(w_l * s_{l-1} + b_l) ],        s_0 = image

``*`` is a convolution, P the pooling. What a map hears from above is their transpose, gamma w_{l+1}^T P^T s_{l+1}: an
average spreads it over its window, a maximum sends it back to the entry that won. A maximum is convex, so with units
that are never negative -s . max(...) is concave in s_{l-1}, and linearising it, as the sweep does, can only lower E.
Signed (tanh) units lose that guarantee and are seen to flip between winners for ever, so they are refused with ``max``.
``max-first`` takes the maximum of the clamped image alone and averages above: its winners are fixed by the image, so
the energy is smooth in the state, and what feeds back is as easy to bring to rest as under an average.
The energy is then only piecewise smooth: a nudge that changes a winner is a jump, like the kink of a clipped unit.
A linear softmax readout of the last maps lies outside the state, as in EnergyMLP.

An average of a convolution is itself a convolution, with stride 2 and a kernel one wider: 36 products a pooled entry
instead of 100 at kernel 5. The widened kernels are made once per batch, in ``clamp``.

The pure ``sweep`` below is the definition; the phases of a gradient run in ``energy_conv.deviation``.
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
from assay.networks.energy_conv.deviation import FreeSweep, NudgedSweep, Trail, deviation_gradient, trail_at
from assay.networks.energy_conv.links import Links, Pooled, channels_last
from assay.networks.equilibrium import Elementwise, EquilibriumModule, add_to_grad, check_inputs, seeded, softmax
from assay.protocols import Nudge, State
from assay.seeding import torch_generator
from assay.solving.activations import activation as activation_called
from assay.solving.deviation import relax_deviations
from assay.solving.relaxation import relax
from assay.solving.solution import Solution

POOLINGS = ("average", "max", "max-first")


@dataclass(eq=False)
class ClampedImages:
    """Images, their pooled drive into the first maps, and the kernels that go with the pooling, computed once."""

    x: Tensor
    drive: Tensor
    kernels: tuple[Tensor, ...]
    winners: Tensor | None = None
    """Of the first layer, under a maximum."""
    trail: tuple[State, Trail] | None = None
    """What the last free relaxation of this batch left, beside the state it belongs to."""

    def repeat(self, phases: int) -> Self:
        winners = None if self.winners is None else torch.cat([self.winners] * phases)
        return type(self)(self.x, torch.cat([self.drive] * phases), self.kernels, winners)


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

    @property
    def by_maximum(self) -> tuple[bool, ...]:
        """Which layers pool by a maximum."""
        return tuple(self.pooling == "max" or (self.pooling == "max-first" and k == 0) for k in range(self.depth))

    def feedforward(self) -> nn.Sequential:
        """The limit gamma -> 0: an ordinary convolutional net that shares these very parameters."""
        pools = [nn.MaxPool2d(2) if maximum else nn.AvgPool2d(2) for maximum in self.by_maximum]
        blocks = [nn.Sequential(conv, pool, Elementwise(self.activation.function))
                  for conv, pool in zip(self.layers, pools, strict=True)]
        return nn.Sequential(*blocks, nn.Flatten(), self.output)

    def clamp(self, x: Tensor) -> ClampedImages:
        check_inputs(x, shape=self.shape, like=self.output.weight, model="EnergyConv")
        kernels = tuple(self._kernel(layer) for layer in range(self.depth))
        first = self._links(kernels).pooled(0, x)
        return ClampedImages(x, channels_last(first.drive), kernels, first.winners)

    def start(self, clamped: ClampedImages) -> State:
        first = Pooled(clamped.drive, clamped.winners)
        return FreeSweep(self._links(clamped.kernels), self.activation, self.gamma, first).start()

    def sweep(self, clamped: ClampedImages, state: State, nudge: Nudge | None = None) -> State:
        """Free sweeps go up, nudged sweeps down."""
        new, links = [channels_last(units) for units in state], self._links(clamped.kernels)
        winners: dict[int, Tensor | None] = {}  # of this sweep; going down, a layer's feedback finds its own here
        for layer in range(self.depth) if nudge is None else reversed(range(self.depth)):
            units, drive = new[layer], clamped.drive.to(state[0].dtype)
            if layer > 0:
                pooled = links.pooled(layer, new[layer - 1])
                drive, winners[layer] = pooled.drive, pooled.winners
            if layer + 1 < self.depth:
                if layer + 1 not in winners:
                    winners[layer + 1] = (
                        links.pooled(layer + 1, units).winners if links.by_maximum[layer + 1] else None)
                drive = drive + self.gamma * links.feedback(layer + 1, new[layer + 1], winners[layer + 1])
            elif nudge is not None:
                error = self.one_hot(nudge.target, units.dtype) - softmax(self.logits(tuple(new)))
                pull = (nudge.beta.unsqueeze(1) * error) @ self.output.weight.to(units.dtype)
                drive = drive + pull.view_as(units)
            new[layer] = self.activation.function(drive)
        return tuple(new)

    @torch.no_grad()
    def relax(
        self, clamped: ClampedImages, state: State | None, *, sweeps: int, tolerance: float | None = None,
        nudge: Nudge | None = None, trace: bool = False,
    ) -> Solution:
        """The sweeps above; a free run from the start keeps each winner until its maps change."""
        if nudge is not None or state is not None:
            return super().relax(clamped, state, sweeps=sweeps, tolerance=tolerance, nudge=nudge, trace=trace)
        first = Pooled(clamped.drive, clamped.winners)
        sweep = FreeSweep(self._links(clamped.kernels), self.activation, self.gamma, first)
        found = relax(sweep, sweep.start(), sweeps=sweeps, tolerance=tolerance, trace=trace)
        clamped.trail = (found.value, sweep.trail())
        return found

    @torch.no_grad()
    def deviate(
        self, clamped: ClampedImages, free: State, nudge: Nudge, *, sweeps: int, tolerance: float | None = None,
        order: int = 2,
    ) -> Solution:
        """Written out, layer l in units of gamma^(K-l); a complex nudge takes the general road."""
        if nudge.beta.is_complex():
            return super().deviate(clamped, free, nudge, sweeps=sweeps, tolerance=tolerance, order=order)
        wanted = nudge.beta.unsqueeze(1) * self.one_hot(nudge.target, free[0].dtype)
        sweep = NudgedSweep(
            self._links(clamped.kernels), self.activation, self.gamma, free=free, trail=self._trail(clamped, free),
            readout=self.output.weight, logits=self.logits(free), wanted=wanted, beta=nudge.beta,
        )
        return relax_deviations(sweep, self.depth, sweeps=sweeps, tolerance=tolerance, like=free[-1])

    @torch.no_grad()
    def add_deviation_gradient(
        self, clamped: ClampedImages, free: State, deviation: State, coefficients: Sequence[complex], *, order: int = 2
    ) -> None:
        if deviation[0].is_complex():
            super().add_deviation_gradient(clamped, free, deviation, coefficients, order=order)
            return
        winners, factors = self._trail(clamped, free).winners, [-complex(c).real for c in coefficients]
        links = self._links(clamped.kernels)
        found = deviation_gradient(
            links, self.gamma, clamped.x, free, deviation=deviation, winners=winners, factors=factors
        )
        for layer, gradient in zip(self.layers, found, strict=True):
            add_to_grad((layer.weight, layer.bias), gradient)

    def energy(self, clamped: ClampedImages, state: State) -> Tensor:
        total = self.coupling(clamped, state)
        for layer, units in enumerate(state):
            total = total + self.gamma ** (layer + 1) * self.activation.cost(units).sum((1, 2, 3))
        return total

    def coupling(self, clamped: ClampedImages, state: State) -> Tensor:
        total, links = torch.zeros((), dtype=state[0].dtype, device=state[0].device), self._links(clamped.kernels)
        for layer, units in enumerate(state):
            drive = clamped.drive if layer == 0 else links.pooled(layer, state[layer - 1]).drive
            total = total - self.gamma ** (layer + 1) * (units * drive).sum((1, 2, 3))
        return total

    def logits(self, state: State) -> Tensor:
        maps = state[-1]
        return functional.linear(maps.flatten(1), self.output.weight.to(maps.dtype), self.output.bias.to(maps.dtype))

    def readout_parameters(self) -> tuple[nn.Parameter, ...]:
        return tuple(self.output.parameters())

    def _links(self, kernels: Sequence[Tensor]) -> Links:
        biases = [cast(Tensor, cast(nn.Conv2d, layer).bias) for layer in self.layers]
        return Links(kernels, biases, self.kernel // 2, self.by_maximum)

    def _trail(self, clamped: ClampedImages, free: State) -> Trail:
        """What the relaxation that ended at ``free`` left, or the same found again."""
        if clamped.trail is None or clamped.trail[0] is not free:
            first = Pooled(clamped.drive, clamped.winners)
            clamped.trail = (free, trail_at(self._links(clamped.kernels), self.gamma, first, free))
        return clamped.trail[1]

    def _kernel(self, layer: int) -> Tensor:
        """The weights of a layer; under an average, the mean of their four shifts by at most one pixel."""
        weight = cast(nn.Conv2d, self.layers[layer]).weight
        if self.by_maximum[layer]:
            return channels_last(weight)
        return channels_last(functional.avg_pool2d(functional.pad(weight, (1, 1, 1, 1)), 2, stride=1))
