"""Does a rule that calls itself equilibrium propagation differentiate through the relaxation in secret?

Backprop through time gives the true gradient, so no comparison of gradients can tell. Three things can, from outside:
what the rule keeps alive grows with the number of sweeps; so does what automatic differentiation saves for its way
back; and a gradient that was not formed from nudged states does not change with the nudge. One is enough to be found
out. A rule that runs every sweep backwards from its end state, storing none, would pass the first two and fail the
third.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.probe.memory import measure_peak
from assay.rules.health import HealthWarning

GROWTH = 0.1
"""Share by which storage may grow when the sweeps are quadrupled: nothing that keeps the sweeps stays below it."""
STILL = 1e-6
"""Relative change of a gradient below which it did not change: ten float32 roundings. A nudge eight times smaller
changes a centered contrast by its bias, beta squared times a third derivative."""
FEW, MANY = 8, 32


@dataclass(frozen=True)
class ThroughTime:
    """``growth`` of the peak storage and ``saved`` of what autograd keeps, 8 to 32 sweeps; ``response`` to beta."""

    growth: float
    saved: float
    response: float

    @property
    def found(self) -> str | None:
        """Why this is backprop through the relaxation, or None."""
        if self.growth > GROWTH:
            return f"storage grows by {self.growth:.0%} when the sweeps are quadrupled: it goes through the relaxation"
        if self.saved > GROWTH:
            return f"autograd saves {self.saved:.0%} more for four times the sweeps: it goes through the relaxation"
        if not self.response > STILL:
            return "the gradient does not change with the nudge: it goes through the relaxation or round it"
        return None

    def also(self, other: ThroughTime) -> ThroughTime:
        """Both moments of a training: the larger growth of either, and the larger response.

        The bias of a nudge is as large as the error it pulls at, and vanishes in rounding once a network is trained to
        certainty; a gradient that takes no notice of the nudge takes none before training either.
        """
        return ThroughTime(max(self.growth, other.growth), max(self.saved, other.saved),
                           max(self.response, other.response))


def through_time(
    make: Callable[[int, float], Any], model: nn.Module, x: Tensor, y: Tensor, *, beta: float
) -> ThroughTime:
    """What tells backprop through time from EP; ``make(sweeps, beta)`` is the rule at so many sweeps and that nudge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HealthWarning)
        few, many = (_cost(make(sweeps, beta), model, x, y) for sweeps in (FEW, MANY))
        strong, weak = (_gradient(make(MANY, nudge), model, x, y) for nudge in (beta, beta / 8))
    change = float((strong - weak).norm() / strong.norm()) if float(strong.norm()) > 0 else 0.0
    return ThroughTime(_growth(few[0], many[0]), _growth(few[1], many[1]), change if math.isfinite(change) else 0.0)


def _growth(few: int, many: int) -> float:
    return many / few - 1 if few else (math.inf if many else 0.0)


def _cost(rule: Any, model: nn.Module, x: Tensor, y: Tensor) -> tuple[int, int]:
    """Bytes alive at the worst moment, and bytes that autograd saved for its way back."""
    twin = copy.deepcopy(model)
    saved = 0

    def pack(tensor: Tensor) -> Tensor:
        nonlocal saved
        saved += tensor.numel() * tensor.element_size()
        return tensor

    peak = measure_peak(lambda: rule.backward(twin, x, y)).bytes
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        rule.backward(twin, x, y)
    return peak, saved


def _gradient(rule: Any, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    twin = copy.deepcopy(model)
    for parameter in twin.parameters():
        parameter.grad = None
    rule.backward(twin, x, y)
    return torch.cat([p.grad.flatten() for p in twin.parameters() if p.grad is not None])
