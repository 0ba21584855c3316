"""Learning: names of rules, what a user may bring in their place, the one training loop, many seeds at once.

Names are loaded on first use: the table of rules is read by commands that must not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Epoch": "assay.learning.training",
    "TrainResult": "assay.learning.training",
    "evaluate": "assay.learning.training",
    "train": "assay.learning.training",
    "train_many": "assay.learning.many",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'assay.learning' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


if TYPE_CHECKING:
    from assay.learning.many import train_many as train_many
    from assay.learning.training import Epoch as Epoch
    from assay.learning.training import TrainResult as TrainResult
    from assay.learning.training import evaluate as evaluate
    from assay.learning.training import train as train
