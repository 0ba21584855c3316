"""Learning rules, all called ``rule.backward(model, x, y) -> loss``."""

from __future__ import annotations

from assay.rules.backprop import Backprop
from assay.rules.equilibrium import EqProp
from assay.rules.estimators import BPTT, Asymmetric, Centered, Holomorphic, OneSided, Richardson, Tangent
from assay.rules.feedback import FeedbackAlignment
from assay.rules.health import HealthWarning
from assay.solving.spectral import keep_bounded

__all__ = [
    "BPTT", "Asymmetric", "Backprop", "Centered", "EqProp", "FeedbackAlignment", "HealthWarning", "Holomorphic",
    "OneSided", "Richardson", "Tangent", "keep_bounded",
]
