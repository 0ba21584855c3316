"""The credit audit: the published feedback-alignment protocol, and better diagnostics beside it."""

from assay.audits.credit.audit import audit_credit
from assay.audits.credit.callback import CreditCallback
from assay.audits.credit.depth import Baselines
from assay.audits.credit.published import FAProtocol
from assay.audits.credit.recipe import Recipe
from assay.probe.blocks import Blocks, discover_blocks

__all__ = ["Baselines", "Blocks", "CreditCallback", "FAProtocol", "Recipe", "audit_credit", "discover_blocks"]
