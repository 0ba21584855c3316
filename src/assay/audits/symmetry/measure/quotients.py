"""One directional derivative: autograd against a difference quotient that knows its own error and sees kinks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

SAFETY = 10.0
"""A mismatch counts if it exceeds ten times the error that two step sizes show of the difference quotient."""
SHRINK = 8.0
STEPS = 4
"""A disagreement must survive steps that are 8, 64 and 512 times smaller: they get past a kink beside the point."""


@dataclass(frozen=True)
class Quotient:
    """Whether autograd and the difference quotient disagree, by how much, and whether there is a derivative at all."""

    differs: bool
    relative: float
    kinked: bool = False
    """The function has a kink at the very point (a ReLU at 0): every backward pass may choose its side."""


def quotient(analytic: float, value: Callable[[float], float], scale: float) -> Quotient:
    """Autograd's directional derivative against (value(h) - value(-h)) / 2h.

    The first step balances truncation h^2 against rounding eps / h: h = eps^(1/3) times the scale of the argument. A
    unit of a ReLU network closer to its kink than h spoils that quotient in every direction, so a disagreement is
    believed only if smaller steps confirm it. One that stays while the two one-sided quotients differ by an amount that
    does not shrink with h is a kink at the point itself.
    """
    eps = torch.finfo(torch.float64).eps
    here, step = math.nan, eps ** (1 / 3) * scale
    best, sides = Quotient(True, math.inf), []
    for _ in range(STEPS):
        above, below = value(step), value(-step)
        narrow = (above - below) / (2 * step)
        size = max(abs(analytic), abs(narrow), 1e-300)
        gap = abs(analytic - narrow)
        if gap <= eps ** (1 / 3) * size:
            return Quotient(False, gap / size)  # two values were enough
        here = value(0.0) if math.isnan(here) else here
        wide = (value(2 * step) - value(-2 * step)) / (4 * step)
        own_error = abs(wide - narrow) + eps * abs(here) / step
        if not math.isfinite(analytic) or not math.isfinite(own_error):
            return Quotient(True, math.inf)
        best = min(best, Quotient(True, gap / size), key=lambda one: one.relative)
        if gap <= SAFETY * own_error:
            return Quotient(False, gap / size)
        sides.append((abs(above - 2 * here + below) / step, SAFETY * eps * abs(here) / step))
        step /= SHRINK
    jump, rounding = sides[-1]
    kinked = jump > rounding and jump > 0.5 * sides[0][0]
    return Quotient(not kinked, best.relative, kinked)
