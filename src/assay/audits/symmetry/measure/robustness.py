"""Does the symmetry survive other weights, training mode and a few steps of training? And other image sizes?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.measure.endtoend import Errors, measure
from assay.audits.symmetry.measure.gradients import forward_with_grad
from assay.audits.symmetry.measure.tolerance import Judgement, judge
from assay.audits.symmetry.representations.actions import Image
from assay.audits.symmetry.spec import atoms
from assay.audits.symmetry.subject import Subject
from assay.probe.containment import told
from assay.probe.copies import duplicate
from assay.probe.subject import Leaves
from assay.probe.values import exact_spread
from assay.seeding import torch_generator

Draw = Callable[[Group], Elements]


@dataclass(frozen=True)
class Retest:
    """The end-to-end test repeated under another condition; ``problem`` says why it could not be."""

    condition: str
    judgements: tuple[tuple[str, Judgement], ...]
    problem: str = ""

    @property
    def broken(self) -> bool:
        """Some output breaks under this condition."""
        return any(one.label == "BROKEN" for _, one in self.judgements)

    @property
    def worst(self) -> Judgement | None:
        """The judgement with the largest excess."""
        return max((one for _, one in self.judgements), key=lambda one: one.excess, default=None)


def jittered_weights(subject: Subject, draw: Draw, spreads: dict[int, float], budget: float | None) -> Retest | None:
    """Every parameter moved by a tenth of its size: a symmetry that only holds at special weights breaks.

    None if there are no parameters: there is nothing to ask.
    """
    generator = torch_generator(subject.seed, "jitter")
    model = duplicate(subject.model)
    weights = [p for p in model.parameters() if p.is_floating_point()]
    if not weights:
        return None
    everywhere = float(torch.stack([p.detach().double().square().mean() for p in weights]).mean().sqrt()) or 1.0
    with torch.no_grad():
        for weight in weights:
            own = float(weight.double().square().mean().sqrt()) or everywhere
            weight.add_(0.1 * own * _noise(weight, generator))
    return retest(subject, model, "jittered weights", draw, spreads, budget)


def train_mode(subject: Subject, draw: Draw, spreads: dict[int, float], budget: float | None) -> Retest:
    """In training mode, dropout switched off (its noise is not a defect of symmetry); the batch is one input."""
    model = duplicate(subject.model, training=True)
    calm(model)
    together = dataclasses.replace(subject, rows=False, mergeable=False, _base={})
    return retest(together, model, "train mode", draw, spreads, budget, training=True)


def after_training(
    subject: Subject, draw: Draw, spreads: dict[int, float], budget: float | None, steps: int
) -> Retest | None:
    """After ``steps`` steps towards random targets: what a zero initialisation hides wakes up; None without weights."""
    condition = f"after {steps} training steps"
    dtype = torch.float64 if subject.high is not None else subject.low_dtype
    model = duplicate(subject.model, dtype=dtype, training=True)
    weights = [p for p in model.parameters() if p.requires_grad]
    if not weights:
        return None
    generator = torch_generator(subject.seed, "training")
    targets: list[Tensor] = []
    for _ in range(steps):
        _, outputs = forward_with_grad(subject, model, subject.cases[0], dtype)
        used = [i for i in subject.tested if outputs[i].requires_grad]
        if not used:
            return Retest(condition, (), "no declared output is differentiable")
        if not targets:
            targets = [y.detach() + exact_spread(y) * _noise(y, generator) for y in outputs]
        loss = torch.stack([(outputs[i] - targets[i]).square().mean() for i in used]).sum()
        _step(weights, torch.autograd.grad(loss, weights, allow_unused=True))
    return retest(subject, duplicate(model, dtype=subject.native), condition, draw, spreads, budget)


def _step(weights: list[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    """One step of 0.01 along each normalised gradient: like Adam's first steps, whatever the scale of the loss."""
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            if gradient is not None and bool(gradient.any()):
                weight.sub_(0.01 * gradient / gradient.square().mean().sqrt())


def _noise(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)


def size_sweep(subject: Subject, draw: Draw, budget: float | None) -> list[tuple[int, Retest]]:
    """The same test on images a few pixels smaller and larger, with noise for content; [] if there is no image."""
    place = next((i for i, rep in enumerate(subject.inputs) if any(isinstance(a, Image) for a in atoms(rep))), None)
    if place is None or not isinstance(subject.cases[0][place], Tensor):
        return []
    leaf: Tensor = subject.cases[0][place]
    axes = next(a for a in atoms(subject.inputs[place]) if isinstance(a, Image)).where
    generator = torch_generator(subject.seed, "sizes")
    results = []
    for change in (-2, -1, 0, 1, 2):
        shape = list(leaf.shape)
        for axis in axes:
            shape[axis] += change
        if min(shape) < 1:
            continue
        noise = torch.randn(shape, generator=generator, dtype=torch.float64) * exact_spread(leaf) + float(
            leaf.double().mean()
        )
        leaves: Leaves = [noise.to(leaf.dtype) if i == place else x for i, x in enumerate(subject.cases[0])]
        other = dataclasses.replace(subject, cases=[leaves], _base={})
        results.append((shape[axes[0]], _tested(other, f"size {shape[axes[0]]}", draw, {}, budget)))
    return results


def retest(
    subject: Subject,
    model: nn.Module,
    condition: str,
    draw: Draw,
    spreads: dict[int, float],
    budget: float | None,
    *,
    training: bool = False,
) -> Retest:
    """The end-to-end test of another model in place of the subject's."""
    low = duplicate(model, dtype=subject.low_dtype, training=training)
    high = duplicate(model, dtype=torch.float64, training=training) if subject.high is not None else None
    if training:
        calm(low)
        if high is not None:
            calm(high)
    return _tested(dataclasses.replace(subject, low=low, high=high, _base={}), condition, draw, spreads, budget)


def _tested(subject: Subject, condition: str, draw: Draw, spreads: dict[int, float], budget: float | None) -> Retest:
    try:
        errors: list[Errors] = measure(subject, draw, spreads=spreads)
    except Exception as error:  # a fixed size, a shape that no longer fits: said, not hidden
        return Retest(condition, (), told(error))
    if any(one.not_finite for one in errors):
        return Retest(condition, (), "outputs are not finite under this condition")
    return Retest(
        condition, tuple((one.output, judge(one, low_dtype=subject.low_dtype, budget=budget)) for one in errors)
    )


def calm(model: nn.Module) -> None:
    """Dropout layers in evaluation mode, everything else as it is."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.eval()
