"""What a row of the benchmark does not show, in sentences."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from assay.studies.bench.cells import LARGE, QUICK_ITEMS
from assay.studies.bench.rest import rest_of

if TYPE_CHECKING:
    from assay.stats import Decision
    from assay.studies.arms import Arm
    from assay.studies.bench.measured import Measured


def limitations(evidence: Measured, arm: Arm, decision: Decision) -> tuple[str, ...]:
    """What a row does not show; that it was far from rest comes first."""
    rest = rest_of(evidence.of(arm.name))
    notes = [rest.limitation] if rest is not None and rest.limitation else []
    notes += decision.notes
    if evidence.budget in ("smoke", "quick") and evidence.task in LARGE:
        notes.append(f"quick budget: {QUICK_ITEMS:,} training items and half the epochs; use --budget standard for all")
    floors, ours = evidence.floors, evidence.scores(arm.name)
    if floors and ours and "logistic" in floors and fmean(ours) <= 100 * floors["logistic"]:
        notes.append(f"logistic regression does as well ({100 * floors['logistic']:.2f} %): accuracy shows little here")
    if floors and ours and "ridge" in floors and fmean(ours) >= floors["ridge"]:
        notes.append(f"ridge regression does as well ({floors['ridge']:.4g}): the network shows little here")
    return tuple(notes)
