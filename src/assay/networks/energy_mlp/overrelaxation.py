"""Sweeps that overshoot: successive over-relaxation of a layered network, with a proof that each lowers the energy.

Under strong feedback (gamma 1, the classic network) plain sweeps creep: the change of a row shrinks by a factor rho a
sweep. A chain of layers is consistently ordered, so going on by omega = 2 / (1 + sqrt(1 - rho)) times the change
shrinks it by omega - 1 instead: at rho = 0.7 that is 0.29. rho of every row is read
from the sweeps themselves (``Rates``).

With all other layers held, the energy of a unit is phi(s) = R(s) - a s, least at s* = sigma(a). Let the step from s to
s* be delta and the overshoot t. With R'' at least l between s and s*, and at most h between s* and s* + t,

    phi(s) - phi(s*) >= l delta^2 / 2,        phi(s* + t) - phi(s*) <= h t^2 / 2,

so the energy does not rise if t <= delta sqrt(l / h). For tanh R'' = 1 / (1 - s^2): sqrt(l / h) is cheap. A clipped
unit is a parabola in a box: any overshoot up to delta, clipped, is nearer to its lowest point than s was (projected
SOR). Of deviations, whose energy is a quadratic to the order of beta, omega < 2 is enough (Ostrowski and Reich).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from assay.protocols import State
from assay.solving.deviation import largest

if TYPE_CHECKING:
    from assay.networks.energy_mlp.kernel import Sweep

FIRST = 0.25
"""omega - 1 of the first sweeps, times gamma: what strong feedback needs at least; weak feedback wants none."""
EVERY = 2
"""Sweeps between two looks at the rates: a change of omega takes as long to show."""
SLOWEST = 0.98
"""A rate above this is read as this: a row that has not yet found its valley shows any. omega stays below 1.76."""


class Rates:
    """How each row's change shrinks from sweep to sweep, and how far beyond a step to go because of it.

    A row that shrinks by lambda a sweep under omega would shrink by rho = (lambda + omega - 1)^2 / (lambda omega^2)
    under plain sweeps (Young); omega follows from the largest rho seen, looked at every EVERY sweeps.
    """

    def __init__(self, gamma: float) -> None:
        self.sweeps, self.first = 0, FIRST * gamma
        self.square: Tensor | None = None
        self.before: Tensor | None = None
        self.beyond: Tensor | None = None
        """omega - 1 of every row, (..., rows, 1); None before the first step."""

    def note(self, change: Tensor) -> None:
        """Add a layer's change in this sweep."""
        size = change.square().sum(-1, keepdim=True)
        if self.beyond is None:
            self.beyond = torch.full_like(size, self.first)
        self.square = size if self.square is None else self.square.add_(size)

    def next_sweep(self) -> None:
        """Close a sweep."""
        if self.square is None:
            return
        self.sweeps += 1
        if self.before is not None and self.sweeps % EVERY == 0:
            tiny = torch.finfo(self.square.dtype).tiny
            shrunk = (self.square / self.before.clamp_min(tiny)).sqrt_().nan_to_num_(0.0).clamp_(1e-3, SLOWEST)
            beyond = self.beyond
            assert beyond is not None
            rate = ((shrunk + beyond).square() / (shrunk * (1 + beyond).square())).clamp_(0.0, SLOWEST)
            better = 2 / (1 + (1 - rate).sqrt()) - 1
            self.beyond = torch.where(shrunk > beyond, torch.maximum(better, beyond), beyond)
        self.before, self.square = self.square, None


class OverRelaxed:
    """The free sweeps of ``Sweep``, each layer going on beyond its step; the residual is that of the plain step."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep, self.rates = sweep, Rates(sweep.layers.gamma)

    def __call__(self, state: State) -> State:
        self.measured(state)
        return state

    def measured(self, state: State) -> list[float]:
        """One sweep in place, and the largest step of each layer that a plain sweep would have made from here."""
        changes = []
        for layer in range(self.sweep.layers.depth):
            before = state[layer].clone()
            self.sweep.update(layer, state)
            step = state[layer] - before
            changes.append(largest(step))
            self.rates.note(step)
            self._go_on(layer, before, state[layer], step)
        self.rates.next_sweep()
        return changes

    def _go_on(self, layer: int, before: Tensor, units: Tensor, step: Tensor) -> None:
        """units <- units + t, with t as the head of this module allows."""
        layers, beyond = self.sweep.layers, self.rates.beyond
        assert beyond is not None
        if layers.is_output(layer) or layers.activation.sigmoid is None:
            units.addcmul_(step, beyond)
            if layers.activation.name == "clipped" and not layers.is_output(layer):
                units.clamp_(0.0, 1.0)
            return
        # s = m + h tanh: R'' is h / (h^2 - (s - m)^2), least between s and s* and most beyond.
        p, _, _, t = layers.activation.sigmoid
        half, middle = p / 2, t + p / 2
        ahead = torch.addcmul(units, step, beyond)
        reached = _room(units, middle, half)
        room = torch.minimum(reached, _room(ahead, middle, half)).clamp_min_(0.0)
        crossed = (before - middle) * (units - middle) < 0
        widest = torch.maximum(_room(before, middle, half), reached).masked_fill_(crossed, half * half)
        allowed = room.div_(widest.clamp_min_(torch.finfo(units.dtype).tiny)).sqrt_()
        units.addcmul_(step, torch.minimum(allowed, beyond.expand_as(allowed)))


def _room(units: Tensor, middle: float, half: float) -> Tensor:
    """(s - low) (high - s) of units between two bounds: exact near either."""
    return (units - (middle - half)).mul_((middle + half) - units)
