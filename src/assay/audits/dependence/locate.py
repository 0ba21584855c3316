"""The first module that lets through what it must not: two traced passes, compared where nothing may differ."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.audits.dependence.changes import Change
from assay.probe.containment import attempt
from assay.probe.rounding import VANISHES
from assay.probe.subject import Probe
from assay.probe.trace import Event, record
from assay.probe.values import difference


@dataclass(frozen=True)
class LeakPlace:
    """Where a leak begins: the module, a phrase for people, and the class of the module."""

    module: str
    where: str
    kind: str


def first_leak(probe: Probe, change: Change) -> LeakPlace | None:
    """The first module whose tensors moved where the change must not be seen; None if no tensor can be aligned."""
    model, dtype = probe.twin(probe.precisions[-1]), probe.dtype(probe.precisions[-1])
    pair = attempt(lambda: [record(probe, leaves, model, dtype).events for leaves in (change.base, change.leaves)])
    if pair.value is None or not change.same_shape:
        return None
    share = VANISHES if probe.high is not None else 64 * torch.finfo(probe.low_dtype).eps
    later = {event.key: event for event in pair.value[1]}
    modules = dict(model.named_modules())
    wanted = _wanted(change)
    everything = all(bool(where.all()) for where in change.forbidden.values())
    for event in pair.value[0]:
        other = later.get(event.key)
        # Where a whole input is forbidden, it enters modules by right until one of them makes something of it.
        if other is None or (everything and event.kind == "enter"):
            continue
        if _moved(event, other, wanted, share):
            name = event.parent if event.kind == "enter" else event.module
            label = name or "(model)"
            if event.kind == "enter" and event.module:
                label = f"{label} (its own code, before it calls {event.label})"
            return LeakPlace(name, label, type(modules.get(name, model)).__name__)
    return None


def _wanted(change: Change) -> Tensor | None:
    """[rows, places] of the input that were left alone, or [rows]; None if everything was changed."""
    for where in change.forbidden.values():
        if bool(where.all()):
            return None
        flat = where
        while flat.ndim > 2:
            # The axis of places is the one along which the mask varies.
            axis = next((a for a in range(flat.ndim - 1, 0, -1) if bool((flat == flat.narrow(a, 0, 1)).all())), 1)
            flat = flat.select(axis, 0)
        return ~flat
    return None


def _moved(event: Event, other: Event, wanted: Tensor | None, share: float) -> bool:
    for (_, here), (_, there) in zip(event.tensors, other.tensors, strict=False):
        if here.shape != there.shape:
            continue
        kept = _mask(here, wanted)
        if kept is None:
            continue
        same = (here == there) | (torch.isnan(here) & torch.isnan(there))
        gap = torch.where(kept & ~same, difference(here, there).abs(), torch.zeros_like(here.abs().double()))
        finite = here[torch.isfinite(here)]
        size = float(finite.abs().max()) if finite.numel() else 0.0
        if not bool((gap <= share * size).all()):
            return True
    return False


def _mask(h: Tensor, wanted: Tensor | None) -> Tensor | None:
    """Which entries of a tensor inside the model belong to places that were left alone; None if it cannot be told."""
    if wanted is None:
        return torch.ones_like(h, dtype=torch.bool)
    rows = len(wanted)
    if wanted.ndim == 1 or bool((wanted == wanted[:, :1]).all()):
        per_row = wanted if wanted.ndim == 1 else wanted[:, 0]
        if h.ndim and len(h) % rows == 0 and len(h):
            return per_row.repeat_interleave(len(h) // rows).reshape(-1, *[1] * (h.ndim - 1)).expand(h.shape)
        return None
    places = wanted.shape[1]
    if h.ndim >= 2:
        for row_axis, axes in ((0, [1, *range(2, h.ndim)]), (1, [0])):
            for axis in axes:
                if h.shape[row_axis] == rows and h.shape[axis] == places and axis != row_axis:
                    shape = [1] * h.ndim
                    shape[row_axis], shape[axis] = rows, places
                    flat = wanted if row_axis < axis else wanted.T
                    return flat.reshape(shape).expand(h.shape)
    if h.ndim and len(h) == rows * places:
        return wanted.reshape(-1, *[1] * (h.ndim - 1)).expand(h.shape)
    return None
