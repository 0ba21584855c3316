"""Evaluation logs of others, compared item by item: inspect_ai, lm-evaluation-harness and CSV."""

from assay.studies.evals.compare import compare_evals
from assay.studies.evals.read import read_log

__all__ = ["compare_evals", "read_log"]
