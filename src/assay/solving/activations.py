"""Activations of units that minimise an energy: each is the inverse of the slope of a convex cost R of the state.

A unit with drive ``a`` minimises ``R(s) - s a``, so it settles at ``s = sigma(a)`` with ``sigma = (R')^{-1}``. That is
what makes the sweep of a network and the energy of a network two sides of one thing; an R that does not fit its sigma
gives a contrast that is not the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.errors import InputError, unknown


@dataclass(frozen=True)
class Activation:
    """``function(a)``, its ``cost`` R(s) and its slope written as a function of the state, ``slope(s) = sigma'(a)``.

    ``sigmoid`` holds (p, q, r, t) when sigma(a) = p sigmoid(q a + r) + t: such units answer a force in closed form
    (``responses``).
    """

    name: str
    function: Callable[[Tensor], Tensor]
    cost: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    sigmoid: tuple[float, float, float, float] | None = None
    smooth: bool = True
    bounds: tuple[float, float] | None = None
    """Of a unit that is its drive between two kinks; beyond them it stays, or goes on with the slope ``leak``."""
    leak: float = 0.0
    into: Callable[[Tensor, Tensor], object] | None = None
    """The function of real numbers, written into a tensor that may be the drive: what sweeps in place call."""
    rough: Callable[[Tensor, Tensor], object] | None = None
    """The same where a state is only needed to the rounding of a number of order one, which may be faster."""

    @property
    def reach(self) -> tuple[float, float] | None:
        """The lowest and the highest state of a unit; None where there is none."""
        if self.sigmoid is not None:
            p, _, _, t = self.sigmoid
            return (t, p + t)
        return None if self.leak else self.bounds

    def settle(self, drive: Tensor, *, out: Tensor, roughly: bool = False) -> None:
        """sigma(a) into ``out``, which may be the drive itself; ``roughly`` is what ``rough`` says."""
        into = self.rough if roughly and self.rough is not None else self.into
        if into is None:
            out.copy_(self.function(drive))
        else:
            into(drive, out)

    def derivative(self, drive: Tensor) -> Tensor:
        """sigma'(a), from the drive."""
        return self.slope(self.function(drive))


def activation(name: str) -> Activation:
    """The activation called ``name``: tanh, clipped, smooth or identity.

    >>> activation("tanh").function(torch.zeros(1))
    tensor([0.])
    """
    try:
        return _ACTIVATIONS[name]
    except KeyError:
        raise InputError(unknown("activation", name, _ACTIVATIONS)) from None


def _clipped(drive: Tensor) -> Tensor:
    if drive.is_complex():
        raise InputError("a clipped unit has no complex extension: use tanh or smooth with a holomorphic nudge")
    return drive.clamp(0.0, 1.0)


def _tanh_into(drive: Tensor, out: Tensor) -> Tensor:
    return torch.tanh(drive, out=out)


def _tanh_roughly_into(drive: Tensor, out: Tensor) -> Tensor:
    if drive.dtype != torch.float32 or drive.device.type != "cpu":
        return torch.tanh(drive, out=out)
    # torch's sigmoid is vector code of its own, its tanh that of a library which is slow on processors of some makers:
    # 135 microseconds for 128 x 512 numbers, 28 elsewhere. This takes 21 to 35.
    torch.mul(drive, 2.0, out=out).sigmoid_()
    return torch.add(drive.new_full((), -1.0), out, alpha=2.0, out=out)


def _clipped_into(drive: Tensor, out: Tensor) -> Tensor:
    return torch.clamp(drive, 0.0, 1.0, out=out)


def _smooth_into(drive: Tensor, out: Tensor) -> Tensor:
    # 4 a - 2 in one pass: the scaled addend may be any tensor, the other a single number.
    return torch.add(drive.new_full((), -2.0), drive, alpha=4.0, out=out).sigmoid_()


def _tanh_cost(s: Tensor) -> Tensor:
    # R' = atanh; written with xlogy so that a saturated unit (|s| = 1 in floating point) costs ln 2, not NaN.
    return 0.5 * (_xlogx(1 + s) + _xlogx(1 - s))


def entropy(s: Tensor) -> Tensor:
    """The cost of a sigmoid unit, s log s + (1 - s) log(1 - s)."""
    return _xlogx(s) + _xlogx(1 - s)


def _smooth_cost(s: Tensor) -> Tensor:
    return 0.25 * (entropy(s) + 2 * s)


def _xlogx(x: Tensor) -> Tensor:
    return x * torch.log(x) if x.is_complex() else torch.special.xlogy(x, x)


def _tanh_slope(s: Tensor) -> Tensor:
    return torch.addcmul(s.new_ones(()), s, s, value=-1)


def _clipped_slope(s: Tensor) -> Tensor:
    return ((s > 0) & (s < 1)).to(s.dtype)


def _smooth(drive: Tensor) -> Tensor:
    return torch.sigmoid(4 * drive - 2)


def _smooth_slope(s: Tensor) -> Tensor:
    return 4 * s * (1 - s)


def _identity(drive: Tensor) -> Tensor:
    return drive


def _half_square(s: Tensor) -> Tensor:
    return 0.5 * s * s


# Named functions, not lambdas: a model holds its activation, and pickle (torch.save, other processes) goes by name.
_ACTIVATIONS = {
    "tanh": Activation("tanh", torch.tanh, _tanh_cost, _tanh_slope, sigmoid=(2.0, 2.0, 0.0, -1.0),
                       into=_tanh_into, rough=_tanh_roughly_into),
    "clipped": Activation("clipped", _clipped, _half_square, _clipped_slope, smooth=False, bounds=(0.0, 1.0),
                          into=_clipped_into),
    # The smooth neighbour of `clipped`: range (0, 1), slope 1 in the middle.
    "smooth": Activation("smooth", _smooth, _smooth_cost, _smooth_slope, sigmoid=(1.0, 4.0, -2.0, 0.0),
                         into=_smooth_into),
    "identity": Activation("identity", _identity, _half_square, torch.ones_like),
}
