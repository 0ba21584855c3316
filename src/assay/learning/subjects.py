"""What an audit is asked to look at: a module, or what makes one, and its batch, on the device asked for."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from assay.learning.device import asked_device, chosen_device
from assay.learning.resolve import as_model
from assay.probe.tree import map_tensors


def as_module(given: Any, *, seed: int = 0) -> nn.Module:
    """The module itself if one was given; else what the import path, class or function of ``seed`` makes."""
    return given if isinstance(given, nn.Module) else as_model(given, seed=seed, keep=True)


def subject_of(model: Any, *batch: Any, seed: int = 0, device: str | None = None) -> tuple[Any, ...]:
    """The module and its batch, ready to be audited; without a device they stay where they are.

    A module that has to move is copied: audits leave what they are given as they found it. Of a batch every tensor
    moves, in whatever containers; a function that draws inputs is left alone.
    """
    module = as_module(model, seed=seed)
    if device is None and asked_device() is None:
        return module, *batch
    place = chosen_device(device)

    def moved(tensor: Tensor) -> Tensor:
        return tensor.to(place)

    there = all(value.device == place for value in (*module.parameters(), *module.buffers()))
    return (module if there else copy.deepcopy(module).to(place),
            *(part if callable(part) else map_tensors(part, moved) for part in batch))
