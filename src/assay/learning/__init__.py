"""The one training loop for any rule, and many seeds of one network at once."""

from __future__ import annotations

from assay.learning.many import train_many
from assay.learning.training import Epoch, TrainResult, evaluate, train

__all__ = ["Epoch", "TrainResult", "evaluate", "train", "train_many"]
