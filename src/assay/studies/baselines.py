"""Depth baselines of a user's model as engine cells: cached by model, data, recipe and seed, shared between rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.engine import cell_key
from assay.errors import AssayError, expected
from assay.protocols import Cell, Trial
from assay.studies.study import DEFAULT_ROOT, Place, Planned, Question, Study
from assay.studies.where import elsewhere, gpus_of, named_device

if TYPE_CHECKING:
    from assay.audits.credit import Baselines

CELL = "assay.studies.baselines:arm_cell"


def train_baselines(
    model: str,
    task: str,
    *,
    rule: str,
    blocks: str | None,
    epochs: int,
    seeds: Sequence[int],
    store: str | Path = DEFAULT_ROOT / "cells",
    workers: int | None = None,
    device: str | None = None,
) -> Baselines:
    """Which test items the rule, backprop and frozen arms get right, trained on a task named as in ``assay.tasks``.

    ``model`` is an import path to what makes a model, or to a module that can draw its weights again; ``device`` is
    where it is trained.
    """
    from assay import tasks
    from assay.audits.credit import Baselines
    from assay.learning.resolve import as_model

    if ":" in task or task.endswith(".safetensors"):
        raise expected(
            "a named task to train the depth baselines on",
            given=f"--data {task}",
            do=f"one of {', '.join(tasks.names())}, or pass baselines= in Python",
        )
    as_model(model)  # refuses here, before any worker starts, what cannot be made afresh for every seed
    device = named_device(device)
    digest = tasks.load(task).data_hash
    arms = {"rule": (rule, None), "backprop": ("backprop", None), "frozen": ("backprop", 0)}
    planned: list[Planned] = []
    for seed in seeds:
        for arm, (name, trainable) in arms.items():
            payload = {
                "model": model,
                "task": task,
                "rule": name,
                "trainable": trainable,
                "blocks": blocks,
                "epochs": epochs,
                "seed": seed,
                **elsewhere(device),
            }
            key = cell_key(CELL, {**payload, "data": digest})
            cell = Cell(
                key=key,
                target=CELL,
                payload=payload,
                label=f"{arm} seed {seed}",
                group=f"{model}/{arm}",
                gpus=gpus_of(device),
            )
            planned.append(Planned(Trial(arm, seed), cell))
    question = Question("baselines", f"depth baselines of {model}", tuple(planned))
    outcomes = Study((question,)).answer(Place(store=store, workers=workers)).outcomes[question.key]
    for outcome in outcomes:
        if outcome.failure is not None:
            raise AssayError(f"baseline {outcome.trial.arm}, seed {outcome.trial.seed}: {outcome.failure.message}")
    return Baselines({
        arm: {seed: [item == "1" for item in record["correct"]] for seed, record in outcomes.arm(arm).items()}
        for arm in arms
    })


def arm_cell(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Train one arm of a user's model in a worker; the record holds a 1 for every test item it gets right."""
    from assay import tasks
    from assay.audits.credit.recipe import correct_items, freeze_blocks
    from assay.learning import train
    from assay.learning.device import chosen_device, on_device
    from assay.learning.resolve import as_model, as_rule
    from assay.probe.copies import device_of
    from assay.rules import FeedbackAlignment

    seed = int(payload["seed"])
    task = tasks.load(payload["task"], seed=seed)
    model = as_model(payload["model"], seed=seed).to(chosen_device(payload.get("device")))
    if payload["trainable"] is not None:
        some = task.train.x[:2].to(device_of(model))
        freeze_blocks(model, some, trainable=payload["trainable"], glob=payload["blocks"])
    rule = as_rule(payload["rule"], model, seed=seed, blocks=payload["blocks"])
    if isinstance(rule, FeedbackAlignment):
        rule.refuse_partial = True
    train(model, task, rule, epochs=payload["epochs"], seed=seed)
    test = on_device(task.test, device_of(model))
    correct = correct_items(model, test.x, test.y, rule=rule)
    return {"accuracy": sum(correct) / len(correct), "correct": "".join("1" if item else "0" for item in correct)}
