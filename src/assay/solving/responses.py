"""How a layer of units answers to a small force: [sigma(a + scale e) - sigma(a)] / scale, without cancellation.

``scale`` is what the deviation of the layer is measured in; see ``assay.solving.deviation``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from assay.errors import InputError
from assay.solving.activations import Activation
from assay.solving.deviation import gauss

LEAST_SCALE = 2.0**-60
"""A scale enters a response only through its curvature, which is below rounding in float64 long before this; a scale
that underflowed to zero would turn it into 0 / 0."""
BRIEF = 1 / 64
"""Up to this beta, float32 replaces tanh(x) by x / (1 + x^2 / 3). The relative error is x^4 / 45: below rounding for
x <= 0.04, which is passed by weights above 1 only, and far below the bias of the nudge, of order x, everywhere."""
LINEAR = 2.0**-30
"""A curvature of this size is below rounding even of a thousand times larger forces."""
NODES = 8
"""Gauss nodes for units without a closed form: orders up to 16 of a force of order one."""


class Response(ABC):
    """The answer of one layer, for forces whose rows are one or more phases of the rows of the free state."""

    @abstractmethod
    def __call__(self, force: Tensor) -> Tensor:
        """The answer to ``force``, in storage of its own: the force is still needed by who projects onto it."""


def response(
    unit: Activation, states: Tensor, *, scale: float, phases: int = 1, strongest: float = 1.0,
    excess: Tensor | None = None, rows: int = -2,
) -> Response:
    """The response of units at rest at ``states`` to forces of order ``strongest``.

    ``excess`` is the drive minus the state, needed for units with a kink. ``rows`` is the axis of the rows.
    """
    scale = max(scale, LEAST_SCALE)
    if unit.name == "identity":
        return _LinearResponse()
    if unit.sigmoid is not None:
        p, q, _, t = unit.sigmoid
        middle = states if (p, t) == (2.0, -1.0) else (states - t).mul_(2 / p).sub_(1)
        # Not 1 - m^2: 1 - m is exact where m is close to 1, and (1 - m) + (1 - m) m is the product with 1 + m.
        slope = 1 - middle
        slope.addcmul_(slope, middle)
        if p * q != 4:
            slope.mul_(p * q / 4)
        half = q * scale / 2
        brief = states.dtype == torch.float32 and strongest <= BRIEF
        form = _scaled if half * strongest < LINEAR else _brief if brief else _exact
        return Sigmoidal(form, half, middle, slope, phases, rows)
    if unit.bounds is not None and unit.leak:
        # A leaky unit tells its drive: beyond an end it goes on with the slope of the leak.
        low, high = unit.bounds
        inside = states.clamp(low, high)
        beyond = (states - inside) / (unit.leak * scale)
        return _Clipped(beyond, (low - inside) / scale, (high - inside) / scale, unit.leak, phases, rows)
    assert excess is not None
    if unit.bounds is not None:
        low, high = unit.bounds
        # Only a drive beyond the end at which a unit rests has to be undone; any other difference is drift.
        beyond = torch.where(states >= high, excess.clamp(min=0), torch.where(states <= low, excess.clamp(max=0), 0))
        return _Clipped(beyond / scale, (low - states) / scale, (high - states) / scale, unit.leak, phases, rows)
    return _ByQuadrature(unit.derivative, states + excess, scale, phases, rows)


@final
class _LinearResponse(Response):
    def __call__(self, force: Tensor) -> Tensor:
        return force.clone()


@final
@dataclass(frozen=True)
class Sigmoidal(Response):
    """p sigmoid(q a + r) + t: with m = tanh((q a + r) / 2) and T = tanh(q scale e / 2), p/2 (1 - m^2) T / (1 + m T)."""

    form: Callable[[Tensor, Tensor, Tensor, float], Tensor]
    half: float
    middle: Tensor
    slope: Tensor
    phases: int
    rows: int

    def __call__(self, force: Tensor) -> Tensor:
        each, slope, middle = _by_phase(force, self.slope, self.middle, phases=self.phases, rows=self.rows)
        return self.form(each, slope, middle, self.half).reshape(force.shape)


def _scaled(force: Tensor, slope: Tensor, middle: Tensor, half: float) -> Tensor:
    return force * slope


def _brief(force: Tensor, slope: Tensor, middle: Tensor, half: float) -> Tensor:
    room = torch.addcmul(torch.ones((), dtype=force.dtype, device=force.device), force, middle, value=half)
    room.addcmul_(force, force, value=half * half / 3)
    return torch.div(slope, room, out=room).mul_(force)


def _exact(force: Tensor, slope: Tensor, middle: Tensor, half: float) -> Tensor:
    turned = torch.tanh(half * force)
    room = torch.mul(turned, middle).add_(1)
    return turned.mul_(slope).div_(room).div_(half)


@final
@dataclass(frozen=True)
class _Clipped(Response):
    """A unit with room down to a lower and up to an upper end, and a drive in excess of it to undo first.

    Beyond its ends it may leak: sigma(a) = clip(a) + leak (a - clip(a)), as a leaky rectifier does.
    """

    excess: Tensor
    low: Tensor
    high: Tensor
    leak: float
    phases: int
    rows: int

    def __call__(self, force: Tensor) -> Tensor:
        if force.is_complex():
            raise InputError("a unit with a kink has no complex extension: use tanh or smooth with a holomorphic nudge")
        each, excess, low, high = _by_phase(force, self.excess, self.low, self.high, phases=self.phases, rows=self.rows)
        answer = each + excess
        torch.clamp(answer, low, high, out=answer)
        if self.leak:
            answer.mul_(1 - self.leak).add_(each, alpha=self.leak)
        return answer.reshape(force.shape)


@final
@dataclass(frozen=True)
class _ByQuadrature(Response):
    """Any smooth unit: the force times the mean slope between the two drives."""

    derivative: Callable[[Tensor], Tensor]
    drive: Tensor
    scale: float
    phases: int
    rows: int

    def __call__(self, force: Tensor) -> Tensor:
        each, drive = _by_phase(force, self.drive, phases=self.phases, rows=self.rows)
        mean = torch.zeros_like(each)
        for node, weight in zip(*gauss(2 * NODES), strict=True):
            mean.add_(self.derivative(drive + node * self.scale * each), alpha=weight)
        return mean.mul_(each).reshape(force.shape)


def _by_phase(force: Tensor, *shared: Tensor, phases: int, rows: int) -> tuple[Tensor, ...]:
    """The force as (..., phases, rows, ...) and what its phases share with an axis of one there."""
    if phases == 1:
        return (force, *shared)
    axis = force.dim() + rows if rows < 0 else rows
    return (torch.unflatten(force, axis, (phases, -1)), *(part.unsqueeze(axis) for part in shared))
