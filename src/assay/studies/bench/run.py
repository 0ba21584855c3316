"""``assay.studies.bench``: rules x tasks x seeds in, Run out."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.engine import LocalExecutor, Store, capture, describe_grouping, execute, run_id
from assay.errors import MissingExtra, expected
from assay.protocols import Budget, Cell, CellResult, Executor, Watcher
from assay.results import Finding, Run
from assay.seeding import seeds_of
from assay.studies.arms import Arm, arms
from assay.studies.bench.cells import FLOORS, as_cell, plan_task
from assay.studies.bench.decide import Evidence, decide, not_measured
from assay.studies.bench.tables import against_published, gap_heatmap, over_tasks, results_matrix, statistical_report
from assay.tasks.catalogue import describe
from assay.tasks.files import find_dataset, locate

DEFAULT_TASKS = ("digits", "mnist", "fashion-mnist", "cartpole-bc", "acrobot-bc")
DEFAULT_RULES = ("backprop", "eqprop")
DEFAULT_ROOT = Path("assay-runs")


def bench(
    *tasks: str,
    rules: Sequence[str] = DEFAULT_RULES,
    models: Sequence[str] = ("mlp",),
    budget: Budget = "quick",
    seeds: int | None = None,
    seed: int = 42,
    margin: float = 1.0,
    data: str | Path | None = None,
    workers: int | None = None,
    store: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    executor: Executor | None = None,
    grouping: bool = True,
    watcher: Watcher | None = None,
    command: str | None = None,
) -> Run:
    """The run of every rule on every task, each judged against backprop on the same seeds.

    One finding per task, rule and model: is its test accuracy within ± ``margin`` percentage points of backprop's?
    Seeds vary initialisation, order and split; arms share all of them. A task whose data are not here stays in the run,
    undecided, with the line that gets them. Finished cells live in ``store``: the same call redoes nothing.
    ``settings`` replace the committed ones in every arm (``{"epochs": 2}``); the run records them. With ``grouping``,
    seeds of narrow networks are trained side by side, which changes the time and nothing else.

    >>> bench("digits", rules=["eqprop"], seeds=3).counts                                     # doctest: +SKIP
    """
    start = time.perf_counter()
    names = _checked_tasks(tasks or DEFAULT_TASKS)
    if not 0 < margin < 100:
        raise expected("a margin in percentage points between 0 and 100", given=f"margin={margin!r}")
    asked, seed_list = arms(rules, models), seeds_of(budget, count=seeds, first=seed)
    root = str(data) if data is not None else None
    evidence: dict[str, Evidence] = {}
    absent: dict[str, str] = {}
    cells: dict[str, list[Cell]] = {}
    roles: dict[str, dict[str, list[str]]] = {}
    for name in names:
        if (reason := unavailable(name, data)) is not None:
            absent[name] = reason
            continue
        evidence[name] = Evidence(name, budget, margin, seed_list)
        work = plan_task(name, asked, budget=budget, seeds=seed_list, overrides=settings)
        unique: dict[str, Cell] = {}
        roles[name] = {}
        for item in work:
            cell = as_cell(item, data=root)
            unique.setdefault(cell.key, cell)
            roles[name].setdefault(cell.key, []).append(item.what)
        cells[name] = list(unique.values())
    place = Store(store if store is not None else DEFAULT_ROOT / "cells")
    together: dict[str, int] = {}
    findings = _run(
        cells, roles, evidence, asked, place, executor or LocalExecutor(workers), watcher, grouping, together
    )
    compared = [arm for arm in asked if arm != arm.baseline]
    for name, reason in absent.items():
        for arm in compared:
            findings[f"{name}/{arm.name}"] = not_measured(name, arm, margin=margin, reason=reason)
    ordered = [findings[f"{name}/{arm.name}"] for name in names for arm in compared]
    rerun = _rerun(rules, models, budget, len(seed_list), seed, margin)
    ordered = [f.model_copy(update={"rerun": f"assay bench {f.name.partition('/')[0]} {rerun}"}) for f in ordered]
    tables = [results_matrix(evidence, asked, findings), over_tasks(evidence, asked, seed=seed),
              statistical_report(ordered, margin=margin), against_published(evidence, margin=margin)]
    now = datetime.now(UTC)
    heatmap = gap_heatmap(evidence, asked)
    return Run(
        id=run_id(now, tasks=list(names), arms=[arm.name for arm in asked], seeds=list(seed_list)),
        kind="bench",
        title="Multi-task benchmark",
        created=now.isoformat(timespec="seconds"),
        command=command or f"assay bench {' '.join(names)} {rerun}",
        budget=budget,
        seconds=time.perf_counter() - start,
        environment=capture(),
        config={**_config(evidence, asked, seed_list, margin, settings, absent, place),
                "grouping": describe_grouping(together.values())},
        findings=tuple(ordered),
        tables=tuple(table for table in tables if table is not None and table.rows),
        figures=(heatmap,) if heatmap else (),
    )


def unavailable(name: str, data: str | Path | None) -> str | None:
    """One line saying why a task cannot be had here and how to get it; None if it can."""
    entry = describe(name)
    if entry.extra and importlib.util.find_spec("gymnasium") is None:
        return str(MissingExtra("gymnasium", entry.extra, f"the task {name}"))
    if entry.dataset:
        dataset = find_dataset(entry.dataset)
        if any(locate(entry.dataset, file, root=data) is None for file in dataset.files):
            return f"{entry.dataset} is not on this machine; run: assay data fetch {entry.dataset}"
    return None


def _run(
    cells: Mapping[str, list[Cell]], roles: Mapping[str, Mapping[str, list[str]]], evidence: Mapping[str, Evidence],
    asked: Sequence[Arm], store: Store, executor: Executor, watcher: Watcher | None, grouping: bool,
    together: dict[str, int],
) -> dict[str, Finding]:
    """Findings by ``task/arm``; a task is decided as soon as its last cell is in. ``together`` is filled on the way."""
    if watcher is not None:
        watcher.planned({name: describe(name).about for name in cells}, cells)
    missing = {name: {cell.key for cell in planned} for name, planned in cells.items()}
    owner = {cell.key: name for name, planned in cells.items() for cell in planned}
    findings: dict[str, Finding] = {}
    every = [cell for planned in cells.values() for cell in planned]
    notify = watcher.event if watcher else _ignore
    for result in execute(every, store=store, executor=executor, notify=notify, grouping=grouping):
        name = owner[result.cell.key]
        together[result.cell.key] = result.together
        for what in roles[name][result.cell.key]:
            _file(result, what, evidence[name])
        missing[name].discard(result.cell.key)
        if missing[name]:
            continue
        fresh = [decide(evidence[name], arm) for arm in asked if arm != arm.baseline]
        findings.update({finding.name: finding for finding in fresh})
        if watcher is not None and fresh:
            watcher.decided(name, max(fresh, key=lambda finding: finding.verdict.severity))
    return findings


def _file(result: CellResult, what: str, evidence: Evidence) -> None:
    """Put the result of a cell where the decision looks for it."""
    seed = int(result.cell.payload["seed"])
    evidence.seconds[what] = evidence.seconds.get(what, 0.0) + result.seconds
    if result.failure is not None:
        evidence.failures.setdefault(what, []).append(result.failure)
    elif result.record is not None and what == FLOORS:
        evidence.floors = result.record
    elif result.record is not None:
        evidence.records.setdefault(what, {})[seed] = result.record


def _checked_tasks(tasks: Iterable[str]) -> tuple[str, ...]:
    names = [str(name).strip().lower().replace("_", "-") for name in tasks]
    for name in names:
        describe(name)
    return tuple(dict.fromkeys(names))


def _rerun(rules: Sequence[str], models: Sequence[str], budget: str, seeds: int, seed: int, margin: float) -> str:
    return (f"--rules {' '.join(rules)} --models {' '.join(models)} --budget {budget} --seeds {seeds} --seed {seed} "
            f"--margin {margin:g}")


def _config(
    evidence: Mapping[str, Evidence], asked: Sequence[Arm], seeds: Sequence[int], margin: float,
    settings: Mapping[str, Any] | None, absent: Mapping[str, str], store: Store,
) -> dict[str, Any]:
    from assay.studies.arms import chosen

    return {
        "seeds": list(seeds), "margin [pp]": margin, "settings replaced": dict(settings or {}),
        "not measured": dict(absent),
        "settings": {name: {arm.name: {**chosen(name, arm).settings.as_record(), "source": chosen(name, arm).source}
                            for arm in asked} for name in evidence},
        "data hashes": {name: sorted({str(r["data_hash"]) for rs in found.records.values() for r in rs.values()})
                        for name, found in evidence.items()},
        "damaged cells redone": store.damaged,
    }


def _ignore(event: object) -> None:
    del event
