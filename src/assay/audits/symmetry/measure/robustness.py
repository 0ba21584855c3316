"""Does the symmetry survive other weights, training mode and a few steps of training?"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.measure.apart import row_by_row
from assay.audits.symmetry.measure.endtoend import Errors, measure, output_spreads
from assay.audits.symmetry.measure.gradients import forward_with_grad
from assay.audits.symmetry.measure.tolerance import Judgement, judge
from assay.audits.symmetry.subject import Subject
from assay.probe.calling import default_call
from assay.probe.containment import attempt
from assay.probe.copies import duplicate
from assay.probe.dropout import WithoutDropout, calm
from assay.probe.noise import normal
from assay.probe.state import Remembering
from assay.probe.subject import Call
from assay.probe.values import exact, exact_spread, is_continuous
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


def jittered_weights(subject: Subject, draw: Draw, budget: float | None) -> Retest | None:
    """Every parameter moved by a tenth of its size: a symmetry that only holds at special weights breaks.

    None if there are no parameters: there is nothing to ask.
    """
    generator = torch_generator(subject.seed, "jitter")
    model = duplicate(subject.model)
    weights = [p for p in model.parameters() if is_continuous(p)]
    if not weights:
        return None
    sizes = [_size(p) for p in weights]
    everywhere = math.sqrt(sum(size**2 for size in sizes) / len(sizes)) or 1.0
    with torch.no_grad():
        for weight, own in zip(weights, sizes, strict=True):
            weight.add_(normal(weight, generator), alpha=0.1 * (own or everywhere))
    return retest(subject, model, condition="jittered weights", draw=draw, budget=budget)


def train_mode(subject: Subject, draw: Draw, budget: float | None) -> list[Retest]:
    """In training mode, dropout switched off (its noise is not a defect of symmetry).

    The batch is one input, moved as a whole; then every row by an element of its own, for what statistics of the batch
    make of rows that were moved differently.
    """
    model = duplicate(subject.model, training=True)
    calm(model)
    call = _steady(subject.call, subject.seed)
    together = dataclasses.replace(subject, rows=False, mergeable=False, joining=None, call=call, _base={})
    found = [retest(together, model, condition="train mode", draw=draw, budget=budget, training=True)]
    whole = "crop" not in _parts(subject) and not subject.inexact(draw(subject.group(0)))
    if subject.rows and subject.batch(0) > 1 and subject.high is not None and whole:
        apart = dataclasses.replace(together, **_low_and_high(subject, model, training=True))
        condition = "train mode, rows moved apart"
        found.append(_contained(condition, lambda: _judged_rows(apart, condition, draw, budget)))
    return found


def _steady(call: Call | None, seed: int) -> Call:
    """Calls a model as it was at the first call, and without dropout."""

    def quiet(model: nn.Module, value: Any) -> Any:
        with WithoutDropout():
            return call(model, value) if call else default_call(model, value, seed)

    return Remembering(quiet, seed)


def after_training(
    subject: Subject, draw: Draw, budget: float | None, steps: int
) -> Retest | None:
    """After ``steps`` steps towards random targets: what a zero initialisation hides wakes up; None without weights."""
    condition = f"after {steps} training steps"
    dtype = subject.low_dtype if subject.high is None or subject.given_twin else torch.float64
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
            targets = [y.detach() + exact_spread(y) * normal(y, generator) for y in outputs]
        loss = torch.stack([(outputs[i] - targets[i]).abs().square().mean() for i in used]).sum()
        _step(weights, torch.autograd.grad(loss, weights, allow_unused=True))
    return retest(
        subject, duplicate(model, dtype=subject.native), condition=condition, draw=draw, budget=budget
    )


def _step(weights: list[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    """One step of 0.01 along each normalised gradient: like Adam's first steps, whatever the scale of the loss."""
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            size = 0.0 if gradient is None else _size(gradient)
            if gradient is not None and size:
                weight.sub_(gradient, alpha=0.01 / size)


def _size(x: Tensor) -> float:
    """The root of the mean square."""
    return float(torch.linalg.vector_norm(exact(x))) / math.sqrt(max(1, x.numel()))


def retest(
    subject: Subject,
    model: nn.Module,
    *,
    condition: str,
    draw: Draw,
    budget: float | None,
    training: bool = False,
) -> Retest:
    """The end-to-end test of another model in place of the subject's."""
    other = dataclasses.replace(subject, **_low_and_high(subject, model, training=training))
    return tested(other, condition, draw, budget)


def _low_and_high(subject: Subject, model: nn.Module, *, training: bool) -> dict[str, Any]:
    """The fields of a subject for another model: copies in both precisions, nothing computed yet."""
    low = duplicate(model, dtype=subject.low_dtype, training=training)
    high = None
    if subject.given_twin:
        # The user's float64 version takes the weights over, if they are called alike.
        other = duplicate(subject.twin("high"), training=training)
        high = other if not attempt(lambda: other.load_state_dict(low.state_dict())).problem else None
    elif subject.high is not None:
        high = duplicate(model, dtype=torch.float64, training=training)
    if training:
        calm(low)
        if high is not None:
            calm(high)
    return {"low": low, "high": high, "_base": {}}


def _judged_rows(
    subject: Subject, condition: str, draw: Draw, budget: float | None
) -> Retest:
    errors = row_by_row(subject, draw(subject.group(0)))
    judged = tuple((one.output, judge(one, low_dtype=subject.low_dtype, budget=budget)) for one in errors)
    return Retest(condition, judged)


def _parts(subject: Subject) -> tuple[str, ...]:
    return subject.symmetry.group.parts


def _contained(condition: str, job: Callable[[], Retest]) -> Retest:
    found = attempt(job)
    return found.value if found.value is not None else Retest(condition, (), found.problem)


def tested(subject: Subject, condition: str, draw: Draw, budget: float | None) -> Retest:
    """The end-to-end test of a subject as it is; what raises is a problem of this condition."""
    # A fixed size, a shape that no longer fits: said, not hidden.
    # Its own spread is the unit: after training outputs may be a thousand times larger than before.
    found = attempt(lambda: measure(subject, draw, spreads=output_spreads(subject)))
    if found.value is None:
        return Retest(condition, (), found.problem)
    errors: list[Errors] = found.value
    if any(one.not_finite for one in errors):
        return Retest(condition, (), "outputs are not finite under this condition")
    return Retest(
        condition, tuple((one.output, judge(one, low_dtype=subject.low_dtype, budget=budget)) for one in errors)
    )
