"""The task an arm is trained on, in the shape its model reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.studies.arms.table import Arm

if TYPE_CHECKING:
    from assay.tasks.base import ArrayTask


def load_task(name: str, arm: Arm, *, seed: int, items: int | None = None, data: str | Path | None = None) -> ArrayTask:
    """A task as pictures for a convolutional model and as flat rows for all others.

    ``items`` keeps only so many training examples; ``data`` is the folder of downloaded datasets.
    """
    from assay.tasks import load
    from assay.tasks.catalogue import describe

    options: dict[str, Any] = {}
    entry = describe(name)
    if entry.dataset is not None and data is not None:
        options["root"] = data
    if entry.home == "images":
        options["flat"] = arm.model != "conv"
    task = load(name, seed=seed, **options)
    return task if items is None else task.subset(train=min(items, len(task.train)))
