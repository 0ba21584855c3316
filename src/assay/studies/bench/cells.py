"""The cells of a benchmark: what to run, under which key, and how one cell is measured in a worker."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.engine import cell_key, content_key
from assay.learning.controls import shuffle_labels
from assay.protocols import Budget, Cell, Together, Trial
from assay.seeding import derive
from assay.studies.arms import Arm, ArmSettings, chosen, find_arm
from assay.studies.arms.data import load_task
from assay.studies.where import elsewhere, gpus_of

QUICK_ITEMS = 10_000
"""Training items of a large task at quick budget; standard and full use all of them."""
QUICK_SHARE = 0.5
"""Share of the epochs of a large task at quick budget."""
LARGE = ("mnist", "fashion-mnist", "cifar10")
EPISODES = 100
CONTROL_SEEDS = 3
REFERENCE = "control: baseline"
RESTARTED = "control: other initialisation"
SHUFFLED = "control: shuffled labels"
FLOORS = "floors"
NARROW = 128
"""``energy_mlp.population.WIDEST``, written out so that a driver does not load torch; a test keeps them equal."""
SIDE_BY_SIDE = ("backprop/mlp",)
"""Arms whose seeds can be trained as one batched program; whether they are is up to ``train_many`` and the engine."""
CELL = "assay.studies.bench.cells:measure_cell"


@dataclass(frozen=True)
class Source:
    """A task of the user's own: where cells find it, its code, and the digest of its data."""

    reference: str
    modules: tuple[str, ...]
    data_hash: str


@dataclass(frozen=True)
class BenchTrial:
    """A trial of a benchmark: an arm of a task at a seed, with its settings."""

    task: str
    arm: Arm
    seed: int
    settings: ArmSettings
    items: int | None
    """Training items if only some are used."""
    twist: str = ""
    """What makes it something else than the arm: a control, or the floors of the task."""
    source: Source | None = None
    """Where a task of the user's own is found."""

    @property
    def name(self) -> str:
        """The arm of the trial, as the outcomes of the task tell it from others."""
        if self.twist == FLOORS:
            return FLOORS
        return f"{self.twist}/{self.arm.model}" if self.twist else self.arm.name

    def as_trial(self, budget: Budget, config: Mapping[str, Any] | None = None) -> Trial:
        """What a question plans."""
        return Trial(self.name, self.seed, budget, config or {})


def plan_task(
    task: str, arms: Sequence[Arm], *, budget: Budget, seeds: Sequence[int], overrides: Mapping[str, Any] | None = None,
    source: Source | None = None, settings_from: Path | None = None,
) -> list[BenchTrial]:
    """All trials of one task: every arm at every seed, the controls of each baseline, and the floors once."""
    trials = []
    for arm in arms:
        # Noise suits pictures with values in [0, 1]; of a user's own features nobody knows.
        known = ArmSettings(input_noise=0.0) if source is not None else chosen(task, arm, settings_from).settings
        tuned = known.changed(overrides or {})
        settings, items = _budgeted(tuned, task, budget)
        trials += [BenchTrial(task, arm, seed, settings, items) for seed in seeds]
        if arm == arm.baseline:
            trials += _controls(task, arm, tuned, seeds[:CONTROL_SEEDS])
    _, items = _budgeted(ArmSettings(), task, budget)
    trials.append(BenchTrial(task, arms[0].baseline, seeds[0], ArmSettings(), items, FLOORS))
    return [replace(trial, source=source) for trial in trials]


def _controls(task: str, baseline: Arm, tuned: ArmSettings, seeds: Sequence[int]) -> list[BenchTrial]:
    """Comparisons whose answer is known, in the quick form of the task: backprop against itself and against noise."""
    settings, items = _budgeted(tuned, task, "quick")
    return [
        BenchTrial(task, baseline, seed, settings, items, twist)
        for twist in (REFERENCE, RESTARTED, SHUFFLED) for seed in seeds
    ]


def as_cell(trial: BenchTrial, *, data: str | None, device: str | None = None) -> Cell:
    """The cell of a trial.

    The key leaves out where the data lie and what the trial is called: a control that repeats an arm is that arm's
    cell.
    """
    twist = "" if trial.twist == REFERENCE else trial.twist
    identity: dict[str, Any] = {
        "task": trial.task, "twist": twist, "arm": trial.arm.name, "seed": trial.seed,
        "settings": {} if twist == FLOORS else trial.settings.as_record(), "items": trial.items,
    }
    modules: tuple[str, ...] = trial.arm.modules
    if trial.arm.brought:
        identity["parts"] = trial.arm.as_record()
    if trial.source is not None:
        identity |= {"task_from": trial.source.reference, "task_hash": trial.source.data_hash}
        modules += trial.source.modules
    identity |= elsewhere(device)
    return Cell(
        key=cell_key(CELL, identity, modules=modules),
        target=CELL,
        payload={**identity, "data": data},
        gpus=gpus_of(device),
        label=f"{trial.task} {trial.name} seed {trial.seed}",
        group=f"{trial.task}/{trial.name}/{trial.settings.epochs}/{trial.items}",
        timeout=6 * 3600.0,
        together=_together(trial, identity),
    )


def _together(trial: BenchTrial, identity: Mapping[str, Any]) -> Together | None:
    """The seeds of an arm as siblings, if its network is narrow; a large task would be in memory once for each."""
    narrow = bool(trial.settings.hidden) and max(trial.settings.hidden) <= NARROW
    if trial.twist == FLOORS or not narrow or trial.task in LARGE or trial.arm.name not in SIDE_BY_SIDE:
        return None
    family = content_key({name: value for name, value in identity.items() if name != "seed"})
    return Together("assay.studies.bench.cells:measure_together", family)


def measure_cell(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Train and score one arm at one seed; called by name inside a worker process."""
    if payload["twist"] == FLOORS:
        task = _task(payload, _arm(payload))
        return {**task.floors().as_record(), "items": len(task.test)}
    return measure_together([payload])[0]


def measure_together(payloads: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The records of one arm at several seeds; called by name inside a worker process."""
    arm, settings = _arm(payloads[0]), ArmSettings().changed(payloads[0]["settings"])
    tasks, seeds, initial_seeds = [], [int(payload["seed"]) for payload in payloads], []
    for payload, seed in zip(payloads, seeds, strict=True):
        task = _task(payload, arm)
        tasks.append(shuffle_labels(task, seed=seed) if payload["twist"] == SHUFFLED else task)
        initial_seeds.append(derive(seed, "restart") % 2**31 if payload["twist"] == RESTARTED else seed)
    return measure(tasks, arm, settings, seeds=seeds, initial_seeds=initial_seeds,
                   device=payloads[0].get("device"))


def _arm(payload: Mapping[str, Any]) -> Arm:
    return Arm(**payload["parts"]) if "parts" in payload else find_arm(payload["arm"])


def _task(payload: Mapping[str, Any], arm: Arm) -> Any:
    return load_task(payload["task"], arm, seed=int(payload["seed"]), items=payload["items"], data=payload["data"],
                     task_from=payload.get("task_from"))


def measure(
    tasks: Sequence[Any], arm: Arm, settings: ArmSettings, *, seeds: Sequence[int], initial_seeds: Sequence[int],
    device: str | None = None,
) -> list[dict[str, Any]]:
    """The record of each training: accuracies, time, residual, gradient agreement and, in an environment, return."""
    import torch

    from assay.studies.arms.build import build, fit_many
    from assay.studies.bench.along import Along

    torch.set_num_threads(1)
    built = [build(arm, settings, task, seed=seed) for task, seed in zip(tasks, initial_seeds, strict=True)]
    along = Along(built, tasks)
    began = time.process_time()
    results = fit_many(built, tasks, settings, seeds=seeds, device=device, callbacks=[along] if arm.relaxes else [])
    share, looking = (time.process_time() - began - along.processor) / len(seeds), along.clock / len(seeds)
    relaxed = {"gamma": settings.gamma, "sweeps": list(settings.sweeps)} if arm.relaxes else {}
    return [
        {**_record(one, task, result, seed=seed), "seconds": result.seconds - looking, "cpu_seconds": share,
         **relaxed, **along.record(one.model)}
        for one, task, result, seed in zip(built, tasks, results, seeds, strict=True)
    ]


def _record(built: Any, task: Any, result: Any, *, seed: int) -> dict[str, Any]:
    from assay.learning.answers import answered
    from assay.studies.arms.build import gradient_agreement
    from assay.studies.arms.profile import profile

    record = {
        **_scores(task, result), "loss": result.final_loss,
        "diverged": result.diverged, "epochs": len(result.history),
        "residual": _largest(epoch.residual for epoch in result.history),
        "items": len(task.test), **answered(built.model, task.test, rule=built.rule),
        "train_items": len(task.train), "data_hash": task.data_hash,
        "parameters": sum(p.numel() for p in built.model.parameters()),
        "curve": [round(epoch.validation_accuracy if task.classes else epoch.validation_error, 5)
                  for epoch in result.history],
        "gradient_agreement": gradient_agreement(built, task.train.x[:128], task.train.y[:128]),
        **profile(built, task.train.x[:128], task.train.y[:128]).as_record(),
    }
    if hasattr(task, "returns"):
        played = task.returns(built.model, episodes=EPISODES, seed=seed)
        expert = task.expert_returns(episodes=EPISODES, seed=seed)
        record.update(return_mean=played.mean, return_worst=played.worst, expert_mean=expert.mean, episodes=EPISODES,
                      best_episodes=sum(value >= max(expert.values) for value in played.values))
    return record


def _largest(residuals: Iterable[float | None]) -> float | None:
    """Of all epochs; a NaN among them is the answer, not skipped."""
    known = [residual for residual in residuals if residual is not None]
    return max(known, key=lambda value: math.inf if math.isnan(value) else value, default=None)


def _scores(task: Any, result: Any) -> dict[str, float]:
    if task.classes:
        return {"accuracy": result.test_accuracy, "validation": result.validation_accuracy}
    return {"error": result.test_error, "validation": result.validation_error}


def _budgeted(settings: ArmSettings, task: str, budget: Budget) -> tuple[ArmSettings, int | None]:
    """Settings and number of training items (None: all) of a task at a budget."""
    if budget in ("smoke", "quick") and task in LARGE:
        return settings.changed({"epochs": max(1, round(QUICK_SHARE * settings.epochs))}), QUICK_ITEMS
    return settings, None
