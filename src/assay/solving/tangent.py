"""The direction in which a fixed point moves when the nudge is switched on: d s / d beta at beta = 0."""

from __future__ import annotations

import functools
import warnings
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from assay.protocols import Clamped, EquilibriumModel, Nudge, State
from assay.solving.relaxation import relax
from assay.solving.solution import Solution

make_dual: Any = forward_ad.make_dual
unpack_dual: Any = forward_ad.unpack_dual


Batch = TypeVar("Batch", bound=Clamped)


def tangent(
    model: EquilibriumModel[Batch], clamped: Batch, state: State, target: Tensor, *, sweeps: int,
    tolerance: float | None = None,
) -> Solution:
    """The solution v of v = (dPhi/ds) v + dPhi/dbeta, where Phi is one nudged sweep of ``model`` at its free ``state``.

    Implicit differentiation of the fixed point by the same relaxation that found it: each iteration is one
    Jacobian-vector product of the sweep in forward mode. Nothing is stored from one iteration to the next.
    """
    load_forward_mode()
    off = torch.zeros(len(state[0]), dtype=state[0].dtype, device=state[0].device)

    def step(direction: State) -> State:
        with forward_ad.dual_level():
            beta = make_dual(off, torch.ones_like(off))
            duals = tuple(make_dual(s, v) for s, v in zip(state, direction, strict=True))
            swept = model.sweep(clamped, duals, Nudge(beta, target))
            moved = (unpack_dual(layer).tangent for layer in swept)
            return tuple(torch.zeros_like(s) if v is None else v for s, v in zip(state, moved, strict=True))

    with torch.no_grad():
        return relax(step, tuple(torch.zeros_like(s) for s in state), sweeps=sweeps, tolerance=tolerance)


@functools.cache
def load_forward_mode() -> None:
    """Load torch's forward-mode rules, which script themselves on first use and warn that scripting is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with forward_ad.dual_level():
            make_dual(torch.zeros(1), torch.zeros(1))
