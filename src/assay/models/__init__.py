"""Models small enough to read in one sitting, one per file, each loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "EnergyMLP": "assay.models.energy_mlp",
    "LoopedMLP": "assay.models.looped_mlp",
    "EnergyConv": "assay.models.energy_conv",
    "EnergyAttention": "assay.models.energy_attention",
    "ResMLP": "assay.models.res_mlp",
    "ViTMini": "assay.models.vit_mini",
    "SmallResNet": "assay.models.small_resnet",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        from assay.errors import unknown

        raise AttributeError(f"module 'assay.models' has no attribute '{name}': {unknown('model', name, _HOMES)}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)


if TYPE_CHECKING:
    from assay.models.energy_mlp import EnergyMLP as EnergyMLP
