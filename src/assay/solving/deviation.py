"""The nudged phase in deviation coordinates: how far a nudge moves the units, never as a difference of two states.

A nudge of strength beta moves layer l of a deep network by about beta gamma^(K-l). Kept as a state, a move below 1e-7
of the state is lost in float32; kept as the unknown itself it has seven digits whatever its size. The map is that of
the states,

    d <- Phi(s + d, beta) - Phi(s, 0) = integral over t in (0, 1) of  dPhi(s + t d, t beta) [d, beta],

and the integral is taken by Gauss' rule with n nodes, each one Jacobian-vector product of the sweep: an error of order
2n + 1 in d, so n nodes keep 2n orders of beta. One node is the midpoint. A model with a closed form of its own
(``networks.energy_mlp.deviation``) uses that instead. The drift of a free state that is not at rest drops out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from assay.protocols import Clamped, EquilibriumModel, Nudge, State
from assay.solving.relaxation import ROUNDING, end_status
from assay.solving.solution import Solution
from assay.solving.tangent import load_forward_mode, make_dual, unpack_dual

Units = list[Tensor | None]
"""The deviation of each layer while it relaxes; None is zero, before the first sweep has reached the layer."""
Sweep = Callable[[Units, bool], list[float]]
"""One sweep in place; if asked to measure, the relative change of each layer."""
Batch = TypeVar("Batch", bound=Clamped)
Along = Callable[[State, State, Nudge, Tensor], Sequence[Tensor]]
"""d/dt of one nudged sweep from a state, the direction in which it moves, a nudge and how fast its beta grows."""


def relax_deviations(sweep: Sweep, layers: int, *, sweeps: int, tolerance: float | None, like: Tensor) -> Solution:
    """Deviations relaxed from zero by ``sweep``; the residuals are relative to the size of each layer's deviation.

    With a ``tolerance`` every sweep is measured and the first that changes no layer by more ends the run.
    """
    units: Units = [None] * layers
    residuals: list[float] = []
    by_layer: list[float] = []
    limit = tolerance if tolerance is not None else ROUNDING * torch.finfo(like.dtype).eps
    step = 0
    for step in range(1, sweeps + 1):
        by_layer = sweep(units, tolerance is not None or step == sweeps)
        if not by_layer:
            continue
        residuals.append(max(by_layer, key=lambda r: (not math.isfinite(r), r)))
        if not math.isfinite(residuals[-1]) or (tolerance is not None and residuals[-1] <= tolerance):
            break
    status = end_status(residuals, limit=limit, with_tolerance=tolerance is not None)
    value = tuple(torch.zeros_like(like) if layer is None else layer for layer in units)
    return Solution(value, status, tuple(residuals), step, tuple(by_layer))


def relative_change(before: Tensor | None, after: Tensor) -> float:
    """The largest change of a layer over its largest entry: 1 for a first value, 0 for a layer that stays at zero."""
    size = largest(after)
    if before is None:
        return 1.0 if size > 0 else 0.0 if size == 0 else math.nan
    moved = largest(after - before)
    return moved / size if size > 0 else 0.0 if moved == 0 else 1.0


def largest(layer: Tensor) -> float:
    """The largest absolute entry, in one pass and without a copy."""
    if layer.is_complex():
        return float(layer.abs().max())
    low, high = (float(end) for end in torch.aminmax(layer))
    return max(-low, high) if math.isfinite(low) and math.isfinite(high) else math.nan


def deviate(
    model: EquilibriumModel[Batch], clamped: Batch, free: State, nudge: Nudge, *, sweeps: int,
    tolerance: float | None = None, order: int = 2, written_out: Callable[[Batch], Along] | None = None,
) -> Solution:
    """The deviation of any model, from its pure sweep alone; see the head of this module.

    Forward mode takes many times as long as the sweep itself, so a model may have it ``written_out`` for a batch.
    """
    phases = len(nudge.beta) // len(free[0])
    batch = clamped.repeat(phases)
    along = _forward_mode(model, batch) if written_out is None else written_out(batch)
    resting = tuple(torch.cat([layer] * phases).to(nudge.beta.dtype) for layer in free)
    nodes, weights = gauss(order)

    def sweep(units: Units, measure: bool) -> list[float]:
        moved = tuple(torch.zeros_like(s) if d is None else d for s, d in zip(resting, units, strict=True))
        total: list[Tensor] | None = None
        for node, weight in zip(nodes, weights, strict=True):
            state = tuple(s + node * d for s, d in zip(resting, moved, strict=True))
            slopes = along(state, moved, Nudge(node * nudge.beta, nudge.target, nudge.anchor), nudge.beta)
            total = [weight * s for s in slopes] if total is None else [
                t.add_(s, alpha=weight) for t, s in zip(total, slopes, strict=True)
            ]
        assert total is not None
        changes = [relative_change(old, new) for old, new in zip(units, total, strict=True)] if measure else []
        units[:] = total
        return changes

    with torch.no_grad():
        return relax_deviations(sweep, len(free), sweeps=sweeps, tolerance=tolerance, like=resting[0])


def _forward_mode(model: EquilibriumModel[Batch], batch: Batch) -> Along:
    """The derivative by torch's forward mode, for any sweep."""
    load_forward_mode()

    def along(state: State, moved: State, nudge: Nudge, growth: Tensor) -> list[Tensor]:
        with forward_ad.dual_level():
            duals = tuple(make_dual(s, d) for s, d in zip(state, moved, strict=True))
            swept = model.sweep(batch, duals, Nudge(make_dual(nudge.beta, growth), nudge.target, nudge.anchor))
            slopes = [unpack_dual(layer).tangent for layer in swept]
            return [torch.zeros_like(s) if v is None else v for s, v in zip(state, slopes, strict=True)]

    return along


def gauss(order: int) -> tuple[list[float], list[float]]:
    """Nodes and weights of the shortest Gauss rule on (0, 1) that keeps ``order`` orders of beta."""
    nodes, weights = np.polynomial.legendre.leggauss(max(1, math.ceil(order / 2)))
    return [float(0.5 + 0.5 * x) for x in nodes], [float(0.5 * w) for w in weights]
