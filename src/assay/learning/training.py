"""The one training loop: any ``nn.Module``, any rule, any torch optimiser.

Every source of chance has its own stream under the seed: the order of the batches and the input noise do not depend
on how the model was initialised or on which rule trains it, so two arms with one seed see the same data in the same
order. Epochs are never chosen by looking at the test part; it is evaluated once, after the last epoch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from assay.errors import InputError, expected, unknown
from assay.learning.device import chosen_device, on_device
from assay.learning.resolve import as_rule, as_task
from assay.learning.subjects import as_module
from assay.probe.copies import device_of
from assay.protocols import Predicting, Split, Task, Writing
from assay.rules.backprop import mean_loss
from assay.seeding import torch_generator
from assay.solving.solution import Diverged, Status

Augmentation = Callable[[Tensor, torch.Generator], Tensor]
OptimiserFactory = Callable[[Iterable[nn.Parameter]], Optimizer]
Schedule = Literal["constant", "cosine"] | Callable[[float], float]
EVALUATION_ROWS = 1000


@dataclass(frozen=True)
class Epoch:
    """One pass over the training part. ``residual`` is the largest of its relaxations, None for rules without any."""

    number: int
    loss: float
    validation_accuracy: float
    seconds: float
    residual: float | None = None
    status: str | None = None
    validation_error: float = math.nan
    health: str | None = None
    """The first complaint of the rule in this epoch (a signal lost, a relaxation not at rest), or None."""


Callback = Callable[[Epoch, nn.Module], None]
"""What is told of every epoch, with the model as it is then."""


@dataclass(frozen=True)
class TrainResult:
    """How training went. ``diverged`` says why it stopped early, or is None; scores are of the final parameters.

    Of a regression task accuracies are NaN, and the errors are root mean squares in units of the target.
    """

    test_accuracy: float
    validation_accuracy: float
    history: tuple[Epoch, ...]
    seconds: float
    seed: int
    diverged: str | None = None
    test_loss: float = math.nan
    test_error: float = math.nan
    validation_error: float = math.nan
    model: nn.Module | None = field(default=None, compare=False, repr=False)
    """What was trained: the very model that was given, or the one that was made from a name, a class or a function."""

    @property
    def final_loss(self) -> float:
        """The mean training loss of the last epoch; NaN if none finished."""
        return self.history[-1].loss if self.history else math.nan


@dataclass(frozen=True)
class Evaluation:
    """Accuracy and mean loss over a part of a task; for token tasks every position counts.

    ``error`` is the root mean squared error where targets are floats, as they are in the task; accuracy is NaN there.
    """

    accuracy: float
    loss: float
    correct: int
    total: int
    error: float = math.nan


NOT_LOOKED = Evaluation(math.nan, math.nan, 0, 0)
"""The score of a part nobody looked at."""


def train(
    model: Any, task: Any, rule: Any = "backprop", *, epochs: int, seed: int, batch_size: int = 32,
    optimiser: OptimiserFactory | None = None, learning_rate: float = 2e-3, schedule: Schedule = "cosine",
    warmup: float = 0.0, input_noise: float = 0.0, augment: Augmentation | None = None, clip_norm: float | None = None,
    callbacks: Sequence[Callback] = (), validation: bool = True, test: bool = True,
    device: str | None = None,
) -> TrainResult:
    """``model`` trained in place on ``task`` with ``rule``, and its score on the validation and test parts.

    All three are objects, classes, functions, names (``"digits"``, ``"eqprop"``) or import paths; ``result.model`` is
    what was trained. ``optimiser`` makes
    an optimiser from parameters (default Adam at ``learning_rate``); ``schedule`` scales its rate over the whole run,
    after a linear ``warmup`` over that fraction of the steps. ``input_noise`` is the standard deviation of Gaussian
    noise added to floating-point training inputs, and ``augment(x, generator)`` may change them in any other way.
    A loss that is not finite, or a relaxation that diverges, ends training with the reason in ``result.diverged``:
    parameters are those of the last good step. A rule with parameters of its own (the feedback of Kolen-Pollack, which
    wants an optimiser with weight decay) has them trained along with the model's; one with ``step`` writes weights
    itself; one with ``predict`` is scored by its own inference. ``device`` (cpu, cuda, mps, auto) is where it happens;
    the model stays there. ``test=False`` leaves the test part alone (its scores are then NaN), for searching settings
    on validation; ``validation=False`` does the same with the validation part, for recipes that choose nothing.
    """
    parts = ("train", *(("validation",) if validation else ()), *(("test",) if test else ()))
    task = as_task(task, seed=seed)
    check_settings(epochs=epochs, batch_size=batch_size, input_noise=input_noise, warmup=warmup, task=task, parts=parts)
    model = as_module(model, seed=seed)
    place = chosen_device(device, model)
    model.to(place)
    rule = as_rule(rule, model, seed=seed)
    data = {part: on_device(getattr(task, part), place) for part in parts}
    opt = _optimiser(model, rule, optimiser, learning_rate)
    batches = math.ceil(len(data["train"]) / batch_size)
    factor = rate_factor(schedule, steps=epochs * batches, warmup=warmup)
    rates = torch.optim.lr_scheduler.LambdaLR(opt, factor) if opt is not None else None
    # A generator for each: drawn from one, a run with noise would see its batches in another order than one without.
    order, noise = torch_generator(seed, "train", "order"), torch_generator(seed, "train", "noise")
    changes = torch_generator(seed, "train", "augment")
    began, history, diverged = time.perf_counter(), [], None
    held = NOT_LOOKED
    was_training = model.training
    for number in range(1, epochs + 1):
        started = time.perf_counter()
        model.train()
        progress = EpochTotals()
        for rows in torch.split(torch.randperm(len(data["train"]), generator=order), batch_size):
            here = rows.to(place)
            x = noisy(data["train"].x[here], input_noise, noise)
            x = x if augment is None else augment(x, changes)
            diverged = _step(model, rule, opt=opt, x=x, y=data["train"].y[here], progress=progress, clip_norm=clip_norm)
            if diverged:
                break
            if rates is not None:
                rates.step()
        model.eval()
        held = evaluate(model, data["validation"], rule=rule) if validation else NOT_LOOKED
        history.append(progress.epoch(number, held, time.perf_counter() - started, scale=scale_of(task)))
        for callback in callbacks:
            callback(history[-1], model)
        if diverged:
            diverged = f"epoch {number}: {diverged}"
            break
    model.eval()
    final = evaluate(model, data["test"], rule=rule) if test else NOT_LOOKED
    model.train(was_training)
    return TrainResult(
        test_accuracy=final.accuracy, validation_accuracy=held.accuracy, history=tuple(history),
        seconds=time.perf_counter() - began, seed=seed, diverged=diverged, test_loss=final.loss,
        test_error=scale_of(task) * final.error, validation_error=scale_of(task) * held.error,
        model=model,
    )


def _optimiser(model: nn.Module, rule: Any, make: OptimiserFactory | None, learning_rate: float) -> Optimizer | None:
    """The optimiser of everything that learns; None for a rule that writes weights itself."""
    if isinstance(rule, Writing):
        return None
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise expected("a model with trainable parameters", given=type(model).__name__)
    trained += rule.parameters() if isinstance(rule, Learning) else ()
    return make(trained) if make else torch.optim.Adam(trained, lr=learning_rate)


@torch.no_grad()
def evaluate(model: nn.Module, split: Split, *, rows: int = EVALUATION_ROWS, rule: Any = None) -> Evaluation:
    """Score of ``model`` on ``split``, in batches of ``rows``; the model's mode is left as it is.

    A ``rule`` with ``predict(model, x)`` is asked in place of ``model(x)``.
    """
    split = on_device(split, device_of(model))
    correct, loss, total, squares = 0, 0.0, 0, 0.0
    regression = split.y.is_floating_point()
    for x, y in zip(torch.split(split.x, rows), torch.split(split.y, rows), strict=True):
        outputs = outputs_of(model, x, rule)
        # Weighted by what it is the mean of: the last batch is smaller, and a mean of means would count it as whole.
        batch_loss = float(mean_loss(outputs, y))
        if regression:
            squares += batch_loss * y.numel()
        else:
            correct += int((outputs.argmax(-1) == y).sum())
        loss += batch_loss * y.numel()
        total += y.numel()
    if regression:
        return Evaluation(math.nan, loss / total, 0, total, math.sqrt(squares / total))
    return Evaluation(correct / total, loss / total, correct, total)


def outputs_of(model: nn.Module, x: Tensor, rule: Any = None) -> Tensor:
    """What the model answers: by the inference of its rule, if that has one of its own."""
    outputs: Tensor = rule.predict(model, x) if isinstance(rule, Predicting) else model(x)
    return outputs


def scale_of(task: Task) -> float:
    """What one unit of a regression target stands for; tasks that do not say are in units already."""
    return float(getattr(task, "target_scale", 1.0))


class EpochTotals:
    """Running totals of an epoch."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.residual: float | None = None
        self.status: Status | None = None
        self.health: str | None = None

    def epoch(self, number: int, held: Evaluation, seconds: float, *, scale: float = 1.0) -> Epoch:
        mean = math.fsum(self.losses) / len(self.losses) if self.losses else math.nan
        return Epoch(number, mean, held.accuracy, seconds, self.residual, str(self.status) if self.status else None,
                     scale * held.error, self.health)

    def relaxed(self, residual: float, status: Status) -> None:
        self.residual = residual if self.residual is None else max(self.residual, residual)
        order = list(Status)  # from good to bad: as texts they would be compared by the alphabet
        self.status = status if self.status is None else max(self.status, status, key=order.index)


@runtime_checkable
class Relaxing(Protocol):
    """A rule that keeps what happened in its latest call, as EqProp does in ``last``."""

    @property
    def last(self) -> Relaxed | None: ...


@runtime_checkable
class Learning(Protocol):
    """A rule with parameters that learn beside the model's, as Kolen-Pollack feedback does."""

    def parameters(self) -> Iterable[nn.Parameter]: ...


class Relaxed(Protocol):
    """The end of a relaxation, as far as a training log needs it."""

    @property
    def residual(self) -> float: ...
    @property
    def status(self) -> Status: ...


@runtime_checkable
class Examined(Protocol):
    """A step whose health was looked at, as EqProp's is."""

    @property
    def health(self) -> Complaining | None: ...


class Complaining(Protocol):
    """Something that may be wrong, in words."""

    @property
    def complaint(self) -> str | None: ...


def _step(
    model: nn.Module, rule: Any, *, opt: Optimizer | None, x: Tensor, y: Tensor, progress: EpochTotals,
    clip_norm: float | None,
) -> str | None:
    """None after one step, or the reason why there was none."""
    if opt is not None:
        opt.zero_grad()
    try:
        # Rules of users may return the loss with its graph.
        told = rule.step(model, x, y) if opt is None else rule.backward(model, x, y)
        loss = float(told.detach() if isinstance(told, Tensor) else told)
    except Diverged as error:
        progress.relaxed(error.solution.residual, error.solution.status)
        return str(error)
    if isinstance(rule, Relaxing) and rule.last is not None:
        progress.relaxed(rule.last.residual, rule.last.status)
        if progress.health is None and isinstance(rule.last, Examined) and rule.last.health is not None:
            progress.health = rule.last.health.complaint
    if not math.isfinite(loss):
        return f"the loss is {loss}; lower the learning rate"
    progress.losses.append(loss)
    if opt is None:
        return None
    if clip_norm is not None:
        # What the optimiser has, not what the model has: a rule may have parameters of its own that learn.
        ours = [p for group in opt.param_groups for p in group["params"] if p.grad is not None]
        nn.utils.clip_grad_norm_(ours, clip_norm)
    opt.step()
    return None


def noisy(x: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """Inputs with Gaussian noise of that standard deviation; tokens are left as they are."""
    if noise == 0 or not x.is_floating_point():
        return x
    # Drawn on the CPU wherever x is: of the same seed another device makes other numbers.
    return x + noise * torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)


def rate_factor(schedule: Schedule, *, steps: int, warmup: float) -> Callable[[int], float]:
    """The factor on the learning rate at each step; a schedule is a function of progress from 0 to 1."""
    if callable(schedule):
        shape = schedule
    elif schedule in _SCHEDULES:
        shape = _SCHEDULES[schedule]
    else:
        raise InputError(unknown("schedule", schedule, _SCHEDULES))
    rise = round(warmup * steps)

    def factor(step: int) -> float:
        # The rise begins above 0: a first step at rate 0 would move nothing and still fill Adam's averages.
        return (step + 1) / (rise + 1) if step < rise else shape((step - rise) / max(1, steps - rise))

    return factor


_SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,
    "cosine": lambda progress: 0.5 * (1 + math.cos(math.pi * progress)),
}


def check_settings(
    *, epochs: int, batch_size: int, input_noise: float, warmup: float, task: Task, parts: Sequence[str]
) -> None:
    """Nothing, or an InputError for settings no training can run with."""
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise expected(f"{name} >= 1", given=f"{name}={value!r}")
    if not input_noise >= 0 or not 0 <= warmup < 1:
        raise expected("input_noise >= 0 and warmup in [0, 1)", given=f"input_noise={input_noise}, warmup={warmup}")
    for name in parts:
        part: Split = getattr(task, name)
        if len(part) == 0 or len(part.x) != len(part.y):
            raise expected(f"as many inputs as targets, at least one, in the {name} part",
                           given=f"{len(part.x)} inputs and {len(part.y)} targets")
