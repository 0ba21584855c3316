"""Feedback alignment: matrices, the ways they replace transposes, and which weights they reach."""

from __future__ import annotations

from assay.rules.feedback.coverage import Coverage
from assay.rules.feedback.rule import FeedbackAlignment

__all__ = ["Coverage", "FeedbackAlignment"]
