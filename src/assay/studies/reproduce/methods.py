"""Train one model by one method on CIFAR-10: the cell every table of the reproduction is made of."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from assay.audits.credit.recipe import freeze_blocks
from assay.errors import InputError, expected, unknown
from assay.networks.feedforward.res_mlp import ResMLP
from assay.networks.feedforward.small_resnet import SmallResNet
from assay.networks.feedforward.vit_mini import ViTMini
from assay.probe.blocks import Blocks, discover_blocks
from assay.probe.stream import tapped
from assay.protocols import Rule
from assay.rules.feedback.rule import FeedbackAlignment
from assay.seeding import torch_generator
from assay.studies.reproduce.cifar import Cifar, load, normalised
from assay.studies.reproduce.diagnose import diagnose

BATCH, LEARNING_RATE, WEIGHT_DECAY = 128, 1e-3, 0.01
ARCHITECTURES: dict[str, Callable[[int], nn.Module]] = {
    "resmlp": lambda seed: ResMLP(seed=seed),
    "resmlp-without-ln": lambda seed: ResMLP(terminal_norm=False, seed=seed),
    "vit": lambda seed: ViTMini(seed=seed),
    "resnet": lambda seed: SmallResNet(seed=seed),
}


@dataclass(frozen=True)
class Setting:
    """What is trained and how. ``trainable`` counts the last blocks that learn (None: all; 0: the frozen baseline)."""

    method: Literal["bp", "fa", "dfa"]
    level: Literal["layer", "block"] = "block"
    arch: str = "resmlp"
    seed: int = 42
    epochs: int = 30
    penalty: float = 0.0
    trainable: int | None = None

    def __post_init__(self) -> None:
        for what, given, known in (
            ("architecture", self.arch, ARCHITECTURES),
            ("method", self.method, ("bp", "fa", "dfa")),
            ("level", self.level, ("layer", "block")),
        ):
            if given not in known:
                raise InputError(unknown(what, given, known))
        if self.epochs < 1:
            raise expected("epochs of at least 1", given=self.epochs)
        if self.seed < 0:
            raise expected("seeds of at least 0", given=self.seed)
        if not (math.isfinite(self.penalty) and self.penalty >= 0):
            raise expected("penalties (lambdas) that are numbers of at least 0", given=self.penalty)

    @property
    def arm(self) -> str:
        """The name without the seed: runs of one arm are averaged."""
        rule = self.method if self.method == "bp" else f"{self.method}-{self.level}"
        kind = "frozen" if self.trainable == 0 else rule
        ladder = f"-last{self.trainable}" if self.trainable else ""
        penalty = f"-lambda{self.penalty:g}" if self.penalty else ""
        return f"{self.arch}-{kind}{ladder}{penalty}-{self.epochs}ep"

    @property
    def name(self) -> str:
        """A short name, unique for the setting: file names and progress lines."""
        return f"{self.arm}-seed{self.seed}"


def train_cell(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The record of one training run; ``payload`` holds a Setting, and optionally where data and weights live."""
    fields = dict(payload)
    data, artifacts = fields.pop("data", None), fields.pop("artifacts", None)
    return train(Setting(**fields), load(data), artifacts=artifacts)


def train(setting: Setting, data: Cifar, *, artifacts: str | None = None) -> dict[str, Any]:
    """Train by the published recipe (AdamW, cosine per epoch, crop and flip); weights go to ``artifacts`` if given."""
    started = time.perf_counter()
    model = ARCHITECTURES[setting.arch](setting.seed)
    rule = make_rule(setting, model)
    if setting.trainable is not None:
        freeze_blocks(model, normalised(data.test_x[:2]), trainable=setting.trainable)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=setting.epochs)
    order, augmentation = torch_generator(setting.seed, "order"), torch_generator(setting.seed, "augmentation")
    losses = []
    for _ in range(setting.epochs):
        model.train()
        total = 0.0
        for index in torch.randperm(len(data.y), generator=order).split(BATCH):  # type: ignore[no-untyped-call]
            x, y = data.batch(index, augmentation)
            total += float(rule.backward(model, x, y)) * len(y)
            optimiser.step()
            optimiser.zero_grad()
        schedule.step()
        losses.append(total / len(data.y))
    correct = evaluate(model, data)
    if artifacts is not None:
        save(model, rule, Path(artifacts), setting.name)
    seconds = time.perf_counter() - started
    return {
        "setting": asdict(setting),
        "name": setting.name,
        "arm": setting.arm,
        "accuracy": float(correct.float().mean()),
        "correct": packed(correct),
        "train_loss": losses,
        "diagnostics": diagnose(model, rule, *audited_batch(data), seed=setting.seed),
        "seconds": seconds,
        "torch": torch.__version__,
    }


def make_rule(setting: Setting, model: nn.Module) -> Rule:
    """The learning rule a setting names."""
    if setting.method == "bp":
        return PenalisedBackprop(setting.penalty)
    if setting.level == "layer":
        return FeedbackAlignment(model, kind=setting.method, level="layer", seed=setting.seed)
    return FeedbackAlignment(
        model, kind=setting.method, level=setting.level, seed=setting.seed, penalty=setting.penalty
    )


class PenalisedBackprop:
    """Backprop on loss + lambda * sum_l mean_n |f_l|^2, f_l what block l wrote; lambda 0 is plain backprop."""

    def __init__(self, penalty: float = 0.0) -> None:
        self.penalty = penalty
        self.blocks: Blocks | None = None

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        if not self.penalty:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()
        stream: list[Tensor] = []
        if self.blocks is None:
            self.blocks = discover_blocks(model, x)
        with tapped(model, self.blocks, lambda depth, h: stream.append(h)):
            loss = nn.functional.cross_entropy(model(x), y)
        written = [after - before for before, after in pairwise(stream) if after.shape == before.shape]
        penalised = loss + self.penalty * sum(f.flatten(1).pow(2).sum(1).mean() for f in written)
        penalised.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


def audited_batch(data: Cifar) -> tuple[Tensor, Tensor]:
    """The first 128 test images: the batch of every diagnostic."""
    return normalised(data.test_x[:BATCH]), data.test_y[:BATCH]


@torch.no_grad()
def evaluate(model: nn.Module, data: Cifar) -> Tensor:
    """Which test images the model gets right, as booleans."""
    model.eval()
    answers = [model(normalised(data.test_x[i : i + 1000])).argmax(1) for i in range(0, len(data.test_y), 1000)]
    return torch.cat(answers) == data.test_y


def packed(correct: Tensor) -> str:
    """Booleans as base64 of their bits: small enough to keep with every record, for paired intervals later."""
    return base64.b64encode(np.packbits(correct.numpy()).tobytes()).decode()


def save(model: nn.Module, rule: Rule, folder: Path, name: str) -> None:
    """Weights and feedback matrices of a finished run, as safetensors."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), folder / f"{name}.safetensors")
    if isinstance(rule, FeedbackAlignment):
        save_file(rule.state_dict(), folder / f"{name}.feedback.safetensors")
