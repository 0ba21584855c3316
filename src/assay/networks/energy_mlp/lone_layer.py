"""A single hidden layer, relaxed by watching its output error alone.

Such a layer depends on nothing but the input, which is clamped, and the error e = beta (onehot - softmax(logits)) of
its few outputs: s = sigma(drive + e W_o). Free, one sweep is the fixed point, bit for bit. Nudged, the sweeps are an
iteration of the narrow e, and they are left out once the next one would move no unit by more than rounding. That is
known before it is measured: with slopes of sigma <= 1 and a softmax of Lipschitz constant 1/2, one sweep multiplies a
difference of e (Euclidean, row by row) by at most

    rate = 1/2 beta |W_o|^2,        |W_o|^2 <= the largest absolute row sum of W_o W_o^T,

so the last sweep is not measured when ``rate`` times the change before it is already below rounding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.networks.energy_mlp.layers import Layers, Pull, activate, multiply_add
from assay.protocols import State
from assay.solving.relaxation import ROUNDING, end_status
from assay.solving.solution import Solution, Status


def relax_lone_layer(
    layers: Layers, drive: Tensor, state: State | None, *, pull: Pull | None, sweeps: int, tolerance: float | None
) -> Solution:
    """The layer relaxed from ``state``, which is overwritten; its rows may be several phases of those of ``drive``.

    A residual is an upper bound of what one more sweep would change in any unit: the change of the error times the
    longest column of the readout.
    """
    if pull is None or state is None:
        units = torch.empty_like(drive) if state is None else state[0]
        activate(layers, 0, drive, out=units)
        state = (units,)
    if pull is None:
        return Solution(state, Status.CONVERGED, (0.0,), 1)
    assert layers.readout is not None
    units, (weight, bias) = state[0], layers.readout
    reach, rate = longest_column(weight), shrinkage(weight, float(pull.beta.abs().amax()))
    limit = max(ROUNDING * torch.finfo(units.dtype).eps, tolerance or 0.0)
    phases = torch.unflatten(units, -2, (-1, drive.shape[-2]))
    error = pull.error(multiply_add(bias.mT, weight, units.mT))
    residuals: list[float] = []
    for _ in range(sweeps):
        phases.copy_(drive.unsqueeze(-3))
        multiply_add(units, error.mT, weight, out=units)
        activate(layers, 0, units, out=units)
        if residuals and rate * residuals[-1] <= limit:
            residuals.append(rate * residuals[-1])
            break
        previous, error = error, pull.error(multiply_add(bias.mT, weight, units.mT))
        residuals.append(reach * longest_column(error - previous))
        if not residuals[-1] > limit:
            break
    status = end_status(residuals, limit=limit, with_tolerance=tolerance is not None)
    return Solution(state, status, tuple(residuals), len(residuals))


def shrinkage(weight: Tensor, beta: float) -> float:
    """By how much a sweep shrinks a change of the error, at least; a unit moves by at most the longest column."""
    return 0.5 * beta * float((weight @ weight.mT).abs_().sum(-1).amax())


def longest_column(matrix: Tensor) -> float:
    """The largest Euclidean length of a column."""
    return math.sqrt(matrix.abs().square().sum(-2).amax())
