"""What the published table reports of a trained model, and what it leaves out: one JSON value per run."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from assay.audits.credit.measure import measure_credit
from assay.protocols import Rule

NULLS = 20


def diagnose(model: nn.Module, rule: Rule, x: Tensor, y: Tensor, *, seed: int) -> dict[str, Any]:
    """Scale, reference and alignment of a trained model on one batch, depth by depth (h_0 to h_L)."""
    credit = measure_credit(model, x, y, rule=rule, baselines=None, glob=None, seed=seed, redraws=NULLS, responses=True)
    aligned = credit.alignment
    return {
        "samples": credit.samples,
        "blocks": str(credit.blocks),
        "norms": credit.scale.norms,
        "growth": credit.scale.growth,
        "writes": credit.scale.writes,
        "absorption": credit.scale.absorption,
        "gradient": credit.reference.raw,
        "invariant": credit.reference.invariant,
        "noise": credit.reference.noise,
        "cosine": [None if a is None else a.cosine for a in aligned],
        "clamped_cosine": credit.clamped,
        "null_mean": [None if a is None else a.null_mean for a in aligned],
        "null_sd": [None if a is None else a.null_sd for a in aligned],
        "rho": [response.rho for response in credit.response],
        "controls": [{"true": r.true_rho, "random": r.random_rho} for r in credit.response],
    }
