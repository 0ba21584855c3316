"""Relaxation to a fixed point: repeat a sweep a fixed number of times, or until it no longer moves anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from assay.errors import expected
from assay.protocols import State
from assay.solving.solution import Solution, Status

ROUNDING = 16.0
"""A sweep that moves no unit by more than this many units in the last place has come to rest in its precision:
each unit is one dot product (a few roundings of a number of order one) and one activation."""


def relax(
    sweep: Callable[[State], State], state: State, *, sweeps: int, tolerance: float | None = None, trace: bool = False,
    in_place: bool = False, measured: Callable[[State], Sequence[float]] | None = None,
) -> Solution:
    """The fixed point of ``sweep`` reached from ``state``, with the residual and an honest status.

    Without a tolerance exactly ``sweeps`` sweeps run and only the last is measured, so nothing is read back from the
    device in between. With one, every sweep is measured and the first that moves no unit by more than the tolerance
    ends the run. ``in_place`` says that ``sweep`` overwrites the tensors it is given;
    ``measured`` is such a sweep in place that also returns its largest change of each layer, without a copy of the
    whole state.
    """
    if isinstance(sweeps, bool) or not isinstance(sweeps, int) or sweeps < 1:
        raise expected("a number of sweeps >= 1", given=repr(sweeps))
    if tolerance is not None and not tolerance > 0:
        raise expected("tolerance > 0, or None for a fixed number of sweeps", given=repr(tolerance))
    residuals: list[float] = []
    by_layer: Sequence[float] = ()
    limit = tolerance if tolerance is not None else ROUNDING * torch.finfo(state[0].dtype).eps
    always = tolerance is not None or trace
    step = 0
    for step in range(1, sweeps + 1):
        if not (always or step == sweeps):
            state = sweep(state)
            continue
        if measured is not None:
            by_layer = measured(state)
        else:
            before = tuple(layer.clone() for layer in state) if in_place else state
            state = sweep(state)
            by_layer = changes_by_layer(before, state)
        residuals.append(worst(by_layer))
        if not math.isfinite(residuals[-1]) or (tolerance is not None and residuals[-1] <= tolerance):
            break
    status = end_status(residuals, limit=limit, with_tolerance=tolerance is not None)
    return Solution(state, status, tuple(residuals), step, tuple(by_layer))


def largest_change(before: State, after: State) -> float:
    """The largest absolute change of any unit between two states; NaN or infinity if either is not finite."""
    return worst(changes_by_layer(before, after))


def changes_by_layer(before: State, after: State) -> list[float]:
    """The largest absolute change of each layer."""
    changes = [(new.detach() - old.detach()).abs().max() for old, new in zip(before, after, strict=True)]
    return cast("list[float]", torch.stack(changes).tolist())


def worst(changes: Sequence[float]) -> float:
    """The largest of some changes; NaN if one is."""
    return math.nan if any(math.isnan(change) for change in changes) else max(changes)


def end_status(residuals: Sequence[float], *, limit: float, with_tolerance: bool) -> Status:
    """How a run with these residuals ended: at rest when the last is at most ``limit``."""
    last = residuals[-1]
    if not math.isfinite(last):
        return Status.DIVERGED
    if last <= limit:
        return Status.CONVERGED
    if with_tolerance and len(residuals) > 2 and last >= residuals[0]:
        return Status.DIVERGED
    return Status.UNCONVERGED if with_tolerance else Status.TRUNCATED


def check_finite(name: str, tensor: Tensor) -> None:
    """Nothing, or an InputError that counts the NaN and infinite entries of ``tensor``.

    The sum is a cheap first look: it is finite whenever all entries are and do not overflow.
    """
    if not bool(torch.isfinite(tensor.sum())):
        bad = int((~torch.isfinite(tensor)).sum())
        if bad:
            raise expected(f"finite {name}", given=f"{bad} NaN or infinite entries among {tensor.numel()}",
                           do="clean the data before it reaches the model")
