"""Where training happens: a device by name, and parts of a task brought there."""

from __future__ import annotations

import torch
from torch import nn

from assay.errors import InputError, expected, unknown
from assay.protocols import Split

DEVICES = ("auto", "cpu", "cuda", "mps")


def chosen_device(name: str | None, model: nn.Module | None = None) -> torch.device:
    """The device called ``name``; ``auto`` takes the first accelerator there is, None leaves the model where it is.

    >>> chosen_device("cpu")
    device(type='cpu')
    """
    if name is None:
        first = next(iter(model.parameters()), None) if model is not None else None
        return first.device if first is not None else torch.device("cpu")
    kind, _, index = str(name).partition(":")
    if kind not in DEVICES or (index and not index.isdigit()):
        raise InputError(unknown("device", name, DEVICES))
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if kind == "auto":
        return torch.device(next((known for known in ("cuda", "mps") if there[known]), "cpu"))
    if not there[kind]:
        raise expected(f"a machine with {kind}", given="none that torch can see", do="use device='cpu' or 'auto'")
    return torch.device(str(name))


def on_device(split: Split, device: torch.device) -> Split:
    """The same part of a task on a device."""
    if split.x.device == device and split.y.device == device:
        return split
    return Split(split.x.to(device), split.y.to(device))


def gpus_of(name: str | None) -> float:
    """How many accelerators a cell needs that computes on this device."""
    return 1.0 if name is not None and chosen_device(name).type == "cuda" else 0.0


def determinism(device: torch.device) -> str:
    """What can be said of running twice on a device."""
    if device.type == "cpu":
        return "the same bits on the same machine"
    flags = torch.are_deterministic_algorithms_enabled()
    return "deterministic algorithms are on" if flags else (
        f"not promised on {device.type}: torch.use_deterministic_algorithms is off")
