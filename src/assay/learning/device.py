"""Where training happens: a device by name, and parts of a task brought there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import nn

from assay.errors import InputError, expected, unknown
from assay.probe.copies import device_of
from assay.protocols import Split

DEVICES = ("auto", "cpu", "cuda", "mps")
_ASKED: ContextVar[str | None] = ContextVar("device", default=None)


@contextmanager
def computing_on(name: str | None) -> Iterator[None]:
    """Within it, training and audits that name no device of their own happen on this one; None changes nothing.

    A track says what to train and not where: this is how ``verify(device=...)`` reaches what it calls.
    """
    token = _ASKED.set(name if name is not None else _ASKED.get())
    try:
        yield
    finally:
        _ASKED.reset(token)


def asked_device() -> str | None:
    """The device of the innermost ``computing_on``."""
    return _ASKED.get()


def chosen_device(name: str | None, model: nn.Module | None = None) -> torch.device:
    """The device called ``name``; ``auto`` takes the first accelerator there is.

    None is the device of ``computing_on``, if any; otherwise the model stays where it is.

    >>> chosen_device("cpu")
    device(type='cpu')
    """
    name = name if name is not None else asked_device()
    if name is None:
        return device_of(model) if model is not None else torch.device("cpu")
    kind, _, index = str(name).partition(":")
    if kind not in DEVICES or (index and not index.isdigit()):
        raise InputError(unknown("device", name, DEVICES))
    if kind == "auto":
        return torch.device(next((known for known in ("cuda", "mps") if _is_there(known)), "cpu"))
    if not _is_there(kind):
        raise expected(f"a machine with {kind}", given="none that torch can see", do="use device='cpu' or 'auto'")
    return torch.device(str(name))


def _is_there(kind: str) -> bool:
    if kind == "cuda":
        return torch.cuda.is_available()
    return kind != "mps" or torch.backends.mps.is_available()


def on_device(split: Split, device: torch.device) -> Split:
    """The same part of a task on a device."""
    if split.x.device == device and split.y.device == device:
        return split
    return Split(split.x.to(device), split.y.to(device))


def determinism(device: torch.device) -> str:
    """What can be said of running twice on a device."""
    if device.type == "cpu":
        return "the same bits on the same machine"
    flags = torch.are_deterministic_algorithms_enabled()
    return "deterministic algorithms are on" if flags else (
        f"not promised on {device.type}: torch.use_deterministic_algorithms is off")
