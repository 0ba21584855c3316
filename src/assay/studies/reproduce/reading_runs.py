"""Train the ResMLP by one method under one reading of the recipe, written out without hooks or rules.

An independent second implementation of block-level feedback: the stream is walked by hand, every block's loss is the
product of what it writes with its signal, and one backward pass serves all of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from assay.errors import InputError, unknown
from assay.networks.feedforward.res_mlp import ResMLP
from assay.seeding import torch_generator
from assay.studies.reproduce.cifar import PAD, Cifar, cut, load, normalised, unit_range
from assay.studies.reproduce.readings import Reading

ARMS = ("dfa", "frozen", "fa", "bp")
BATCH, LEARNING_RATE, DECAY, AUDITED = 128, 1e-3, 0.01, 128
Arm = Literal["dfa", "frozen", "fa", "bp"]


@dataclass(frozen=True)
class ReadingRun:
    """One training run of the search."""

    arm: Arm
    reading: Reading
    seed: int = 42
    epochs: int = 3
    width: int = 256
    depth: int = 4
    penalty: float = 0.0
    """Adds lambda |f|^2, f what a block writes, to the loss of each block (arms fa and dfa)."""
    batch: int = BATCH
    learning_rate: float = LEARNING_RATE
    images: int = 50000
    """How many training pictures, from the first on."""
    test: Literal["as it is", "crop and flip"] = "as it is"
    """How test pictures are shown: an evaluation that shares the loader of training crops them too."""

    def __post_init__(self) -> None:
        if self.arm not in ARMS:
            raise InputError(unknown("arm", self.arm, ARMS))

    @property
    def settings(self) -> tuple[str, ...]:
        """What differs from the published recipe beside the reading: nothing that the source leaves open."""
        default = ReadingRun(arm=self.arm, reading=self.reading)
        names = ("width", "depth", "penalty", "batch", "learning_rate", "images", "test")
        return tuple(f"{name.replace('_', ' ')}: {getattr(self, name)}" for name in names
                     if getattr(self, name) != getattr(default, name))


def reading_cell(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The record of one run in a worker."""
    given = dict(payload)
    data = load(given.pop("data", None))
    return train_reading(ReadingRun(**{**given, "reading": Reading(**given["reading"])}), data)


def train_reading(run: ReadingRun, data: Cifar) -> dict[str, Any]:
    """Train, then measure accuracy, the stream, the gradient behind it and the cosine at every depth."""
    started, spent = time.perf_counter(), time.process_time()
    model = make_model(run)
    feedback = draw_feedback(run)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimiser = _optimiser(run, trained)
    constant = run.reading.schedule == "constant"
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda _: 1.0) if constant else (
        torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=run.epochs))
    order, augmentation = torch_generator(run.seed, "order"), torch_generator(run.seed, "augmentation")
    losses, count = [], min(run.images, len(data.train.y))
    for _ in range(run.epochs):
        total = 0.0
        for index in torch.randperm(count, generator=order).split(run.batch):  # type: ignore[no-untyped-call]
            x, y = _batch(data, index, augmentation, run.reading)
            optimiser.zero_grad()
            total += float(backward(run, model, x, y, feedback=feedback)) * len(y)
            if run.reading.clipping != "none":
                nn.utils.clip_grad_norm_(trained, 1.0)
            optimiser.step()
        schedule.step()
        losses.append(total / count)
    return {
        "run": asdict(run), "accuracy": _accuracy(model, data, run), "train_loss": losses,
        **_diagnose(run, model, feedback, data),
        "seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - spent,
        "torch": torch.__version__,
    }


def make_model(run: ReadingRun) -> ResMLP:
    """A fresh model, with the parameters that this run does not train switched off."""
    model = ResMLP(width=run.width, depth=run.depth, seed=run.seed)
    reading = run.reading
    if reading.write_init == "default":
        generator = torch_generator(run.seed, "init", "write")
        for block in model.blocks:
            weight: Tensor = block.w2.weight  # type: ignore[union-attr, assignment]
            weight.data.uniform_(-(run.width**-0.5), run.width**-0.5, generator=generator)
    if reading.norms == "fixed":
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.requires_grad_(False)
    if run.arm == "frozen":
        model.blocks.requires_grad_(False)
    if run.arm != "bp" and reading.embedding == "untrained":
        model.embed.requires_grad_(False)
    return model


def draw_feedback(run: ReadingRun) -> list[Tensor]:
    """B_0 ... B_L: from the classes (direct) or, under ``fa``, from the width of the stream."""
    columns = run.width if run.arm == "fa" else 10
    scale = 1.0 if run.reading.size == "1, sum" else run.width**-0.5
    matrices = []
    for level in range(run.depth + 1):
        generator = torch_generator(run.seed, "feedback", f"stream.{level}")
        shape = (run.width, columns)
        if run.reading.distribution == "uniform":
            values = (torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5) * 12**0.5
        else:
            values = torch.randn(shape, generator=generator, dtype=torch.float64)
        matrices.append((values * scale).float())
    return matrices


def backward(run: ReadingRun, model: ResMLP, x: Tensor, y: Tensor, *, feedback: list[Tensor]) -> Tensor:
    """The mean loss, after giving every trained parameter the gradient of its arm and reading."""
    reading = run.reading
    by_gradient = run.arm == "bp" or (run.arm == "frozen" and reading.frozen_embedding == "gradient")
    if by_gradient:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()
    stream, written = _walk(model, x, cut=reading.cut == "every block")
    behind = stream[-1].detach().requires_grad_()
    logits = model.out_head(model.out_ln(behind))
    logits.retain_grad()
    loss = nn.functional.cross_entropy(logits, y)
    loss.backward()  # type: ignore[no-untyped-call]
    if logits.grad is None or behind.grad is None:
        raise AssertionError("the loss does not depend on the stream")
    signals = make_signals(run, feedback, logits.grad, behind.grad)
    surrogate = (stream[0] * signals[0]).sum() if stream[0].requires_grad else torch.zeros(())
    if run.arm != "frozen":
        shift = 1 if reading.block_signal == "behind it" else 0
        surrogate = surrogate + sum((f * signals[level + shift]).sum() for level, f in enumerate(written))
        if run.penalty:
            surrogate = surrogate + run.penalty / len(y) * sum(f.square().sum() for f in written)
    if surrogate.requires_grad:
        surrogate.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def make_signals(run: ReadingRun, feedback: list[Tensor], error: Tensor, gradient: Tensor) -> list[Tensor]:
    """a_0 ... a_L from the error at the logits (dfa, frozen) or, step by step, from the gradient at h_L (fa)."""
    if run.arm == "fa":
        signals = [gradient]
        for matrix in reversed(feedback[:-1]):
            signals.insert(0, signals[0] @ matrix.T)
    else:
        signals = [error @ matrix.T for matrix in feedback]
    if run.reading.length == "unit":
        signals = [a / a.norm(dim=1, keepdim=True).clamp_min(1e-30) / len(a) for a in signals]
    return [a * len(a) for a in signals] if run.reading.size == "1, sum" else signals


def _walk(model: ResMLP, x: Tensor, *, cut: bool) -> tuple[list[Tensor], list[Tensor]]:
    """h_0 ... h_L, and what each block writes; with ``cut`` a block reads a stream without a past."""
    stream, written = [model.embed(x.flatten(1))], []
    for block in model.blocks:
        h = stream[-1].detach() if cut else stream[-1]
        f: Tensor = block.write(h)  # type: ignore[operator]
        written.append(f)
        stream.append(h + f)
    return stream, written


def _optimiser(run: ReadingRun, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    decay = float(run.reading.decay)
    kind = torch.optim.AdamW if run.reading.optimiser == "AdamW" else torch.optim.Adam
    return kind(parameters, lr=run.learning_rate, weight_decay=decay, fused=True)


def _test(data: Cifar, rows: slice, reading: Reading) -> tuple[Tensor, Tensor]:
    x = data.test.x[rows]
    return (x if reading.pixels == "per channel" else unit_range(x)), data.test.y[rows]


def _batch(data: Cifar, index: Tensor, generator: torch.Generator, reading: Reading) -> tuple[Tensor, Tensor]:
    padded, y = data.train.x[index], data.train.y[index]
    pixels = cut(padded, generator) if reading.augmentation != "none" else padded[:, :, PAD:-PAD, PAD:-PAD]
    return normalised(pixels) if reading.pixels == "per channel" else pixels.float().div_(255), y


@torch.no_grad()
def _accuracy(model: nn.Module, data: Cifar, run: ReadingRun) -> float:
    right, generator = 0, torch_generator(run.seed, "test augmentation")
    for i in range(0, len(data.test.y), 1000):
        x, y = _test(data, slice(i, i + 1000), run.reading)
        if run.test != "as it is":  # normalised pictures are padded with the mean colour, which is 0
            x = cut(nn.functional.pad(x, (PAD,) * 4), generator)
        right += int((model(x).argmax(1) == y).sum())
    return right / len(data.test.y)


def _diagnose(run: ReadingRun, model: ResMLP, feedback: list[Tensor], data: Cifar) -> dict[str, Any]:
    """Sizes of stream and gradient (means over samples, gradient of the batch-mean loss), in float64."""
    precise = model.double()
    x, y = _test(data, slice(AUDITED), run.reading)
    x = x.double()
    stream, _ = _walk(precise, x, cut=False)
    for h in stream:
        h.requires_grad_().retain_grad() if h.is_leaf else h.retain_grad()
    logits = precise.out_head(precise.out_ln(stream[-1]))
    logits.retain_grad()
    nn.functional.cross_entropy(logits, y).backward()  # type: ignore[no-untyped-call]
    sizes = [h.detach().norm(dim=1) for h in stream]
    gradients = [torch.zeros_like(h) if h.grad is None else h.grad for h in stream]
    cosines: list[float] = []
    if run.arm in ("fa", "dfa") and logits.grad is not None:
        signals = make_signals(run, [matrix.double() for matrix in feedback], logits.grad, gradients[-1])
        cosines = [float(nn.functional.cosine_similarity(a, g, dim=1, eps=0.0).nanmean())
                   for a, g in zip(signals, gradients, strict=True)]
    return {
        "norms": [float(size.mean()) for size in sizes],
        "growth": [float((after / before).mean()) for before, after in pairwise(sizes)],
        "gradient": float(gradients[-1].norm(dim=1).mean()),
        "cosine": cosines,
    }
