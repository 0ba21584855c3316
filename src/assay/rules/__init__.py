"""Learning rules, all called ``rule.backward(model, x, y) -> loss``."""

from __future__ import annotations

from assay.rules.backprop import Backprop
from assay.rules.equilibrium import EqProp
from assay.rules.feedback import FeedbackAlignment

__all__ = ["Backprop", "EqProp", "FeedbackAlignment"]
