"""``assay.bench``: rules x tasks x seeds in, Run out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from assay.engine import cell_key
from assay.errors import AssayError, InputError, expected
from assay.protocols import BUDGETS, Budget, Executor, Outcomes, Watcher
from assay.results import Run
from assay.seeding import seeds_of
from assay.studies.arms import Arm, arms
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
    settings: Mapping[str, Any] | None = None,
    settings_from: str | Path | None = None,
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
    ``settings`` replace the committed ones in every arm (``{"epochs": 2}``), ``settings_from`` is a folder with the
    TASK.json of searches of your own; the run records both. With ``grouping``, seeds of narrow networks are trained
    side by side, which changes the time and nothing else.

    >>> bench("digits", rules=["eqprop"], seeds=3).counts                                     # doctest: +SKIP
    """
    wanted = asked_tasks(tasks or DEFAULT_TASKS)
    _check_margin(margin)
    asked = arms(rules, models if model is None else _one(model))
    seed_list = seeds_of(budget, count=seeds, first=seed)
    device = named_device(device)
    compared = [arm for arm in asked if arm != arm.baseline]
    root, chosen_in = str(data) if data is not None else None, _folder(settings_from)
    absent = {task.name: reason for task in wanted
              if task.source is None and (reason := unavailable(task.name, data)) is not None}
    executor, said = executor_for(live_things(wanted, asked), executor)

    matrix = Matrix(asked, budget, seed_list, margin, settings, root, device, chosen_in)
    study = Study(tuple(matrix.question(task) for task in wanted if task.name not in absent))
    answers = study.answer(Place(store, executor, workers, grouping, watcher))
    evidence = {
        task.name: matrix.gather(task, answers.outcomes[task.name]) for task in wanted if task.name not in absent
    }
    findings = {finding.name: finding for found in answers.findings.values() for finding in found}
    findings |= {f"{name}/{arm.name}": not_measured(name, arm, margin=margin, reason=reason)
                 for name, reason in absent.items() for arm in compared}
    rerun = _rerun(asked, budget, len(seed_list), seed=seed, margin=margin, settings=settings, folder=chosen_in)
    ordered = [findings[f"{task.name}/{arm.name}"].model_copy(update={"rerun": f"assay bench {_typed(task)} {rerun}"})
               for task in wanted for arm in compared]
    limits = {f"{name}/{arm.name}": found.margin for name, found in evidence.items() for arm in compared}
    published = against_published(evidence, margin=margin) if not isinstance(margin, str) else None
    tables = [results_matrix(evidence, asked, findings), over_tasks(evidence, asked, seed=seed),
              statistical_report(ordered, margin=limits), published]
    heatmap = gap_heatmap(evidence, asked, findings)
    shown = _config(evidence, asked, seeds=seed_list, margin=margin, settings=settings, absent=absent, folder=chosen_in)
    typed = {"tasks": list(map(_typed, wanted)), **_spelled(asked)}
    config = {**shown, "asked": typed, **answers.facts}
    return make_run(
        "bench", "Multi-task benchmark", ordered,
        identity={"tasks": [t.name for t in wanted], "arms": [arm.name for arm in asked], "seeds": list(seed_list)},
        command=command or f"assay bench {' '.join(map(_typed, wanted))} {rerun}", seconds=answers.seconds,
        budget=budget, config={**config, **({"where": said} if said else {}), **device_facts(device)},
        tables=tuple(table for table in tables if table is not None and table.rows),
        figures=(heatmap,) if heatmap else (),
    )


@dataclass(frozen=True)
class Matrix:
    """Arms, seeds and settings of a benchmark: a question of every task, and what its outcomes say."""

    asked: Sequence[Arm]
    budget: Budget
    seeds: tuple[int, ...]
    margin: float | str
    settings: Mapping[str, Any] | None = None
    data: str | None = None
    device: str | None = None
    folder: Path | None = None
    """Where the settings of the arms were chosen, if not by the committed searches."""

    @staticmethod
    def of(run: Run) -> tuple[Matrix, tuple[Asked, ...]]:
        """What a benchmark asked, from what its run says; for whoever decides it again. InputError if it does not say.

        Things that lived in a script cannot be had again.
        """
        asked, seeds = run.config.get("asked"), run.config.get("seeds")
        budget = next((known for known in BUDGETS if known == run.budget), None)
        if not isinstance(asked, Mapping) or not isinstance(seeds, list) or budget is None:
            raise InputError("the run does not say what it asked: it was made by an earlier Assay")
        try:
            matrix = Matrix(
                arms(asked["rules"], asked["models"]), budget, tuple(map(int, seeds)), run.config["margin [pp]"],
                run.config.get("settings replaced") or None, device=run.config.get("device"),
                folder=_folder(run.config.get("settings from")),
            )
            return matrix, tuple(asked_tasks(asked["tasks"]))
        except (KeyError, TypeError, ValueError, AssayError) as error:
            raise InputError(f"what the run asked cannot be had here: {error}") from None

    @property
    def compared(self) -> list[Arm]:
        """The arms that are judged."""
        return [arm for arm in self.asked if arm != arm.baseline]

    def gather(self, task: Asked, outcomes: Outcomes) -> Measured:
        """The outcomes of a task, as its decisions read them."""
        return Measured.of_outcomes(outcomes, task=task.name, budget=self.budget, margin=self.margin, seeds=self.seeds,
                                    metric=task.metric, settings_from=self.folder)

    def question(self, task: Asked) -> Question:
        """A task as a question: every arm, its floors and controls, and the decision on each."""
        trials = plan_task(task.name, self.asked, budget=self.budget, seeds=self.seeds, overrides=self.settings,
                           source=task.source, settings_from=self.folder)
        planned = tuple(
            Planned(trial.as_trial(self.budget), as_cell(trial, data=self.data, device=self.device))
            for trial in trials
        )
        decide_all = _decider(task.name, self.compared, partial(self.gather, task))
        return Question(task.name, task.about, planned, decide_all, seeds=self.seeds,
                        **_claims(task.name, self.compared, self.budget, self.settings))


def _decider(task: str, compared: Sequence[Arm], gather: Callable[[Outcomes], Measured]) -> Decide:
    """The decision on every arm of a task, each with the looks at its own claim."""
    return lambda outcomes, past: [
        decide(gather(outcomes), arm, past.get(claim_of(task, arm), NO_PAST)) for arm in compared
    ]


def _claims(task: str, compared: Sequence[Arm], budget: Budget, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the ledger keeps account of; shortened trainings decide nothing and spend nothing."""
    claims = () if budget == "smoke" else tuple(claim_of(task, arm) for arm in compared)
    return {"claims": claims, "code": cell_key(CELL, {"settings replaced": dict(settings or {})})}


def claim_of(task: str, arm: Arm) -> str:
    """The claim as the ledger of looks knows it: without the margin, which is no other claim if it is moved."""
    return f"bench {task}: {arm.name} at parity with {arm.baseline.name}"


def _check_margin(margin: float | str) -> None:
    if isinstance(margin, str):
        share_of(margin)
    elif isinstance(margin, bool) or not margin > 0:
        raise expected("a margin in percentage points or target units > 0, or a share such as '2%'",
                       given=f"margin={margin!r}")


def _folder(given: str | Path | None) -> Path | None:
    """The folder of the settings; an InputError if it is not there, as every arm would fall back on the defaults."""
    if given is not None and not Path(given).is_dir():
        raise expected("a folder with one TASK.json per task, as assay tune --save writes them", given=f"'{given}'")
    return None if given is None else Path(given)


def _one(model: Any) -> Sequence[Any] | Mapping[str, Any]:
    return model if isinstance(model, Mapping | list | tuple) else [model]


def _typed(task: Asked) -> str:
    """A task as it is typed; one that lives in a script has no spelling."""
    return typed(task.name, None if task.source is None else task.source.reference)


def _spelled(asked: Sequence[Arm]) -> dict[str, list[str]]:
    """Rules and models as they are typed; the baseline comes by itself."""
    others = [arm for arm in asked if arm != arm.baseline] or asked
    rules = dict.fromkeys(typed(arm.rule, arm.rule_from) for arm in others)
    models = dict.fromkeys(typed(arm.model, arm.model_from) for arm in asked if arm.model != "looped")
    return {"rules": list(rules), "models": list(models) or ["mlp"]}


def _rerun(
    asked: Sequence[Arm], budget: str, seeds: int, *, seed: int, margin: float | str,
    settings: Mapping[str, Any] | None, folder: Path | None,
) -> str:
    told, typed = margin if isinstance(margin, str) else f"{margin:g}", _spelled(asked)
    fixed = "".join(f" --set {shlex.quote(f'{name}={json.dumps(value)}')}" for name, value in (settings or {}).items())
    return (f"--rules {' '.join(typed['rules'])} --models {' '.join(typed['models'])} --budget {budget} "
            f"--seeds {seeds} --seed {seed} --margin {told}{fixed}"
            + (f" --settings-from {folder.as_posix()}" if folder else ""))


def _config(
    evidence: Mapping[str, Measured], asked: Sequence[Arm], *, seeds: Sequence[int], margin: float | str,
    settings: Mapping[str, Any] | None, absent: Mapping[str, str], folder: Path | None,
) -> dict[str, Any]:
    from assay.studies.arms import chosen

    return {
        "seeds": list(seeds), "margin [pp]": margin, "settings replaced": dict(settings or {}),
        "not measured": dict(absent), **({"settings from": folder.as_posix()} if folder else {}),
        "settings": {name: {arm.name: {**chosen(name, arm, folder).settings.as_record(),
                                       "source": chosen(name, arm, folder).source} for arm in asked}
                     for name in evidence},
        "data hashes": {name: sorted({str(r["data_hash"]) for rs in found.records.values() for r in rs.values()})
                        for name, found in evidence.items()},
    }
