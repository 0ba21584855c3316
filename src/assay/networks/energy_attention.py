"""EnergyAttention: attention over the input whose output settles together with the layers above it.

Tokens are embedded once: queries q_i, keys k_j and values v_j (per head) are clamped with the input. The attended
state h and K layers z_1 .. z_K of tanh units minimise

    E = sum_i [ 1/2 |h_i|^2 - 1/(a g) logsumexp_j a (q_i . k_j + g h_i . v_j) ]           one term per head
        + sum_{l=1..K} gamma^l sum_i [ R(z_li) - z_li . (W_l z_{l-1,i} + b_l) ],          z_0 = h

so at rest every position attends by what it asks for *and* by what the layers above make of it:

    h_i = sum_j softmax_j( a (q_i . k_j + g h_i . v_j) ) v_j + gamma W_1^T z_1i

Here g = gamma; as it goes to 0 this is ordinary attention followed by a perceptron. The update of h minimises a
majoriser of E (logsumexp is convex), so free sweeps lower the energy. The logits of each position are W_o z_K + b_o,
outside the state.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.errors import expected
from assay.networks.equilibrium import EquilibriumModule, seeded, softmax
from assay.protocols import Nudge, State
from assay.seeding import torch_generator
from assay.solving.activations import activation as activation_called
from assay.solving.deviation import Along, deviate
from assay.solving.solution import Solution


@dataclass(frozen=True)
class ClampedTokens:
    """Tokens, their scaled scores a q_i . k_j (rows, heads, length, length) and values (rows, heads, length, size)."""

    x: Tensor
    scores: Tensor
    values: Tensor

    def repeat(self, phases: int) -> Self:
        return type(self)(self.x, self.scores.repeat(phases, 1, 1, 1), self.values.repeat(phases, 1, 1, 1))


class EnergyAttention(EquilibriumModule[ClampedTokens]):
    """An equilibrium transformer for sequences of ``length`` tokens out of ``vocabulary``, one class per position.

    ``attention=False`` leaves every position to itself (each attends to its own value alone), a control that cannot
    move information between positions.

    >>> model = EnergyAttention(10, length=8, seed=0)
    >>> model(torch.zeros(5, 8, dtype=torch.long)).shape
    torch.Size([5, 8, 10])
    """

    def __init__(
        self, vocabulary: int, *, length: int, classes: int | None = None, width: int = 64, heads: int = 4,
        layers: int = 1, hidden: int | None = None, gamma: float = 0.25, attention: bool = True, sweeps: int = 8,
        tolerance: float | None = 1e-5, seed: int = 0,
    ) -> None:
        if min(vocabulary, length, width, heads, layers) < 1 or width % heads:
            raise expected("vocabulary, length, layers >= 1 and a width that is a multiple of heads",
                           given=f"vocabulary={vocabulary}, length={length}, layers={layers}, {width=}, {heads=}")
        if not 0 < gamma <= 1:
            raise expected("gamma in (0, 1]", given=f"gamma={gamma}", do="0.1 settles in a few sweeps, 1 hardly ever")
        super().__init__(classes=classes or vocabulary, readout="softmax", sweeps=sweeps, tolerance=tolerance)
        self.vocabulary, self.length, self.width, self.heads = vocabulary, length, width, heads
        self.gamma, self.attention = gamma, attention
        self.scale = (width // heads) ** -0.5
        self.activation = activation_called("tanh")
        generator = torch_generator(seed, "init", "energy-attention")
        self.tokens = nn.Parameter(torch.randn(vocabulary, width, generator=generator))
        self.positions = nn.Parameter(torch.randn(length, width, generator=generator))
        self.project = seeded(nn.Linear, width, 3 * width, bias=False, generator=generator)
        sizes = [width] + [hidden or width] * layers + [self.classes]
        self.layers = nn.ModuleList(
            seeded(nn.Linear, below, above, generator=generator) for below, above in itertools.pairwise(sizes)
        )
        self.depth = layers

    @property
    def loss_scale(self) -> float:
        # The row loss is a mean over positions; each position is to be nudged with the full beta.
        return self.gamma**self.depth * self.length

    def clamp(self, x: Tensor) -> ClampedTokens:
        self._check_tokens(x)
        embedded = self.tokens[x] + self.positions
        q, k, v = (self._split(part) for part in self.project(embedded).chunk(3, -1))
        scores = self.scale * (q @ k.transpose(-1, -2))
        if not self.attention:
            elsewhere = ~torch.eye(self.length, dtype=torch.bool, device=x.device)
            scores = scores.masked_fill(elsewhere, float("-inf"))
        return ClampedTokens(x, scores, v)

    def start(self, clamped: ClampedTokens) -> State:
        state = [self._join(softmax(clamped.scores) @ clamped.values)]
        for layer in range(self.depth):
            state.append(self.activation.function(self._drive(layer, state[-1])))
        return tuple(state)

    def sweep(self, clamped: ClampedTokens, state: State, nudge: Nudge | None = None) -> State:
        """Free sweeps go up from the attended state, nudged sweeps down from the output."""
        new = list(state)
        for layer in range(self.depth + 1) if nudge is None else reversed(range(self.depth + 1)):
            units = new[layer]
            drive = self._attend(clamped, units) if layer == 0 else self._drive(layer - 1, new[layer - 1])
            if layer < self.depth:
                drive = drive + self.gamma * (new[layer + 1] @ self._weight(layer, units))
            elif nudge is not None:
                error = self.one_hot(nudge.target, units.dtype) - softmax(self.logits(tuple(new)))
                drive = drive + (nudge.beta.view(-1, 1, 1) * error) @ self._weight(self.depth, units)
            new[layer] = drive if layer == 0 else self.activation.function(drive)
        return tuple(new)

    def deviate(
        self, clamped: ClampedTokens, free: State, nudge: Nudge, *, sweeps: int, tolerance: float | None = None,
        order: int = 2,
    ) -> Solution:
        # A subclass with another sweep has another derivative.
        own = type(self).sweep is EnergyAttention.sweep and type(self).logits is EnergyAttention.logits
        return deviate(
            self, clamped, free, nudge, sweeps=sweeps, tolerance=tolerance, order=order,
            written_out=self._derivative if own else None,
        )

    def _derivative(self, clamped: ClampedTokens) -> Along:
        return lambda state, moved, nudge, growth: self._along(clamped, state, moved, nudge=nudge, growth=growth)

    def _along(
        self, clamped: ClampedTokens, state: State, moved: State, *, nudge: Nudge, growth: Tensor
    ) -> list[Tensor]:
        """d/dt of one nudged sweep whose state moves by ``moved`` and whose beta grows by ``growth``."""
        new, slopes = list(state), list(moved)
        for layer in reversed(range(self.depth + 1)):
            if layer == 0:
                drive, slope = self._attend_along(clamped, new[0], slopes[0])
            else:
                drive = self._drive(layer - 1, new[layer - 1])
                slope = slopes[layer - 1] @ self._weight(layer - 1, drive).mT
            weight = self._weight(layer, drive)
            if layer < self.depth:
                above, its_slope = new[layer + 1], slopes[layer + 1]
                drive, slope = drive + self.gamma * (above @ weight), slope + self.gamma * (its_slope @ weight)
            else:
                answer = softmax(self.logits(tuple(new)))
                error, changes = self.one_hot(nudge.target, drive.dtype) - answer, slopes[-1] @ weight.mT
                beta, faster = nudge.beta.view(-1, 1, 1), growth.view(-1, 1, 1)
                drive = drive + (beta * error) @ weight
                slope = slope + (faster * error - beta * _softmax_along(answer, changes)) @ weight
            if layer:
                drive = self.activation.function(drive)
                slope = slope * self.activation.slope(drive)
            new[layer], slopes[layer] = drive, slope
        return slopes

    def _attend_along(self, clamped: ClampedTokens, units: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        values, reach = clamped.values.to(units.dtype), self.scale * self.gamma
        attended = softmax(clamped.scores + reach * (self._split(units) @ values.mT))
        change = _softmax_along(attended, reach * (self._split(slope) @ values.mT))
        return self._join(attended @ values), self._join(change @ values)

    def energy(self, clamped: ClampedTokens, state: State) -> Tensor:
        total = self.coupling(clamped, state) + 0.5 * (state[0] * state[0]).sum((1, 2))
        for layer, units in enumerate(state[1:]):
            total = total + self.gamma ** (layer + 1) * self.activation.cost(units).sum((1, 2))
        return total

    def coupling(self, clamped: ClampedTokens, state: State) -> Tensor:
        h, values = self._split(state[0]), clamped.values.to(state[0].dtype)
        scores = clamped.scores + self.scale * self.gamma * (h @ values.transpose(-1, -2))
        total: Tensor = -_logsumexp(scores).sum((1, 2)) / (self.scale * self.gamma)
        for layer, (below, units) in enumerate(itertools.pairwise(state)):
            total = total - self.gamma ** (layer + 1) * (units * self._drive(layer, below)).sum((1, 2))
        return total

    def logits(self, state: State) -> Tensor:
        return self._drive(self.depth, state[-1])

    def readout_parameters(self) -> tuple[nn.Parameter, ...]:
        return tuple(self.layers[-1].parameters())

    def _attend(self, clamped: ClampedTokens, units: Tensor) -> Tensor:
        values = clamped.values.to(units.dtype)
        scores = clamped.scores + self.scale * self.gamma * (self._split(units) @ values.transpose(-1, -2))
        return self._join(softmax(scores) @ values)

    def _drive(self, layer: int, below: Tensor) -> Tensor:
        bias = cast(nn.Linear, self.layers[layer]).bias
        return functional.linear(below, self._weight(layer, below), bias.to(below.dtype))

    def _weight(self, layer: int, like: Tensor) -> Tensor:
        return cast(nn.Linear, self.layers[layer]).weight.to(like.dtype)

    def _split(self, units: Tensor) -> Tensor:
        """(rows, length, width) to (rows, heads, length, size)."""
        return torch.unflatten(units, -1, (self.heads, -1)).transpose(1, 2)

    def _join(self, heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(2)

    def _check_tokens(self, x: Tensor) -> None:
        if x.dtype != torch.long:
            raise expected("tokens of dtype torch.int64 for EnergyAttention", given=f"x of dtype {x.dtype}")
        if x.dim() != 2 or x.shape[1] != self.length or len(x) == 0:
            raise expected(f"tokens of shape (batch, {self.length})", given=f"x of shape {tuple(x.shape)}")
        low, high = (int(v) for v in torch.aminmax(x))
        if low < 0 or high >= self.vocabulary:
            raise expected(f"tokens from 0 to {self.vocabulary - 1}", given=f"tokens from {low} to {high}")


def _softmax_along(answer: Tensor, changes: Tensor) -> Tensor:
    """The change of a softmax, given its value and the change of what goes in; zero where nothing is attended to."""
    moved = answer * changes
    return moved - answer * moved.sum(-1, keepdim=True)


def _logsumexp(scores: Tensor) -> Tensor:
    """Log of the sum of exponentials over the last axis, also for complex scores."""
    top = scores.real.amax(-1, keepdim=True) if scores.is_complex() else scores.amax(-1, keepdim=True)
    result: Tensor = torch.log(torch.exp(scores - top).sum(-1)) + top.squeeze(-1)
    return result
