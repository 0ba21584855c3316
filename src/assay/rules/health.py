"""Health of one EP step: what reaches each layer, what rounding leaves of it, and whether the relaxations rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from assay.protocols import State
from assay.solving.deviation import largest as largest_entry
from assay.solving.relaxation import ROUNDING
from assay.solving.solution import Solution

LOST = 0.1
"""A layer whose signal is this much rounding has lost it: a tenth of its gradient is noise, and more further down."""
MOVING = 0.1
"""A relaxation whose last sweep changed a unit by this share of the largest (free), or a layer's deviation by this
share of itself (nudged), is not at rest. Schedules known to train well end at a few hundredths."""

FITTED = 1e-3
"""A mean loss below this, with nothing moved at all, is a batch that is fitted."""


class HealthWarning(UserWarning):
    """A step of equilibrium propagation that gives no trustworthy gradient somewhere; said once by a rule."""


@dataclass(frozen=True)
class LayerHealth:
    """One layer: the ``signal`` (root mean square of what the nudge moves, per unit of beta), the share of it that is
    ``rounding``, the last ``residual`` of its nudged relaxation where it was measured, and how far the last sweep of
    the free one ``moved`` a unit of it."""

    name: str
    signal: float
    rounding: float
    residual: float | None
    moved: float | None = None

    @property
    def lost(self) -> bool:
        """Whether nothing trustworthy of the signal is left."""
        return not self.rounding < LOST


@dataclass(frozen=True)
class Health:
    """Every layer from the input up, and how far from rest both relaxations ended."""

    layers: tuple[LayerHealth, ...]
    free: float
    nudged: float | None
    coordinates: Literal["deviations", "states"]

    @property
    def complaint(self) -> str | None:
        """What is wrong, where, and what to change; None if all is well."""
        if not self.free < MOVING:
            return (f"the free relaxation is not at rest{self._worst('moved')}: its last sweep moved a unit by "
                    f"{self.free:.2g}; "
                    "use more free sweeps, a smaller gamma, or smaller weights")
        if lost := [layer for layer in self.layers if layer.lost]:
            names = ", ".join(layer.name for layer in lost[:3]) + (" and more" if len(lost) > 3 else "")
            remedy = ("use coordinates='deviations', or a larger beta or gamma" if self.coordinates == "states"
                      else "its units are saturated or gamma is too small: use smaller weights or a larger gamma")
            return f"the signal of the nudge is lost in rounding at {names}; {remedy}"
        if self.nudged is not None and not self.nudged < MOVING:
            return (f"the nudged relaxation is not at rest{self._worst('residual')}: its last sweep changed the "
                    f"deviation by {self.nudged:.0%}; use more nudged sweeps or a smaller gamma")
        return None

    def _worst(self, of: Literal["residual", "moved"]) -> str:
        """Where a relaxation moves most, as far as it was measured by layer."""
        known = [(change, layer.name) for layer in self.layers if (change := getattr(layer, of)) is not None]
        if not known:
            return ""
        return f" at {max(known, key=lambda each: (math.isnan(each[0]), each[0]))[1]}"

    @property
    def sound(self) -> bool:
        """Whether there is nothing to complain about."""
        return self.complaint is None


def examine(
    names: Sequence[str], free: Solution, nudged: Solution, *, moved: State, resting: State, strength: float,
    coordinates: Literal["deviations", "states"], loss: float,
) -> Health:
    """The health of a step from the deviations ``moved`` (in any units of a layer) or, of states, their differences."""
    eps = torch.finfo(resting[0].dtype).eps
    tiny = torch.finfo(resting[0].dtype).tiny
    sizes = [float(torch.linalg.vector_norm(layer)) / math.sqrt(layer.numel()) for layer in moved]
    by_layer, freely = (phase.by_layer or (None,) * len(sizes) for phase in (nudged, free))
    # A batch that is fitted to rounding pulls nothing: there is no signal to lose. A dead layer has a loss above it.
    nothing_to_learn = sizes[-1] == 0 and loss < FITTED
    layers = []
    for name, size, units, residual, change in zip(names, sizes, resting, by_layer, freely, strict=True):
        if coordinates == "states":
            noise = eps * float(torch.linalg.vector_norm(units)) / math.sqrt(units.numel())
        else:
            noise = ROUNDING * eps * size + tiny
        share = 0.0 if nothing_to_learn else noise / size if size > 0 else math.inf
        layers.append(LayerHealth(name, size / strength, share, residual, change))
    one_sweep = nudged.steps <= 1 and len(moved) > 1
    measured = coordinates == "deviations" and not one_sweep
    largest = max(1.0, *(largest_entry(units) for units in resting))
    return Health(tuple(layers), free.residual / largest, nudged.residual if measured else None, coordinates)
