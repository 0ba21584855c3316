"""What the credit tracks share: small nets trained by one rule on one task, and the numbers both protocols need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assay.protocols import Budget, Outcomes, Trial

if TYPE_CHECKING:
    from torch import nn

    from assay.audits.credit import Baselines
    from assay.protocols import Rule, Task

WIDTH, DEPTH, EPOCHS, BATCH, RATE = 32, 4, 10, 64, 0.03
BATCH_AUDITED = 128
SOURCES = ("assay.tasks", "assay.models", "assay.rules", "assay.audits.credit", "assay.tracks.credit_training")


def trials(arms: Iterable[str], budget: Budget, seeds: Sequence[int]) -> list[Trial]:
    """Every arm at every seed."""
    arms = tuple(arms)
    return [Trial(arm=arm, seed=seed, budget=budget) for seed in seeds for arm in arms]


def task_called(name: str, seed: int) -> Task:
    """Digits, or stripes, which no linear map solves."""
    from assay import tasks

    return tasks.digits(seed=seed) if name == "digits" else tasks.stripes(seed=seed, train=1500, test=360)


def train_arm(name: str, seed: int, *, task: str = "digits", penalty: float = 0.0) -> dict[str, Any]:
    """One arm trained and audited: ``backprop``, ``frozen``, ``dfa`` or ``fa`` (both block level)."""
    from assay.audits.credit.alignment import credit_signals
    from assay.audits.credit.published import published
    from assay.audits.credit.recipe import correct_items
    from assay.audits.credit.reference import clamped_cosine
    from assay.audits.credit.stream import exact_stream
    from assay.rules.feedback_discovery import discover_blocks

    data = task_called(task, seed)
    model, rule = trained(name, data, seed, penalty=penalty)
    x, y = data.test.x[:BATCH_AUDITED], data.test.y[:BATCH_AUDITED]
    blocks = discover_blocks(model, x)
    stream = exact_stream(model, x, y, blocks)
    found = published(stream)
    signals = credit_signals(rule, model, x, y, blocks)
    cosines = [clamped_cosine(s / len(y), g / len(y)) for s, g in zip(signals, stream.gradients, strict=True)
               if s is not None]
    correct = correct_items(model, data.test.x, data.test.y)
    return {
        "accuracy": sum(correct) / len(correct),
        "correct": "".join("1" if item else "0" for item in correct),
        "classes": data.classes,
        "growth": found.growth,
        "gradient": found.gradient,
        "cosines": cosines,
        "mean_cosine": sum(cosines) / len(cosines),
    }


def trained(name: str, data: Task, seed: int, *, penalty: float = 0.0) -> tuple[nn.Module, Rule]:
    """A fresh residual net trained by the rule called ``name``, and the rule."""
    import torch

    from assay.audits.credit.recipe import freeze_blocks
    from assay.models.res_mlp import ResMLP
    from assay.rules import Backprop, FeedbackAlignment, train

    model = ResMLP(data.train.x[0].numel(), width=WIDTH, depth=DEPTH, classes=data.classes, seed=seed)
    rule: Rule = Backprop()
    if name == "frozen":
        freeze_blocks(model, data.train.x[:2], trainable=0)
    elif name in ("fa", "dfa"):
        kind: Any = name
        rule = FeedbackAlignment(model, kind=kind, level="block", seed=seed, penalty=penalty)
    train(model, data, rule, epochs=EPOCHS, seed=seed, batch_size=BATCH,
          optimiser=lambda parameters: torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.01))
    return model, rule


def baselines(outcomes: Outcomes, *, rule: str, backprop: str, frozen: str) -> Baselines:
    """The arms of a track as the depth check wants them."""
    from assay.audits.credit import Baselines

    def rows(arm: str) -> Mapping[int, Sequence[bool]]:
        return {seed: [item == "1" for item in record["correct"]] for seed, record in outcomes.arm(arm).items()}

    return Baselines({"rule": rows(rule), "backprop": rows(backprop), "frozen": rows(frozen)})


def missing(outcomes: Outcomes, arms: Iterable[str]) -> list[str]:
    """Arms without a single finished trial."""
    return [arm for arm in arms if not outcomes.arm(arm)]
