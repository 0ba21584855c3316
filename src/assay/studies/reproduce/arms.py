"""Depth baselines of a user's model as engine cells: cached by model, data, recipe and seed, shared between rules."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.engine import LocalExecutor, Store, cell_key, execute
from assay.errors import AssayError, InputError, expected, unknown
from assay.protocols import Cell, Rule

if TYPE_CHECKING:
    from torch import nn

    from assay.audits.credit import Baselines

RULES = ("backprop", "eqprop", "fa", "dfa", "fa-block", "dfa-block")
CELL = "assay.studies.reproduce.arms:arm_cell"


def named_rule(name: str, model: nn.Module, seed: int, blocks: str | None = None) -> Rule:
    """A rule by name: fa and dfa work at every layer, fa-block and dfa-block at the boundaries of ``blocks`` (a glob).

    ``eqprop`` has its default settings. ``pkg.module:name`` is a rule of your own (see ``rule_from``).
    """
    from assay.rules import Backprop, EqProp, FeedbackAlignment

    if ":" in name:
        return rule_from(name, imported(name), model)
    if name not in RULES:
        raise InputError(unknown("rule", name, (*RULES, "pkg.module:name")))
    if name == "backprop":
        return Backprop()
    if name == "eqprop":
        return EqProp()
    kind: Any = name.partition("-")[0]
    at_blocks = name.endswith("block")
    level: Any = "block" if at_blocks else "layer"
    return FeedbackAlignment(model, kind=kind, level=level, seed=seed, blocks=blocks if at_blocks else None)


def rule_from(path: str, found: Any, model: nn.Module) -> Rule:
    """What is at ``path`` if it is a rule, else what it makes: a class or function, of the model if it takes one."""
    import inspect

    if isinstance(found, Rule) and not isinstance(found, type):
        return found
    needed = [p for p in inspect.signature(found).parameters.values() if p.default is p.empty]
    made = found(model) if needed else found()
    if not isinstance(made, Rule):
        raise expected(
            "a rule with backward(model, x, y), or a class or function of the model that makes one",
            given=f"{path}: {type(made).__name__}",
        )
    return made


def imported(path: str) -> Any:
    """The object at ``pkg.module:name``."""
    module, _, name = path.partition(":")
    return attrgetter(name)(importlib.import_module(module))


def train_baselines(
    model: str,
    task: str,
    *,
    rule: str,
    blocks: str | None,
    epochs: int,
    seeds: Sequence[int],
    store: str | Path = Path("assay-runs") / "cells",
    workers: int | None = None,
) -> Baselines:
    """Which test items the rule, backprop and frozen arms get right, trained on a task named as in ``assay.tasks``.

    ``model`` is an import path to a function that takes ``seed`` and returns a fresh model.
    """
    from assay import tasks
    from assay.audits.credit import Baselines

    if ":" in task or task.endswith(".safetensors"):
        raise expected(
            "a named task to train the depth baselines on",
            given=f"--data {task}",
            do=f"one of {', '.join(tasks.names())}, or pass baselines= in Python",
        )
    digest = tasks.load(task).data_hash
    arms = {"rule": (rule, None), "backprop": ("backprop", None), "frozen": ("backprop", 0)}
    planned: dict[tuple[str, int], Cell] = {}
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
            }
            key = cell_key(CELL, {**payload, "data": digest})
            planned[arm, seed] = Cell(
                key=key,
                target=CELL,
                payload=payload,
                label=f"{arm} seed {seed}",
                group=f"{model}/{arm}",
            )
    results = {
        r.cell.key: r for r in execute(planned.values(), store=Store(Path(store)), executor=LocalExecutor(workers))
    }
    found: dict[str, dict[int, list[bool]]] = {arm: {} for arm in arms}
    for (arm, seed), cell in planned.items():
        result = results[cell.key]
        if result.record is None:
            raise AssayError(
                f"baseline {arm}, seed {seed}: {result.failure.message if result.failure else 'no result'}"
            )
        found[arm][seed] = [item == "1" for item in result.record["correct"]]
    return Baselines(found)


def arm_cell(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Train one arm of a user's model in a worker; the record holds a 1 for every test item it gets right."""
    import inspect

    from assay import tasks
    from assay.audits.credit.recipe import correct_items, freeze_blocks
    from assay.learning import train

    factory = imported(payload["model"])
    if not callable(factory) or "seed" not in inspect.signature(factory).parameters:
        raise expected(
            "a model factory that takes seed=",
            given=payload["model"],
            do="the depth baselines need a fresh model per seed: def build(seed): ...",
        )
    seed = int(payload["seed"])
    model, task = factory(seed=seed), tasks.load(payload["task"], seed=seed)
    if payload["trainable"] is not None:
        freeze_blocks(model, task.train.x[:2], trainable=payload["trainable"], glob=payload["blocks"])
    rule = named_rule(payload["rule"], model, seed, payload["blocks"])
    train(model, task, rule, epochs=payload["epochs"], seed=seed)
    correct = correct_items(model, task.test.x, task.test.y)
    return {"accuracy": sum(correct) / len(correct), "correct": "".join("1" if item else "0" for item in correct)}
