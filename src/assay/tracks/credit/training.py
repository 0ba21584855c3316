"""What the credit tracks share: small nets trained by one rule on one task, and the numbers both protocols need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from assay.protocols import Budget, Outcomes, Trial
from assay.results import Measurement, Region, Verdict
from assay.stats.decision import MINIMUM_SEEDS
from assay.tracks.shared.records import Record, recorded

if TYPE_CHECKING:
    from torch import nn

    from assay.audits.credit.depth import Utility
    from assay.protocols import Rule, Task

WIDTH, DEPTH, EPOCHS, BATCH, RATE = 32, 4, 10, 64, 0.03
BATCH_AUDITED = 128
BELOW_FROZEN = Region(high=0.0)
"""Where the gap of an arm lies whose trained blocks do worse than blocks left as they were."""


class TrainedBlocks(Record):
    """One net trained by one rule: its test answers, and what both protocols read off its stream."""

    accuracy: float
    correct: str
    """One digit an item of the test part: 1 where the net is right."""
    classes: int
    growth: float
    gradient: float
    cosines: tuple[float, ...]
    mean_cosine: float

    @property
    def answers(self) -> list[bool]:
        """Which items of the test part the net gets right."""
        return [item == "1" for item in self.correct]


R = TypeVar("R", bound=Record)
Arms = Mapping[str, Mapping[int, R]]
"""The records of every arm by seed."""


def trials(arms: Iterable[str], budget: Budget, seeds: Sequence[int]) -> list[Trial]:
    """Every arm at every seed."""
    arms = tuple(arms)
    return [Trial(arm=arm, seed=seed, budget=budget) for seed in seeds for arm in arms]


def of_arms(outcomes: Outcomes, arms: Iterable[str]) -> dict[str, dict[int, TrainedBlocks]]:
    """The records of these arms."""
    return {arm: recorded(outcomes, arm, TrainedBlocks) for arm in arms}


def task_called(name: str, seed: int) -> Task:
    """Digits, or stripes, which no linear map solves."""
    from assay import tasks

    return tasks.digits(seed=seed) if name == "digits" else tasks.stripes(seed=seed, train=1500, test=360)


def train_arm(
    name: str, seed: int, *, task: str = "digits", penalty: float = 0.0, budget: Budget = "quick"
) -> TrainedBlocks:
    """One arm trained and audited: ``backprop``, ``frozen``, ``dfa`` or ``fa`` (both block level)."""
    from assay.audits.credit.alignment import credit_signals
    from assay.audits.credit.published import published
    from assay.audits.credit.recipe import correct_items
    from assay.audits.credit.reference import clamped_cosine
    from assay.audits.credit.stream import exact_stream
    from assay.probe.blocks import discover_blocks

    data = task_called(task, seed)
    model, rule = trained(name, data, seed, penalty=penalty, budget=budget)
    x, y = data.test.x[:BATCH_AUDITED], data.test.y[:BATCH_AUDITED]
    blocks = discover_blocks(model, x)
    stream = exact_stream(model, x, y, blocks)
    found = published(stream)
    signals = credit_signals(rule, model, x, y, blocks=blocks)
    cosines = [clamped_cosine(s / len(y), g / len(y)) for s, g in zip(signals, stream.gradients, strict=True)
               if s is not None]
    correct = correct_items(model, data.test.x, data.test.y)
    return TrainedBlocks(
        accuracy=sum(correct) / len(correct),
        correct="".join("1" if item else "0" for item in correct),
        classes=data.classes,
        growth=found.growth,
        gradient=found.gradient,
        cosines=tuple(cosines),
        mean_cosine=sum(cosines) / len(cosines),
    )


def trained(
    name: str, data: Task, seed: int, *, penalty: float = 0.0, budget: Budget = "quick"
) -> tuple[nn.Module, Rule]:
    """A fresh residual net trained by the rule called ``name``, and the rule."""
    import torch

    from assay.audits.credit.recipe import freeze_blocks
    from assay.learning import train
    from assay.networks.feedforward.res_mlp import ResMLP
    from assay.rules import Backprop, FeedbackAlignment

    model = ResMLP(data.train.x[0].numel(), width=WIDTH, depth=DEPTH, classes=data.classes, seed=seed)
    rule: Rule = Backprop()
    if name == "frozen":
        freeze_blocks(model, data.train.x[:2], trainable=0)
    elif name in ("fa", "dfa"):
        kind: Any = name
        rule = FeedbackAlignment(model, kind=kind, level="block", seed=seed, penalty=penalty)
    train(model, data, rule, epochs=1 if budget == "smoke" else EPOCHS, seed=seed, batch_size=BATCH,
          optimiser=lambda parameters: torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.01))
    return model, rule


def undecidable(arms: Arms[R], **numbers: Callable[[R], float]) -> str | None:
    """Why these trials decide nothing: an arm without a result, no seed in common, a number that is NaN; else None."""
    if gone := [arm for arm, records in arms.items() if not records]:
        return f"no result for {', '.join(gone)}"
    if not set.intersection(*(set(records) for records in arms.values())):
        return "no seed finished in every arm"
    broken = [f"{name} of {arm}" for arm, records in arms.items() for name, number in numbers.items()
              if any(math.isnan(number(record)) for record in records.values())]
    return f"not a number: {', '.join(broken)}" if broken else None


def judged(arms: Arms[TrainedBlocks], arm: str, *, backprop: str) -> Utility:
    """Whether training the blocks pays in ``arm``: the depth check of the credit audit."""
    from assay.audits.credit.depth import Baselines, judge_utility

    def rows(name: str) -> Mapping[int, Sequence[bool]]:
        return {seed: record.answers for seed, record in arms[name].items()}

    return judge_utility(Baselines({"rule": rows(arm), "backprop": rows(backprop), "frozen": rows("frozen")}))


def shown(gap: Measurement, name: str, region: Region) -> Measurement:
    """The gap as a report shows it: under its name, in percentage points, beside what the claim allows."""
    from assay.audits.credit.depth import in_points

    return in_points(gap.model_copy(update={"name": name, "region": region}))


def gap(arms: Arms[TrainedBlocks], arm: str, *, backprop: str) -> Measurement:
    """By how much ``arm`` beats frozen blocks."""
    found = judged(arms, arm, backprop=backprop).gap
    assert found is not None, "only an audit without baselines has no gap"
    return found


def verdict(*, holds: bool, refuted: bool, seeds: Sequence[int]) -> Verdict:
    """PASS or FAIL where the numbers say so; fewer than three seeds decide nothing, neither for a claim nor against."""
    if len(seeds) < MINIMUM_SEEDS:
        return Verdict.INCONCLUSIVE
    return Verdict.FAIL if refuted else Verdict.PASS if holds else Verdict.INCONCLUSIVE
