"""A fresh copy of a user's module: the same architecture with weights drawn anew by a seed."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator

import torch
from torch import nn

from assay.errors import expected


def reinitialised(module: nn.Module, *, seed: int) -> nn.Module:
    """A copy of ``module`` whose parts have drawn their weights again, from ``seed`` alone.

    Every part that owns parameters must have ``reset_parameters`` (all of torch's layers do); otherwise the seeds of an
    experiment would share weights that nobody drew, and it is refused. The global generator is left as it was.
    """
    fresh = copy.deepcopy(module)
    frozen = [name or type(part).__name__ for name, part in fresh.named_modules()
              if any(True for _ in part.parameters(recurse=False)) and not _can_reset(part)]
    if frozen:
        raise expected(
            "a model whose parts can draw their weights again (reset_parameters), one model per seed",
            given=f"{type(module).__name__}, whose {', '.join(frozen[:3])} cannot",
            do="give a function of seed that makes the model",
        )
    with drawing_by(seed):
        for part in fresh.modules():
            if _can_reset(part):
                part.reset_parameters()  # type: ignore[operator]
    return fresh


@contextlib.contextmanager
def drawing_by(seed: int) -> Iterator[None]:
    """The global generator of torch starts from ``seed`` inside and is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _can_reset(part: nn.Module) -> bool:
    return callable(getattr(part, "reset_parameters", None))
