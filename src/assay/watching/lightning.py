"""A Lightning callback: ``Trainer(callbacks=[AssayCallback(credit=(x, y))])``; needs lightning or pytorch-lightning."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from assay.errors import MissingExtra
from assay.watching.watch import Watch

if TYPE_CHECKING:
    Callback = Any
else:
    try:
        if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
            from pytorch_lightning import Callback
        else:
            from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback
        except ImportError:
            Callback = object


class AssayCallback(Callback):  # type: ignore[misc, unused-ignore]
    """Numbers of ``assay.watching.Watch`` logged with the module's own; ``callback.watch`` holds history and findings.

    ``options`` are those of ``Watch``: every, most, credit, rule, blocks, symmetry, health.
    """

    def __init__(self, **options: Any) -> None:
        if Callback is object:
            raise MissingExtra("lightning", "lightning", "the Lightning callback")
        super().__init__()
        self.watch = Watch(**options)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """After the backward, before the weights move: gradients are there."""
        del optimizer
        with _alone(pl_module):
            values = self.watch.step(pl_module, trainer.global_step + 1)
        if values:
            pl_module.log_dict(values)


@contextmanager
def _alone(module: Any) -> Iterator[None]:
    """The module without its trainer: audits copy what they are given, and a trainer holds data loaders and loggers."""
    kept = {name: module.__dict__[name] for name in ("_trainer", "_fabric") if name in module.__dict__}
    for name in kept:
        module.__dict__[name] = None
    try:
        yield
    finally:
        module.__dict__.update(kept)
