"""Learning rules, all called ``rule.backward(model, x, y) -> loss``."""

from __future__ import annotations

from assay.rules.backprop import Backprop
from assay.rules.dual_propagation import DualPropagation
from assay.rules.equilibrium import EqProp
from assay.rules.estimators import BPTT, Asymmetric, Centered, Holomorphic, OneSided, Richardson, Tangent
from assay.rules.feedback import FeedbackAlignment
from assay.rules.forward_forward import ForwardForward
from assay.rules.forward_gradient import ForwardGradient
from assay.rules.health import HealthWarning
from assay.rules.local_heads import LocalHeads
from assay.rules.pepita import Pepita
from assay.rules.perturbation import NodePerturbation, WeightPerturbation
from assay.rules.predictive_coding import PredictiveCoding
from assay.rules.target_propagation import TargetPropagation
from assay.solving.spectral import keep_bounded

__all__ = [
    "BPTT", "Asymmetric", "Backprop", "Centered", "DualPropagation", "EqProp", "FeedbackAlignment", "ForwardForward",
    "ForwardGradient", "HealthWarning", "Holomorphic", "LocalHeads", "NodePerturbation", "OneSided", "Pepita",
    "PredictiveCoding", "Richardson", "Tangent", "TargetPropagation", "WeightPerturbation", "keep_bounded",
]
