"""``assay.bench``: rules x tasks x seeds in, Run out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from assay.engine import cell_key
from assay.errors import expected
from assay.protocols import Budget, Executor, Outcomes, Trial, Watcher
from assay.results import Run
from assay.seeding import seeds_of
from assay.studies.arms import Arm, Chosen, arms, chosen, read_settings
from assay.studies.arms.brought import executor_for, typed
from assay.studies.bench.asked import Asked, asked_tasks, live_things, unavailable
from assay.studies.bench.cells import CELL, as_cell, plan_task
from assay.studies.bench.decide import decide, not_measured
from assay.studies.bench.measured import Measured, share_of
from assay.studies.bench.tables import against_published, gap_heatmap, over_tasks, results_matrix, statistical_report
from assay.studies.looks import NO_PAST
from assay.studies.study import Decide, Place, Planned, Question, Study, make_run
from assay.studies.where import device_facts, named_device

DEFAULT_TASKS = ("digits", "mnist", "fashion-mnist", "cartpole-bc", "acrobot-bc")
DEFAULT_RULES = ("backprop", "eqprop")


def bench(
    *tasks: Any,
    rules: Sequence[Any] | Mapping[str, Any] = DEFAULT_RULES,
    models: Sequence[Any] | Mapping[str, Any] = ("mlp",),
    model: Any = None,
    budget: Budget = "quick",
    seeds: int | None = None,
    seed: int = 42,
    margin: float | str = 1.0,
    data: str | Path | None = None,
    workers: int | None = None,
    store: str | Path | None = None,
    settings: Mapping[str, Any] | str | Path | None = None,
    device: str | None = None,
    executor: Executor | None = None,
    grouping: bool = True,
    watcher: Watcher | None = None,
    command: str | None = None,
) -> Run:
    """The run of every rule on every task, each judged against backprop on the same seeds.

    One finding per task, rule and model: is its test score within ± ``margin`` of backprop's? The margin is in
    percentage points of accuracy, in units of a regression target, or a share such as "2%" (of 100 points, or of the
    error of the mean predictor). Tasks, rules and models are names, or your own: a task from ``assay.tasks.from_csv``
    and its kin, a model as a function of seed, a rule as a class or object, or ``module:name`` of any of them.
    Seeds vary initialisation, order and split; arms share all of them. A task whose data are not here stays in the run,
    undecided, with the line that gets them. Finished cells live in ``store``: the same call redoes nothing.
    ``settings`` replace the committed ones in every arm (``{"epochs": 2}``), or are a file that ``assay tune --save``
    wrote, where each arm has its own; the run records them. ``device`` (cpu, cuda, mps, auto) is where arms are
    trained. With ``grouping``, seeds of narrow networks are trained side by side, which changes the time alone.

    >>> bench("digits", rules=["eqprop"], seeds=3).counts                                     # doctest: +SKIP
    """
    wanted = asked_tasks(tasks or DEFAULT_TASKS)
    replaced, tuned = (None, read_settings(Path(settings))) if isinstance(settings, str | Path) else (settings, None)
    _check_margin(margin)
    asked = arms(rules, models if model is None else _one(model))
    seed_list = seeds_of(budget, count=seeds, first=seed)
    device = named_device(device)
    compared = [arm for arm in asked if arm != arm.baseline]
    root = str(data) if data is not None else None
    absent = {task.name: reason for task in wanted
              if task.source is None and (reason := unavailable(task.name, data)) is not None}
    executor, said = executor_for(live_things(wanted, asked), executor)

    def gather(task: Asked, outcomes: Outcomes) -> Measured:
        return Measured.of_outcomes(outcomes, task=task.name, budget=budget, margin=margin, seeds=seed_list,
                                    metric=task.metric, settings=_settings_of(task, asked, tuned))

    def question(task: Asked) -> Question:
        work = plan_task(task.name, asked, budget=budget, seeds=seed_list, overrides=replaced, source=task.source,
                         tuned=tuned)
        planned = tuple(Planned(Trial(item.what, item.seed, budget), as_cell(item, data=root, device=device))
                        for item in work)
        return Question(task.name, task.about, planned, _decider(task.name, compared, partial(gather, task)),
                        seeds=seed_list, **_claims(task.name, compared, budget, replaced or _recorded(tuned)))

    study = Study(tuple(question(task) for task in wanted if task.name not in absent))
    answers = study.answer(Place(store, executor, workers, grouping, watcher))
    evidence = {task.name: gather(task, answers.outcomes[task.name]) for task in wanted if task.name not in absent}
    findings = {finding.name: finding for found in answers.findings.values() for finding in found}
    for name, reason in absent.items():
        for arm in compared:
            findings[f"{name}/{arm.name}"] = not_measured(name, arm, margin=margin, reason=reason)
    rerun = _rerun(asked, budget, len(seed_list), seed, margin)
    ordered = [findings[f"{task.name}/{arm.name}"].model_copy(update={"rerun": f"assay bench {_typed(task)} {rerun}"})
               for task in wanted for arm in compared]
    limits = {f"{name}/{arm.name}": found.margin for name, found in evidence.items() for arm in compared}
    tables = [results_matrix(evidence, asked, findings), over_tasks(evidence, asked, seed=seed),
              statistical_report(ordered, margin=limits),
              against_published(evidence, margin=margin) if not isinstance(margin, str) else None]
    heatmap = gap_heatmap(evidence, asked)
    shown = _config(evidence, seeds=seed_list, margin=margin, settings=replaced, absent=absent)
    return make_run(
        "bench", "Multi-task benchmark", ordered,
        identity={"tasks": [t.name for t in wanted], "arms": [arm.name for arm in asked], "seeds": list(seed_list)},
        command=command or f"assay bench {' '.join(map(_typed, wanted))} {rerun}", seconds=answers.seconds,
        budget=budget, config={**shown, **answers.facts, **({"where": said} if said else {}), **device_facts(device)},
        tables=tuple(table for table in tables if table is not None and table.rows),
        figures=(heatmap,) if heatmap else (),
    )


def _decider(task: str, compared: Sequence[Arm], gather: Callable[[Outcomes], Measured]) -> Decide:
    """The decision on every arm of a task, each with the looks at its own claim."""
    return lambda outcomes, past: [
        decide(gather(outcomes), arm, past.get(claim_of(task, arm), NO_PAST)) for arm in compared
    ]


def _claims(task: str, compared: Sequence[Arm], budget: Budget, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the ledger keeps account of; shortened trainings decide nothing and spend nothing."""
    claims = () if budget == "smoke" else tuple(claim_of(task, arm) for arm in compared)
    return {"claims": claims, "code": cell_key(CELL, {"settings replaced": dict(settings or {})})}


def _settings_of(task: Asked, asked: Sequence[Arm], tuned: Mapping[str, Chosen] | None) -> dict[str, Chosen]:
    return {arm.name: chosen(task.name, arm, own=task.source is not None, tuned=tuned) for arm in asked}


def _recorded(tuned: Mapping[str, Chosen] | None) -> dict[str, Any]:
    return {name: each.settings.as_record() for name, each in (tuned or {}).items()}


def claim_of(task: str, arm: Arm) -> str:
    """The claim as the ledger of looks knows it: without the margin, which is no other claim if it is moved."""
    return f"bench {task}: {arm.name} at parity with {arm.baseline.name}"


def _check_margin(margin: float | str) -> None:
    if isinstance(margin, str):
        share_of(margin)
    elif isinstance(margin, bool) or not margin > 0:
        raise expected("a margin in percentage points or target units > 0, or a share such as '2%'",
                       given=f"margin={margin!r}")


def _one(model: Any) -> Sequence[Any] | Mapping[str, Any]:
    return model if isinstance(model, Mapping | list | tuple) else [model]


def _typed(task: Asked) -> str:
    return typed(task.name, task.source.reference if task.source else None)


def _rerun(asked: Sequence[Arm], budget: str, seeds: int, seed: int, margin: float | str) -> str:
    others = [arm for arm in asked if arm != arm.baseline] or asked  # the baseline comes by itself
    rules = dict.fromkeys(typed(arm.rule, arm.rule_from) for arm in others)
    models = dict.fromkeys(typed(arm.model, arm.model_from) for arm in asked if arm.model != "looped")
    told = margin if isinstance(margin, str) else f"{margin:g}"
    return (f"--rules {' '.join(rules)} --models {' '.join(models) or 'mlp'} --budget {budget} --seeds {seeds} "
            f"--seed {seed} --margin {told}")


def _config(
    evidence: Mapping[str, Measured], *, seeds: Sequence[int], margin: float | str,
    settings: Mapping[str, Any] | None, absent: Mapping[str, str],
) -> dict[str, Any]:
    return {
        "seeds": list(seeds), "margin [pp]": margin, "settings replaced": dict(settings or {}),
        "not measured": dict(absent),
        "settings": {name: {arm: {**each.settings.as_record(), "source": each.source}
                            for arm, each in found.settings.items()} for name, found in evidence.items()},
        "data hashes": {name: sorted({str(r["data_hash"]) for rs in found.records.values() for r in rs.values()})
                        for name, found in evidence.items()},
    }
