"""Models small enough to read in one sitting, one per file."""

from __future__ import annotations

from assay.models.energy_attention import EnergyAttention
from assay.models.energy_conv import EnergyConv
from assay.models.energy_mlp import EnergyMLP
from assay.models.looped_mlp import LoopedMLP
from assay.models.res_mlp import ResMLP
from assay.models.small_resnet import SmallResNet
from assay.models.vit_mini import ViTMini

__all__ = ["EnergyAttention", "EnergyConv", "EnergyMLP", "LoopedMLP", "ResMLP", "SmallResNet", "ViTMini"]
