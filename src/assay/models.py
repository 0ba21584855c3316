"""Models small enough to read in one sitting, one per file."""

from __future__ import annotations

from assay.networks.energy_attention import EnergyAttention
from assay.networks.energy_conv.model import EnergyConv
from assay.networks.energy_mlp.model import EnergyMLP
from assay.networks.energy_net.model import EnergyNet
from assay.networks.feedforward.res_mlp import ResMLP
from assay.networks.feedforward.small_resnet import SmallResNet
from assay.networks.feedforward.vit_mini import ViTMini
from assay.networks.looped_mlp import LoopedMLP

__all__ = [
    "EnergyAttention", "EnergyConv", "EnergyMLP", "EnergyNet", "LoopedMLP", "ResMLP", "SmallResNet", "ViTMini",
]
