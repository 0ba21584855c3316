"""Which reading of the recipe gives the published frozen-blocks baseline: the runs that are asked.

The baseline has one figure on the ResMLP, so almost any reading can be bent towards it. Two others hold against that:
backprop's accuracy, where a choice is shared by all arms, and the frozen baseline of ViT-Mini, trained here with the
embedding learning from the gradient, from direct feedback, or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from assay.audits.credit.recipe import correct_items, freeze_blocks
from assay.learning.training import train as the_one_loop
from assay.networks.feedforward.vit_mini import ViTMini
from assay.rules.backprop import Backprop
from assay.rules.feedback.rule import FeedbackAlignment
from assay.studies.reproduce.cifar import Cifar, augmented, load
from assay.studies.reproduce.methods import adamw, cosine_by_epoch
from assay.studies.reproduce.reading_runs import BATCH, ReadingRun
from assay.studies.reproduce.readings import OTHER, Reading, acts_on

SHARED = ("schedule", "optimiser", "decay", "clipping", "norms", "write_init", "pixels", "augmentation")
"""Choices of the recipe that all arms share: backprop's figure speaks about them too."""
OF_THE_BASELINE = (
    Reading(embedding="untrained"),
    Reading(frozen_embedding="signal"),
    Reading(frozen_embedding="signal", length="unit"),
    Reading(frozen_embedding="signal", size="1, sum"),
    Reading(frozen_embedding="signal", distribution="uniform"),
)
"""What the baseline may do on its own: leave the embedding as it is, or teach it as direct feedback does."""
TOGETHER = (
    Reading(embedding="untrained", norms="fixed"),
    Reading(embedding="untrained", write_init="default"),
    Reading(embedding="untrained", pixels="[0, 1]"),
    Reading(frozen_embedding="signal", norms="fixed"),
    Reading(frozen_embedding="signal", pixels="[0, 1]"),
    Reading(frozen_embedding="signal", length="unit", norms="fixed"),
)
STATED: tuple[dict[str, Any], ...] = (
    {"images": 10000}, {"images": 5000}, {"batch": 512}, {"batch": 32}, {"learning_rate": 1e-2},
    {"learning_rate": 1e-4}, {"test": "crop and flip"}, {"width": 64},
)
"""Departures from what the source does state, in case it was not what it did."""
Learns = Literal["gradient", "signal", "untrained"]


@dataclass(frozen=True)
class VitBaseline:
    """ViT-Mini with frozen blocks; ``learns`` says what patches, class token and positions learn from."""

    learns: Learns
    seed: int = 42
    epochs: int = 3


def screening(epochs: int, seed: int = 42) -> list[ReadingRun]:
    """Every choice by itself, then the two kinds of baseline with what may go with them, then stated settings."""
    start = ReadingRun(arm="frozen", reading=Reading(), seed=seed, epochs=epochs)
    alone = [replace(Reading(), **{name: OTHER[name]}) for name in SHARED]
    runs = [replace(start, reading=reading) for reading in (*OF_THE_BASELINE, *alone, *TOGETHER)]
    return [start, *(run for run in runs if acts_on(run.reading, "frozen")), *(replace(start, **s) for s in STATED)]


def vit_cell(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The record of one ViT baseline in a worker."""
    given = dict(payload)
    data = load(given.pop("data", None))
    return train_vit(VitBaseline(**given), data)


def train_vit(run: VitBaseline, data: Cifar) -> dict[str, Any]:
    """Train by the published recipe with all blocks frozen."""
    started, spent = time.perf_counter(), time.process_time()
    model = ViTMini(seed=run.seed)
    freeze_blocks(model, data.test.x[:2], trainable=0)
    if run.learns == "untrained":
        embedding: list[nn.Parameter] = [*model.patches.parameters(), model.cls, model.positions]
        for parameter in embedding:
            parameter.requires_grad_(False)
    rule = FeedbackAlignment(model, kind="dfa", level="block", seed=run.seed) if run.learns == "signal" else Backprop()
    result = the_one_loop(
        model, data, rule, epochs=run.epochs, seed=run.seed, batch_size=BATCH, optimiser=adamw,
        schedule=cosine_by_epoch(run.epochs), augment=augmented, validation=False, test=False)
    right = correct_items(model, data.test.x, data.test.y)
    return {
        "vit": asdict(run), "accuracy": sum(right) / len(right), "train_loss": [e.loss for e in result.history],
        "seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - spent,
        "torch": torch.__version__,
    }
