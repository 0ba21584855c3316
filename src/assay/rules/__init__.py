"""Learning rules, all called ``rule.backward(model, x, y) -> loss``, and the one loop that trains with any of them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Backprop": "assay.rules.backprop",
    "EqProp": "assay.rules.equilibrium",
    "FeedbackAlignment": "assay.rules.feedback",
    "train": "assay.rules.training",
    "train_many": "assay.rules.many",
    "evaluate": "assay.rules.training",
    "TrainResult": "assay.rules.training",
    "Epoch": "assay.rules.training",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        from assay.errors import unknown

        raise AttributeError(f"module 'assay.rules' has no attribute '{name}': {unknown('name', name, _HOMES)}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)


if TYPE_CHECKING:
    from assay.rules.backprop import Backprop as Backprop
    from assay.rules.equilibrium import EqProp as EqProp
    from assay.rules.many import train_many as train_many
    from assay.rules.training import Epoch as Epoch
    from assay.rules.training import TrainResult as TrainResult
    from assay.rules.training import evaluate as evaluate
    from assay.rules.training import train as train
