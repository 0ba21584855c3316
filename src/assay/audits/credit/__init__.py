"""The credit audit: the published feedback-alignment protocol, and better diagnostics beside it."""

from assay.audits.credit.audit import audit_credit
from assay.audits.credit.callback import CreditCallback
from assay.audits.credit.depth import Baselines
from assay.audits.credit.metrics import credit_cosine, nudging_test, perturbation_correlation
from assay.audits.credit.published import FAProtocol
from assay.audits.credit.recipe import Recipe, remove_blocks
from assay.probe.blocks import Blocks, discover_blocks

__all__ = [
    "Baselines",
    "Blocks",
    "CreditCallback",
    "FAProtocol",
    "Recipe",
    "audit_credit",
    "credit_cosine",
    "discover_blocks",
    "nudging_test",
    "perturbation_correlation",
    "remove_blocks",
]
