"""The task an arm is trained on, in the shape its model reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.learning.resolve import as_task
from assay.studies.arms.brought import fetched
from assay.studies.arms.table import Arm

if TYPE_CHECKING:
    from assay.tasks.base import ArrayTask


def load_task(
    name: str, arm: Arm, *, seed: int, items: int | None = None, data: str | Path | None = None,
    task_from: str | None = None,
) -> ArrayTask:
    """A task as pictures for a convolutional model and as flat rows for all others.

    ``items`` keeps only so many training examples; ``data`` is the folder of downloaded datasets; ``task_from`` says
    where a task of the user's own is found, which is split again by the seed.
    """
    if task_from is not None:
        given = fetched(task_from)
        task: ArrayTask = as_task(given, seed=seed)
        task = task.redrawn(seed) if task is given and hasattr(task, "redrawn") else task
        return task if items is None else task.subset(train=min(items, len(task.train)))
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
