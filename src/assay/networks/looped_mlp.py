"""LoopedMLP: one layer of units that drive each other round and round until they rest.

    h <- sigma(W_in x + b + W h),        logits = W_o h + b_o

With *tied* weights, W = (A + A^T) / 2, the loop has an energy and equilibrium propagation is exact:

    E = R(h) - h . (W_in x + b) - 1/2 h . W h

*Untied*, W = A, there is no energy: the rule must be told (``nudge="asymmetric"``), or backprop through time used.
Spectral normalisation divides W (and W_in) by its largest singular value when that exceeds ``bound``. It runs once per
batch, in ``clamp``, not once per step, by a warm-started iteration with a certificate (``solving.spectral``), and
its derivative is part of the gradient. With bound <= 1 and slopes at most 1 the loop is a contraction, and the
synchronous sweep lowers the energy: E is bounded by a majoriser that R dominates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.errors import expected
from assay.networks.equilibrium import EquilibriumModule, check_inputs, seeded, softmax
from assay.protocols import Nudge, State
from assay.seeding import torch_generator
from assay.solving.activations import activation as activation_called
from assay.solving.deviation import Units, relative_change, relax_deviations
from assay.solving.responses import response
from assay.solving.solution import Solution
from assay.solving.spectral import BLOCK, SpectralNorm, spectral_norm

Norms = tuple[SpectralNorm | None, SpectralNorm | None]
"""Of the input weights and of the loop; None where nothing is normalised."""


@dataclass(frozen=True)
class ClampedLoop:
    """A batch, its constant drive and the loop's weights as used for this batch."""

    x: Tensor
    drive: Tensor
    loop: Tensor
    norms: Norms

    def repeat(self, phases: int) -> Self:
        return type(self)(self.x, self.drive.repeat(phases, 1), self.loop, self.norms)


class LoopedMLP(EquilibriumModule[ClampedLoop]):
    """The looped network with ``hidden`` units; ``spectral_norm`` limits both weights to singular values <= ``bound``.

    >>> model = LoopedMLP(4, 8, 3, seed=0)
    >>> model(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self, inputs: int, hidden: int, classes: int, *, tied: bool = True, spectral_norm: bool = True,
        bound: float = 1.0, activation: str = "tanh", sweeps: int = 30, tolerance: float | None = 1e-6, seed: int = 0,
    ) -> None:
        if min(inputs, hidden, classes) < 1:
            raise expected("inputs, hidden and classes >= 1", given=f"{inputs}, {hidden}, {classes}")
        if not bound > 0:
            raise expected("bound > 0", given=f"bound={bound}", do="1.0 is usual; below 1 is a strict contraction")
        super().__init__(classes=classes, readout="softmax", sweeps=sweeps, tolerance=tolerance)
        generator = torch_generator(seed, "init", "looped-mlp")
        self.inputs, self.tied, self.spectral_norm, self.bound = inputs, tied, spectral_norm, bound
        self.activation = activation_called(activation)
        self.input = cast(nn.Linear, seeded(nn.Linear, inputs, hidden, generator=generator))
        self.loop = cast(nn.Linear, seeded(nn.Linear, hidden, hidden, bias=False, generator=generator))
        self.output = cast(nn.Linear, seeded(nn.Linear, hidden, classes, generator=generator))
        # Where the last iterations for the norms ended; not part of what is saved.
        self.input_block: Tensor
        self.loop_block: Tensor
        self.register_buffer("input_block", torch.zeros(hidden, BLOCK), persistent=False)
        self.register_buffer("loop_block", torch.zeros(hidden, BLOCK), persistent=False)

    @property
    def loss_scale(self) -> float:
        return 1.0

    @property
    def symmetric(self) -> bool:
        return self.tied

    def loop_weight(self) -> Tensor:
        """W as the sweeps use it: tied and normalised as asked. Differentiable."""
        return self._normalised(self._loop(), self._norms()[1])

    def input_weight(self) -> Tensor:
        """W_in as the drive uses it."""
        return self._normalised(self.input.weight, self._norms()[0])

    def clamp(self, x: Tensor) -> ClampedLoop:
        check_inputs(x, shape=(self.inputs,), like=self.input.weight, model="LoopedMLP")
        norms = self._norms()
        drive = functional.linear(x, self._normalised(self.input.weight, norms[0]), self.input.bias)
        return ClampedLoop(x, drive, self._normalised(self._loop(), norms[1]), norms)

    def start(self, clamped: ClampedLoop) -> State:
        return (torch.zeros_like(clamped.drive),)

    def sweep(self, clamped: ClampedLoop, state: State, nudge: Nudge | None = None) -> State:
        """All units at once. The nudge of an untied loop carries an anchor: it removes the antisymmetric coupling."""
        (h,) = state
        loop = clamped.loop.to(h.dtype)
        drive = clamped.drive + h @ loop.t()
        if nudge is not None:
            target = self.one_hot(nudge.target, h.dtype)
            error = target - softmax(self.logits(state))
            drive = drive + (nudge.beta.unsqueeze(1) * error) @ self.output.weight.to(h.dtype)
            if nudge.anchor is not None:
                drive = drive - (h - nudge.anchor[0]) @ (loop.t() - loop)
        return (self.activation.function(drive),)

    @torch.no_grad()
    def deviate(
        self, clamped: ClampedLoop, free: State, nudge: Nudge, *, sweeps: int, tolerance: float | None = None,
        order: int = 2,
    ) -> Solution:
        """Written out: the force on a unit is what the others' deviations and the loss make of it."""
        (h,), dtype = free, nudge.beta.dtype
        phases = len(nudge.beta) // len(h)
        # With an anchor the antisymmetric part is taken away: h W^T - h (W^T - W) = h W.
        loop = clamped.loop.to(dtype) if nudge.anchor is not None else clamped.loop.to(dtype).t()
        readout, logits = self.output.weight.to(dtype), self.logits(free).to(dtype).repeat(phases, 1)
        target, beta = self.one_hot(nudge.target, dtype), nudge.beta.unsqueeze(1)
        excess = None if self.activation.smooth else clamped.drive + h @ clamped.loop.t() - h
        respond = response(self.activation, h, scale=1.0, phases=phases, strongest=float(nudge.beta.abs().max()),
                           excess=excess)

        def sweep(units: Units, measure: bool) -> list[float]:
            moved = units[0]
            shifted = logits if moved is None else torch.addmm(logits, moved, readout.t())
            force = (beta * (target - softmax(shifted))) @ readout
            new = respond(force if moved is None else torch.addmm(force, moved, loop))
            units[0] = new
            return [relative_change(moved, new)] if measure else []

        return relax_deviations(sweep, 1, sweeps=sweeps, tolerance=tolerance, like=h)

    def energy(self, clamped: ClampedLoop, state: State) -> Tensor:
        if not self.tied:
            raise expected("tied weights for an energy", given="an untied LoopedMLP", do="use tied=True")
        return self.activation.cost(state[0]).sum(1) + self.coupling(clamped, state)

    def coupling(self, clamped: ClampedLoop, state: State) -> Tensor:
        (h,) = state
        return -(h * (clamped.drive + 0.5 * (h @ clamped.loop.to(h.dtype)))).sum(1)

    def logits(self, state: State) -> Tensor:
        (h,) = state
        return functional.linear(h, self.output.weight.to(h.dtype), self.output.bias.to(h.dtype))

    def readout_parameters(self) -> tuple[nn.Parameter, ...]:
        return tuple(self.output.parameters())

    def slopes(self, clamped: ClampedLoop, state: State) -> tuple[Tensor, ...]:
        """Minus the vector field (dE/ds where there is an energy) without R'(h), which has no parameters in it."""
        (h,) = state
        return (-(clamped.drive + h @ clamped.loop.t().to(h.dtype)),)

    def add_deviation_gradient(
        self, clamped: ClampedLoop, free: State, deviation: State, coefficients: Sequence[complex], *, order: int = 2
    ) -> None:
        """Outer products by hand; only the normalisation, an elementwise scaling, is differentiated by autograd."""
        if deviation[0].is_complex():
            super().add_deviation_gradient(clamped, free, deviation, coefficients, order=order)
            return
        (h,), parts = free, deviation[0].chunk(len(coefficients))
        factors = [-complex(c).real / self.loss_scale for c in coefficients]
        total = sum((f * d for f, d in zip(factors, parts, strict=True)), torch.zeros_like(h))
        crossed = torch.zeros_like(clamped.loop)
        for factor, d in zip(factors, parts, strict=True):
            crossed.addmm_(d.t(), h + 0.5 * d, alpha=0.5 * factor)
        crossed = crossed + crossed.t()
        with torch.enable_grad():
            used = (self._normalised(self.input.weight, clamped.norms[0]),
                    self._normalised(self._loop(), clamped.norms[1]))
            along = (used[0] * (total.t() @ clamped.x)).sum() + (used[1] * crossed).sum()
            self._add_gradient(along + (self.input.bias * total.sum(0)).sum())

    def _loop(self) -> Tensor:
        weight = self.loop.weight
        return 0.5 * (weight + weight.t()) if self.tied else weight

    def _norms(self) -> Norms:
        """The largest singular values, found from those of the batch before."""
        if not self.spectral_norm:
            return None, None
        found = (spectral_norm(self.input.weight.detach(), self.input_block),
                 spectral_norm(self._loop().detach(), self.loop_block))
        self.input_block, self.loop_block = found[0].block, found[1].block
        return found

    def _normalised(self, weight: Tensor, norm: SpectralNorm | None) -> Tensor:
        return weight if norm is None else weight * (self.bound / norm.of(weight).clamp_min(self.bound))
