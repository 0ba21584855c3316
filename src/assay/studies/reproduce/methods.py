"""Train one model by one method on CIFAR-10: the cell every table of the reproduction is made of."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from assay.audits.credit.recipe import correct_items, freeze_blocks
from assay.errors import InputError, expected, unknown
from assay.learning.names import named_rule
from assay.learning.training import train as the_one_loop
from assay.networks.feedforward.res_mlp import ResMLP
from assay.networks.feedforward.small_resnet import SmallResNet
from assay.networks.feedforward.vit_mini import ViTMini
from assay.probe.blocks import Blocks, discover_blocks
from assay.probe.stream import tapped
from assay.protocols import Rule
from assay.rules.feedback.rule import FeedbackAlignment
from assay.studies.reproduce.cifar import Cifar, augmented, load
from assay.studies.reproduce.diagnose import diagnose

BATCH, LEARNING_RATE, WEIGHT_DECAY = 128, 1e-3, 0.01
ARCHITECTURES: dict[str, Callable[[int], nn.Module]] = {
    "resmlp": lambda seed: ResMLP(seed=seed),
    "resmlp-without-ln": lambda seed: ResMLP(terminal_norm=False, seed=seed),
    "vit": lambda seed: ViTMini(seed=seed),
    "resnet": lambda seed: SmallResNet(seed=seed),
    "resmlp-shallow": lambda seed: shallow(ResMLP(seed=seed)),
    "vit-shallow": lambda seed: shallow(ViTMini(seed=seed)),
}


def shallow(model: ResMLP | ViTMini) -> nn.Module:
    """The same model without its blocks: embedding, terminal norm and head."""
    model.blocks = nn.ModuleList()
    return model


@dataclass(frozen=True)
class ProtocolTrial:
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
    """The record of one training run; ``payload`` holds a ProtocolTrial, and optionally where data and weights live."""
    fields = dict(payload)
    data, artifacts, device = (fields.pop(name, None) for name in ("data", "artifacts", "device"))
    return train(ProtocolTrial(**fields), load(data), artifacts=artifacts, device=device)


def train(
    setting: ProtocolTrial, data: Cifar, *, artifacts: str | None = None, device: str | None = None
) -> dict[str, Any]:
    """Train by the published recipe (AdamW, cosine per epoch, crop and flip); weights go to ``artifacts`` if given.

    ``device`` is where training happens; everything is measured on the CPU, in float64.
    """
    started = time.perf_counter()
    model = ARCHITECTURES[setting.arch](setting.seed)
    rule = make_rule(setting, model)
    if setting.trainable is not None:
        freeze_blocks(model, data.test.x[:2], trainable=setting.trainable)
    result = the_one_loop(
        model, data, rule, epochs=setting.epochs, seed=setting.seed, batch_size=BATCH, optimiser=adamw,
        schedule=cosine_by_epoch(setting.epochs), augment=augmented, validation=False, test=False,
        device=device,
    )
    model.cpu()
    has_blocks = not setting.arch.endswith("-shallow")
    correct = torch.tensor(correct_items(model, data.test.x, data.test.y))
    if artifacts is not None:
        save(model, rule, Path(artifacts), setting.name)
    seconds = time.perf_counter() - started
    return {
        "setting": asdict(setting),
        "name": setting.name,
        "arm": setting.arm,
        "accuracy": float(correct.float().mean()),
        "correct": packed(correct),
        "train_loss": [epoch.loss for epoch in result.history],
        "diagnostics": diagnose(model, rule, data.test.x[:BATCH], data.test.y[:BATCH], seed=setting.seed)
        if has_blocks else None,
        "seconds": seconds,
        "torch": torch.__version__,
    }


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)


def cosine_by_epoch(epochs: int) -> Callable[[float], float]:
    """The published schedule: a cosine that steps once per epoch and would be 0 after the last."""
    # Progress is a quotient of whole steps: without the small shift an epoch's first step may round down.
    return lambda progress: 0.5 * (1 + math.cos(math.pi * math.floor(progress * epochs + 1e-9) / epochs))


def make_rule(setting: ProtocolTrial, model: nn.Module) -> Rule:
    """The learning rule a setting names."""
    if setting.method == "bp":
        return PenalisedBackprop(setting.penalty)
    return named_rule(f"{setting.method}-{setting.level}", model, seed=setting.seed, penalty=setting.penalty)


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
