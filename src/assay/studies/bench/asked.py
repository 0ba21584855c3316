"""The tasks a benchmark was asked for: by name, or the user's own."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import InputError, MissingExtra
from assay.learning.resolve import as_task, is_path
from assay.protocols import ACCURACY, Metric
from assay.studies.arms.brought import Brought, bring
from assay.studies.bench.cells import Source
from assay.tasks.catalogue import describe
from assay.tasks.files import find_dataset, locate


@dataclass(frozen=True)
class Asked:
    """One task: its name, what it is, how it is scored and, if it is the user's own, where cells find it."""

    name: str
    about: str
    metric: Metric = ACCURACY
    source: Source | None = None
    brought: Brought | None = None


def asked_tasks(given: Sequence[Any]) -> tuple[Asked, ...]:
    """Every task once, in order; one list of them may stand in place of all arguments."""
    flat = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    found: dict[str, Asked] = {}
    for each in flat:
        task = _asked(each)
        known = found.get(task.name)
        if known is not None and known.source != task.source:
            raise InputError(f"two different tasks are called '{task.name}'; give name= to from_arrays or from_csv")
        found[task.name] = task
    return tuple(found.values())


def unavailable(name: str, data: str | Path | None) -> str | None:
    """One line saying why a named task cannot be had here and how to get it; None if it can."""
    entry = describe(name)
    if entry.extra and importlib.util.find_spec("gymnasium") is None:
        return str(MissingExtra("gymnasium", entry.extra, f"the task {name}"))
    if entry.dataset:
        dataset = find_dataset(entry.dataset)
        if any(locate(entry.dataset, file, root=data) is None for file in dataset.files):
            return f"{entry.dataset} is not on this machine; run: assay data fetch {entry.dataset}"
    return None


def _asked(given: Any) -> Asked:
    if isinstance(given, str) and not is_path(given):
        name = given.strip().lower().replace("_", "-")
        return Asked(name, describe(name).about)
    task = as_task(given, seed=0)
    made = bring(given, label=task.name)
    kind = f"{task.classes} classes" if task.classes else "regression"
    about = f"{len(task.train)} training rows, {kind}"
    metric = getattr(task, "metric", ACCURACY)
    return Asked(task.name, about, metric, Source(made.reference, made.modules, task.data_hash), made)


def live_things(tasks: Iterable[Asked], arms: Iterable[Any]) -> list[Brought]:
    """Everything the user brought to a benchmark."""
    parts = [Brought(label, reference) for arm in arms
             for label, reference in ((arm.rule, arm.rule_from), (arm.model, arm.model_from)) if reference is not None]
    return [*(task.brought for task in tasks if task.brought is not None), *parts]
