"""Learning rules, all called ``rule.backward(model, x, y) -> loss``, and the one loop that trains with any of them."""

from __future__ import annotations

from assay.rules.backprop import Backprop
from assay.rules.equilibrium import EqProp
from assay.rules.feedback import FeedbackAlignment
from assay.rules.many import train_many
from assay.rules.training import Epoch, TrainResult, evaluate, train

__all__ = ["Backprop", "Epoch", "EqProp", "FeedbackAlignment", "TrainResult", "evaluate", "train", "train_many"]
