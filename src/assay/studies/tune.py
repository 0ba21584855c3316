"""Choose settings of an arm on the validation split, with the same number of trials for every rule.

The search sees a ``TuningView``: the test set is not in it. Trials are kept in an optuna storage (an SQLite file by
default, any optuna URL for many machines), so that the same call goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, InputError, MissingExtra, expected, unknown
from assay.protocols import ACCURACY, Metric
from assay.results import Figure, Finding, Measurement, Reference, Run, Series, Table, Verdict
from assay.seeding import derive
from assay.studies.arms import Arm, ArmSettings, arms, chosen
from assay.studies.arms.brought import typed
from assay.studies.arms.data import load_task
from assay.studies.bench.asked import asked_tasks

if TYPE_CHECKING:
    from assay.protocols import Split
    from assay.tasks.base import TuningView

TUNING_SEED = 1000
"""Splits and initial weights of the search; the benchmark's seeds start at 42 and never meet it."""
DEFAULT_STORAGE = Path("assay-runs") / "tuning.sqlite"


@dataclass(frozen=True)
class Range:
    """The values a search may try: from ``low`` to ``high``, evenly or (``log``) evenly in the exponent."""

    low: float
    high: float
    log: bool = False
    whole: bool = False


SPACE: Mapping[str, Range] = {
    "learning_rate": Range(3e-4, 6e-3, log=True),
    "input_noise": Range(0.0, 0.4),
}
ENERGY_SPACE: Mapping[str, Range] = {
    "beta": Range(0.1, 0.6),
    "gamma": Range(0.05, 0.6),
    "free_sweeps": Range(3, 15, whole=True),
    "nudged_sweeps": Range(2, 12, whole=True),
}


@dataclass(frozen=True)
class TuningTrial:
    """What was tried, and the validation score it gave, an accuracy or an error (None if it failed)."""

    number: int
    values: Mapping[str, float]
    validation: float | None


@dataclass(frozen=True)
class Tuned:
    """The outcome of a search: the best settings, every trial, and how much each value mattered."""

    task: str
    arm: str
    settings: ArmSettings
    validation: float
    trials: tuple[TuningTrial, ...]
    command: str
    importance: Mapping[str, float] = field(default_factory=dict)
    metric: Metric = ACCURACY

    @property
    def told(self) -> str:
        """The best validation score with its unit."""
        return f"{self.metric.factor * self.validation:.4g} {self.metric.unit}"

    def table(self) -> Table:
        """Every trial, best first."""
        names = sorted(self.trials[0].values) if self.trials else []
        ranked = sorted(self.trials, key=lambda t: -_goodness(t, self.metric))
        rows = [(t.number, *(round(t.values[n], 6) for n in names),
                 None if t.validation is None else round(self.metric.factor * t.validation, 3)) for t in ranked]
        columns = ("trial", *names, f"validation [{self.metric.unit}]")
        return Table(title=f"Trials of {self.arm} on {self.task}", columns=columns,
                     rows=tuple(rows), note=f"Found by: {self.command}")

    def figures(self) -> tuple[Figure, ...]:
        """One picture per setting: how sensitive is the validation accuracy to it?"""
        return tuple(self._figure(name) for name in sorted(self.trials[0].values)) if self.trials else ()

    def _figure(self, name: str) -> Figure:
        factor = self.metric.factor
        points = sorted((t.values[name], factor * t.validation) for t in self.trials if t.validation is not None)
        space = {**SPACE, **ENERGY_SPACE}[name]
        weight = self.importance.get(name)
        share = f" It explains {weight:.0%} of the variance between trials (fANOVA)." if weight is not None else ""
        return Figure(
            key=f"sensitivity-{self.task}-{self.arm.replace('/', '-')}-{name}",
            question=f"How sensitive is {self.arm} on {self.task} to {name.replace('_', ' ')}?",
            x_label=name.replace("_", " "), y_label=f"validation {self.metric.name} [{self.metric.unit}]",
            x_scale="log" if space.log else "linear",
            series=(Series(name="trials", x=tuple(x for x, _ in points), y=tuple(y for _, y in points), style="dots"),),
            references=(Reference(value=factor * self.validation, label="best"),),
            caption=f"One dot per trial; the other settings vary as well.{share}",
        )

    def entry(self) -> dict[str, Any]:
        """What a settings file keeps of the search."""
        return {
            "settings": self.settings.as_record(), "source": self.command,
            "note": f"best of {len(self.trials)} trials, validation {self.told}",
        }


def _goodness(trial: TuningTrial, metric: Metric) -> float:
    if trial.validation is None:
        return -math.inf
    return trial.validation if metric.higher_is_better else -trial.validation


def tune(
    task: Any,
    *,
    rule: Any = "eqprop",
    model: Any = "mlp",
    trials: int = 20,
    seed: int = TUNING_SEED,
    storage: str | None = None,
    train_items: int | None = None,
    search: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    use: Mapping[str, Any] | None = None,
    data: str | Path | None = None,
    command: str | None = None,
    device: str | None = None,
) -> Tuned:
    """The best settings of ``trials`` tried for a rule on a task, judged by the validation score alone.

    Task, rule and model are names or your own, as in ``assay.bench``; ``device`` is where trials run. ``search`` names
    what varies (default: everything ``search_space`` has for the rule); rules searched over the same names are treated
    most alike. ``settings`` fixes what is not searched (``{"hidden": [512, 128], "epochs": 5}``), ``use`` replaces it
    in the outcome (``{"epochs": 12}`` where the search was kept short), ``train_items`` searches on part of the
    training set. Trials already in ``storage`` count: asking for 20 after 12 runs 8 more. Give every rule the same
    number.
    """
    optuna = _optuna()
    arm = arms([rule], [model])[-1]
    (asked,) = asked_tasks([task])
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise expected("trials >= 1", given=f"trials={trials!r}")
    # Noise suits pictures with values in [0, 1]; of a user's own features nobody knows.
    known = ArmSettings(input_noise=0.0) if asked.source is not None else chosen(asked.name, arm).settings
    base = known.changed(settings or {})
    whole = load_task(asked.name, arm, seed=seed, items=train_items, data=data,
                      task_from=asked.source.reference if asked.source else None)
    view = as_view(whole)
    space = search_space(arm, search)
    name = _study_name(asked.name, arm, base=base, view=view, seed=seed, space=space)
    study = _open(optuna, storage, name, asked.metric)
    done = len([t for t in study.trials if t.state.is_finished()])
    # The sampler is seeded by what is already there, so a resumed search draws other points than the finished ones.
    study.sampler = optuna.samplers.TPESampler(seed=derive(seed, name, done) % 2**32, n_startup_trials=min(8, trials))
    if not study.trials:
        study.enqueue_trial(starting_point(base, space))
    with _one_thread():
        study.optimize(
            lambda trial: objective(trial, arm, base=base, space=space, view=view, seed=seed, device=device),
            n_trials=max(0, trials - done))
    # A storage may hold more trials than were asked for; only so many count, or rules would not be treated alike.
    ended = [t for t in study.trials if t.state.is_finished()][:trials]
    tried = tuple(TuningTrial(t.number, dict(t.params), t.value) for t in ended)
    finished = [t for t in tried if t.validation is not None]
    if not finished:
        raise AssayError(f"none of {len(tried)} trials of {arm.name} on {asked.name} finished; "
                         f"look at the settings: {base}")
    best = max(finished, key=lambda t: _goodness(t, asked.metric))
    items = f" --train-items {train_items}" if train_items else ""
    fixed = "".join(f" --search {name}" for name in search or ()) + _flags("--set", settings) + _flags("--use", use)
    spelt = [typed(asked.name, asked.source.reference if asked.source else None), "--rule",
             typed(arm.rule, arm.rule_from), "--model", typed(arm.model, arm.model_from)]
    line = command or f"assay tune {' '.join(spelt)} --trials {trials} --seed {seed}{items}{fixed}"
    best_settings = applied(base, best.values).changed(use or {})
    return Tuned(asked.name, arm.name, best_settings, float(best.validation or 0.0), tried, line,
                 _importance(optuna, study), asked.metric)


def as_view(task: Any) -> TuningView:
    """A task without its test part; one that has no ``for_tuning`` of its own is given one."""
    if hasattr(task, "for_tuning"):
        view: TuningView = task.for_tuning()
        return view
    from assay.tasks.base import TuningView as View
    from assay.tasks.base import split_digest

    inputs = math.prod(task.train.x.shape[1:])
    outputs = task.classes or int(task.train.y.shape[-1])
    digest = getattr(task, "data_hash", None) or split_digest(task.name, task.train, task.validation)
    return View(task.name, task.classes, task.train, task.validation, digest, metric=getattr(task, "metric", ACCURACY),
                inputs=inputs, outputs=outputs, target_scale=getattr(task, "target_scale", 1.0))


def search_space(arm: Arm, names: Sequence[str] | None = None) -> dict[str, Range]:
    """What is searched for an arm: learning rate and input noise; for energy models also nudge, feedback and sweeps.

    ``names`` keeps only those. Free and nudged sweeps go together.

    >>> sorted(search_space(Arm("eqprop"), ["learning_rate", "input_noise"]))
    ['input_noise', 'learning_rate']
    """
    whole = {**SPACE, **ENERGY_SPACE} if arm.relaxes else dict(SPACE)
    if names is None:
        return whole
    for name in names:
        if name not in whole:
            raise InputError(unknown(f"setting to search for {arm.name}", name, sorted(whole)))
    if ("free_sweeps" in names) != ("nudged_sweeps" in names):
        raise expected("free_sweeps and nudged_sweeps together", given=", ".join(names))
    if not names:
        raise expected("at least one setting to search", given="none", do="leave search out to search everything")
    return {name: whole[name] for name in whole if name in names}


def applied(settings: ArmSettings, values: Mapping[str, float]) -> ArmSettings:
    """``settings`` with the values of a trial put in."""
    plain: dict[str, Any] = {k: v for k, v in values.items() if k not in ("free_sweeps", "nudged_sweeps")}
    if "free_sweeps" in values:
        plain["sweeps"] = (int(values["free_sweeps"]), int(values["nudged_sweeps"]))
    return settings.changed({key: round(v, 6) if isinstance(v, float) else v for key, v in plain.items()})


def starting_point(settings: ArmSettings, space: Mapping[str, Range]) -> dict[str, float]:
    """The settings before the search, as its first trial: a search never ends below where it began."""
    known = {**settings.as_record(), "free_sweeps": settings.sweeps[0], "nudged_sweeps": settings.sweeps[1]}
    return {name: min(max(known[name], r.low), r.high) for name, r in space.items()}


def objective(
    trial: Any, arm: Arm, *, base: ArmSettings, space: Mapping[str, Range], view: TuningView, seed: int,
    device: str | None = None,
) -> float:
    """Validation score of one trial; a run that diverged counts with what it reached."""
    from assay.studies.arms.build import build, fit

    values = {
        name: trial.suggest_int(name, int(r.low), int(r.high)) if r.whole
        else trial.suggest_float(name, r.low, r.high, log=r.log)
        for name, r in space.items()
    }
    settings = applied(base, values)
    result = fit(build(arm, settings, view, seed=seed), Searched(view), settings, seed=seed, device=device)
    return float(result.validation_accuracy if view.classes else result.validation_error)


@dataclass(frozen=True)
class Searched:
    """A tuning view in the shape the training loop wants: where it asks for a test set it gets validation again."""

    view: TuningView

    @property
    def name(self) -> str:
        return self.view.name

    @property
    def classes(self) -> int:
        return self.view.classes

    @property
    def target_scale(self) -> float:
        return self.view.target_scale

    @property
    def train(self) -> Split:
        return self.view.train

    @property
    def validation(self) -> Split:
        return self.view.validation

    @property
    def test(self) -> Split:
        return self.view.validation

    @property
    def data_hash(self) -> str:
        return self.view.data_hash


def save_settings(path: str | Path, tuned: Sequence[Tuned]) -> Path:
    """Write the outcome of searches into a settings file, keeping the arms it already has."""
    from assay.engine import write_atomically

    file = Path(path)
    names = {t.task for t in tuned}
    if len(names) != 1:
        raise expected("searches of one task", given=", ".join(sorted(names)) or "none")
    try:
        content = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except ValueError as error:
        raise InputError(f"{file} is not a settings file: {error}; give another path to --save") from None
    merged = {"task": names.pop(), "arms": {**content.get("arms", {}), **{t.arm: t.entry() for t in tuned}}}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, (json.dumps(merged, indent=1) + "\n").encode())
    return file


def tuning_run(tuned: Tuned) -> Run:
    """The search as a report: does the best setting learn at all, and which settings matter?"""
    from assay.studies.study import make_run

    measurement = Measurement(name=f"validation {tuned.metric.name}",
                              value=tuned.metric.factor * tuned.validation, unit=tuned.metric.unit, seeds=(), values=(),
                              note="best of all trials, so an optimistic number: judge it by the benchmark")
    finding = Finding(
        subject=f"{tuned.arm} on {tuned.task}", name=f"{tuned.task}/{tuned.arm}",
        claim="Settings were chosen on validation; nothing is claimed of the test set.", verdict=Verdict.INCONCLUSIVE,
        reason=f"a search chooses and does not test: best validation {tuned.metric.name} {tuned.told} of "
               f"{len(tuned.trials)} trials",
        headline=measurement.name, measurements=(measurement,), tables=(tuned.table(),), figures=tuned.figures(),
        rerun=tuned.command,
    )
    return make_run(
        "bench", f"Tuning {tuned.arm} on {tuned.task}", [finding], identity={"tuning": finding.name},
        command=tuned.command, config={"chosen": tuned.settings.as_record(), "importance": dict(tuned.importance)},
    )


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """One thread, as in the cells of the benchmark: what is tuned is what is run, to the bit.

    On a busy machine it is also much faster: threads that share a small product wait for each other by spinning.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _flags(flag: str, values: Mapping[str, Any] | None) -> str:
    return "".join(f" {flag} {key}={json.dumps(v, separators=(',', ':'))}" for key, v in (values or {}).items())


def _study_name(
    task: str, arm: Arm, *, base: ArmSettings, view: TuningView, seed: int, space: Mapping[str, Range]
) -> str:
    """Searches over other data, other fixed settings or other names are other studies: their trials are not mixed."""
    mark = derive(seed, json.dumps(base.as_record(), sort_keys=True), view.data_hash, ",".join(space)) % 16**8
    return f"{task}/{arm.name}/{mark:08x}"


def _open(optuna: Any, storage: str | None, name: str, metric: Metric) -> Any:
    if storage is None:
        DEFAULT_STORAGE.parent.mkdir(parents=True, exist_ok=True)
        storage = f"sqlite:///{DEFAULT_STORAGE}"
    try:
        direction = "maximize" if metric.higher_is_better else "minimize"
        return optuna.create_study(storage=storage, study_name=name, direction=direction, load_if_exists=True)
    except (sqlite3.Error, ValueError, ImportError) as error:
        raise InputError(f"cannot open the optuna storage '{storage}': {error}; give e.g. sqlite:///file.db") from None
    except Exception as error:
        if type(error).__module__.startswith("sqlalchemy"):
            first = str(error).splitlines()[0]
            raise InputError(f"cannot open the optuna storage '{storage}': {first}") from None
        raise


def _importance(optuna: Any, study: Any) -> dict[str, float]:
    """The share of variance each setting explains (fANOVA, seeded); empty where trials are too few or all equal."""
    complete = [t for t in study.trials if t.value is not None]
    if len(complete) < 4 or len({t.value for t in complete}) < 2:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    return {k: float(v) for k, v in optuna.importance.get_param_importances(study, evaluator=evaluator).items()}


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtra("optuna", "tune", "assay tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
