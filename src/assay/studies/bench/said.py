"""What a finding of the benchmark says beside its numbers: the experiment, its limits, what the seed changes."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from assay import stats
from assay.studies.arms import Arm, chosen
from assay.studies.bench.cells import LARGE, QUICK_ITEMS

if TYPE_CHECKING:
    from assay.studies.bench.decide import Evidence


def experiment(evidence: Evidence, arm: Arm) -> str:
    """What was done, in two sentences."""
    source = chosen(evidence.task, arm)
    record = next(iter(evidence.of(arm.name).values()), {})
    size = f"{record['train_items']:,} training and {record['items']:,} test items. " if record else ""
    return (
        f"{size}Train {arm.name} and {arm.baseline.name} from the same initial weights, on the same split in the same "
        f"order, and compare test {evidence.metric.name} by a paired test. Settings: {source.source}"
        f"{' (' + source.note + ')' if source.note else ''}; chosen on validation, never on test."
    )


def limitations(evidence: Evidence, arm: Arm, decision: stats.Decision) -> tuple[str, ...]:
    """What the numbers do not show."""
    notes = list(decision.notes)
    if evidence.budget in ("smoke", "quick") and evidence.task in LARGE:
        notes.append(f"quick budget: {QUICK_ITEMS:,} training items and half the epochs; use --budget standard for all")
    floors, ours = evidence.floors, evidence.scores(arm.name)
    if floors and ours and "logistic" in floors and fmean(ours) <= 100 * floors["logistic"]:
        notes.append(f"logistic regression does as well ({100 * floors['logistic']:.2f} %): accuracy shows little here")
    if floors and ours and "ridge" in floors and fmean(ours) >= floors["ridge"]:
        notes.append(f"ridge regression does as well ({floors['ridge']:.4g}): the network shows little here")
    return tuple(notes)


def split_varied(task: str) -> tuple[str, ...]:
    """What the seed changes about the data."""
    return ("train/validation split",) if task in LARGE else ("train/validation/test split",)
