"""``assay.studies.bench``: rules x tasks x seeds in, Run out."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.engine import cell_key
from assay.errors import MissingExtra, expected
from assay.protocols import Budget, Executor, Outcomes, Trial, Watcher
from assay.results import Run
from assay.seeding import seeds_of
from assay.studies.arms import Arm, arms
from assay.studies.bench.cells import CELL, as_cell, plan_task
from assay.studies.bench.decide import Evidence, decide, not_measured
from assay.studies.bench.tables import against_published, gap_heatmap, over_tasks, results_matrix, statistical_report
from assay.studies.looks import NO_PAST
from assay.studies.study import Place, Planned, Question, Study, make_run
from assay.tasks.catalogue import describe
from assay.tasks.files import find_dataset, locate

DEFAULT_TASKS = ("digits", "mnist", "fashion-mnist", "cartpole-bc", "acrobot-bc")
DEFAULT_RULES = ("backprop", "eqprop")


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
    names = _checked_tasks(tasks or DEFAULT_TASKS)
    if not 0 < margin < 100:
        raise expected("a margin in percentage points between 0 and 100", given=f"margin={margin!r}")
    asked, seed_list = arms(rules, models), seeds_of(budget, count=seeds, first=seed)
    compared = [arm for arm in asked if arm != arm.baseline]
    root = str(data) if data is not None else None
    absent = {name: reason for name in names if (reason := unavailable(name, data)) is not None}

    def gather(name: str, outcomes: Outcomes) -> Evidence:
        return Evidence.of_outcomes(outcomes, task=name, budget=budget, margin=margin, seeds=seed_list)

    def question(name: str) -> Question:
        work = plan_task(name, asked, budget=budget, seeds=seed_list, overrides=settings)
        planned = tuple(Planned(Trial(item.what, item.seed, budget), as_cell(item, data=root)) for item in work)
        claims = {arm: claim_of(name, arm) for arm in compared}
        return Question(
            name, describe(name).about, planned,
            lambda outcomes, past: [
                decide(gather(name, outcomes), arm, past.get(claim, NO_PAST)) for arm, claim in claims.items()
            ],
            claims=() if budget == "smoke" else tuple(claims.values()), seeds=seed_list, code=code,
        )

    code = cell_key(CELL, {"settings replaced": dict(settings or {})})
    study = Study(tuple(question(name) for name in names if name not in absent))
    answers = study.answer(Place(store, executor, workers, grouping, watcher))
    evidence = {name: gather(name, outcomes) for name, outcomes in answers.outcomes.items()}
    findings = {finding.name: finding for found in answers.findings.values() for finding in found}
    for name, reason in absent.items():
        for arm in compared:
            findings[f"{name}/{arm.name}"] = not_measured(name, arm, margin=margin, reason=reason)
    rerun = _rerun(rules, models, budget, len(seed_list), seed, margin)
    ordered = [findings[f"{name}/{arm.name}"].model_copy(update={"rerun": f"assay bench {name} {rerun}"})
               for name in names for arm in compared]
    tables = [results_matrix(evidence, asked, findings), over_tasks(evidence, asked, seed=seed),
              statistical_report(ordered, margin=margin), against_published(evidence, margin=margin)]
    heatmap = gap_heatmap(evidence, asked)
    return make_run(
        "bench", "Multi-task benchmark", ordered,
        identity={"tasks": list(names), "arms": [arm.name for arm in asked], "seeds": list(seed_list)},
        command=command or f"assay bench {' '.join(names)} {rerun}", seconds=answers.seconds, budget=budget,
        config={**_config(evidence, asked, seed_list, margin, settings, absent), **answers.facts},
        tables=tuple(table for table in tables if table is not None and table.rows),
        figures=(heatmap,) if heatmap else (),
    )


def claim_of(task: str, arm: Arm) -> str:
    """The claim as the ledger of looks knows it: without the margin, which is no other claim if it is moved."""
    return f"bench {task}: {arm.name} at parity with {arm.baseline.name}"


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
    settings: Mapping[str, Any] | None, absent: Mapping[str, str],
) -> dict[str, Any]:
    from assay.studies.arms import chosen

    return {
        "seeds": list(seeds), "margin [pp]": margin, "settings replaced": dict(settings or {}),
        "not measured": dict(absent),
        "settings": {name: {arm.name: {**chosen(name, arm).settings.as_record(), "source": chosen(name, arm).source}
                            for arm in asked} for name in evidence},
        "data hashes": {name: sorted({str(r["data_hash"]) for rs in found.records.values() for r in rs.values()})
                        for name, found in evidence.items()},
    }
