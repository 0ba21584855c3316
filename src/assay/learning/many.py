"""Many seeds of one experiment: side by side as one batched program where that is faster, one after another elsewhere.

Nobody has to choose. The numbers are those of ``train`` seed by seed, to the last bit: every network has its own
initialisation, batches and noise, the optimisers allowed here treat each number of a parameter by itself, and before
anything is stacked unasked a first step is taken both ways and compared (``stacked.same_bits``).
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from assay.errors import expected
from assay.learning.device import asked_device
from assay.learning.stacked import (
    Stepped,
    exact_by_construction,
    obstacle,
    same_bits,
    stack_parameters,
    step_stacked,
    widths_of,
)
from assay.learning.training import (
    NOT_LOOKED,
    Callback,
    EpochTotals,
    OptimiserFactory,
    Schedule,
    TrainResult,
    check_settings,
    evaluate,
    noisy,
    rate_factor,
    train,
)
from assay.networks.energy_mlp.population import pays
from assay.protocols import Rule, Task
from assay.seeding import torch_generator
from assay.solving.solution import Status

ELEMENTWISE = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad)
"""Optimisers that treat every number of a parameter by itself, so that stacked networks do not feel each other."""


@dataclass(frozen=True)
class _Settings:
    epochs: int
    batch_size: int
    optimiser: OptimiserFactory | None
    learning_rate: float
    schedule: Schedule
    warmup: float
    input_noise: float
    test: bool

    def make(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimiser of these parameters, as ``train`` makes it."""
        return self.optimiser(parameters) if self.optimiser else torch.optim.Adam(parameters, lr=self.learning_rate)


def train_many(
    models: Sequence[nn.Module], tasks: Sequence[Task], rule: Rule, *, seeds: Sequence[int], epochs: int,
    batch_size: int = 32, optimiser: OptimiserFactory | None = None, learning_rate: float = 2e-3,
    schedule: Schedule = "cosine", warmup: float = 0.0, input_noise: float = 0.0, test: bool = True,
    side_by_side: bool | None = None, device: str | None = None, callbacks: Sequence[Callback] = (),
) -> tuple[TrainResult, ...]:
    """Each model trained in place on its task under its seed, as ``train`` would do it; one result per seed.

    ``callbacks`` are told of every model's epochs. ``side_by_side`` is decided by the library when None: narrow layered
    networks under backprop, or EqProp with a fixed number of sweeps, are stacked if a first step gives each network
    the very bits it would get alone. True insists, also where numbers agree up to rounding only, and is an error where
    stacking is impossible. If any network diverges the stack is given up and all are trained one by one, so that each
    gets its own verdict.
    """
    if not len(models) == len(tasks) == len(seeds) > 0:
        raise expected("as many models as tasks and seeds, at least one",
                       given=f"{len(models)} models, {len(tasks)} tasks, {len(seeds)} seeds")
    settings = _Settings(epochs, batch_size, optimiser, learning_rate, schedule, warmup, input_noise, test)
    place = device if device is not None else asked_device()
    reason = _obstacle(models, tasks, rule, settings) if place in (None, "cpu") else f"training on {place}"
    if side_by_side and reason:
        raise expected("networks that can be stacked", given=reason, do="use side_by_side=None")
    wanted = side_by_side if side_by_side is not None else not reason and _pays(models, tasks, rule, settings)
    if wanted and not reason:
        # A state_dict alone shares its tensors with the model: there would be nothing to go back to.
        before = [copy.deepcopy(model.state_dict()) for model in models]
        results = _side_by_side(models, tasks, rule, seeds=seeds, settings=settings, callbacks=callbacks)
        if results is not None:
            return results
        for model, state in zip(models, before, strict=True):
            model.load_state_dict(state)
    return tuple(
        train(model, task, rule, epochs=epochs, seed=seed, batch_size=batch_size, optimiser=optimiser,
              learning_rate=learning_rate, schedule=schedule, warmup=warmup, input_noise=input_noise, test=test,
              device=device, callbacks=callbacks)
        for model, task, seed in zip(models, tasks, seeds, strict=True)
    )


def _obstacle(models: Sequence[nn.Module], tasks: Sequence[Task], rule: Rule, settings: _Settings) -> str | None:
    """Why these trainings cannot be stacked, or None."""
    if (reason := obstacle(models, rule)) is not None:
        return reason
    if len({(task.train.x.shape, task.train.y.shape) for task in tasks}) > 1:
        return "tasks of different sizes"
    if tasks[0].train.x.dim() != 2 or tasks[0].train.y.dim() != 1 or tasks[0].train.y.is_floating_point():
        return f"inputs of shape {tuple(tasks[0].train.x.shape)}"
    if not isinstance(settings.make([nn.Parameter(torch.zeros(1))]), ELEMENTWISE):
        return "an optimiser that does not treat every number by itself"
    return None


def _pays(
    models: Sequence[nn.Module], tasks: Sequence[Task], rule: Rule, settings: _Settings
) -> bool:
    """Whether stacking is faster here and changes nothing."""
    widths = widths_of(models[0])
    return (
        widths is not None and pays(widths, len(models)) and exact_by_construction(rule, models)
        and same_bits(models, tasks, rule, batch_size=settings.batch_size, optimiser=settings.make)
    )


def _side_by_side(
    models: Sequence[nn.Module], tasks: Sequence[Task], rule: Rule, *, seeds: Sequence[int], settings: _Settings,
    callbacks: Sequence[Callback],
) -> tuple[TrainResult, ...] | None:
    """One result per network, or None as soon as one of them diverges."""
    for task in tasks:
        check_settings(epochs=settings.epochs, batch_size=settings.batch_size, input_noise=settings.input_noise,
                       warmup=settings.warmup, task=task,
                       parts=("train", "validation", "test") if settings.test else ("train", "validation"))
    stacked = stack_parameters(models)
    opt = settings.make([parameter for parameter in stacked if parameter.requires_grad])
    rows = len(tasks[0].train)
    steps = settings.epochs * math.ceil(rows / settings.batch_size)
    factor = rate_factor(settings.schedule, steps=steps, warmup=settings.warmup)
    rates = torch.optim.lr_scheduler.LambdaLR(opt, factor)
    orders = [torch_generator(seed, "train", "order") for seed in seeds]
    noises = [torch_generator(seed, "train", "noise") for seed in seeds]
    began, histories = time.perf_counter(), [[] for _ in seeds]  # type: ignore[var-annotated]
    for number in range(1, settings.epochs + 1):
        started = time.perf_counter()
        progress = [EpochTotals() for _ in seeds]
        order = torch.stack([torch.randperm(rows, generator=generator) for generator in orders])
        for chosen in torch.split(order, settings.batch_size, dim=1):
            x = torch.stack([noisy(task.train.x[i], settings.input_noise, noise)
                             for task, i, noise in zip(tasks, chosen, noises, strict=True)])
            y = torch.stack([task.train.y[i] for task, i in zip(tasks, chosen, strict=True)])
            stepped = step_stacked(rule, models[0], stacked, x=x, y=y)
            if not _sound(stepped):
                return None
            _note(stepped, progress)
            opt.step()
            rates.step()
        for index, (model, task) in enumerate(zip(models, tasks, strict=True)):
            with torch.no_grad():
                for parameter, all_of_them in zip(model.parameters(), stacked, strict=True):
                    parameter.copy_(all_of_them[index])
            held = evaluate(model, task.validation)
            seconds = (time.perf_counter() - started) / len(seeds)
            histories[index].append(progress[index].epoch(number, held, seconds))
            for callback in callbacks:
                callback(histories[index][-1], model)
    elapsed = (time.perf_counter() - began) / len(seeds)
    results = []
    for model, task, seed, history in zip(models, tasks, seeds, histories, strict=True):
        final = evaluate(model, task.test) if settings.test else NOT_LOOKED
        results.append(TrainResult(
            test_accuracy=final.accuracy, validation_accuracy=history[-1].validation_accuracy, history=tuple(history),
            seconds=elapsed, seed=seed, test_loss=final.loss,
        ))
    return tuple(results)


def _sound(stepped: Stepped) -> bool:
    """Whether every network may take this step."""
    return Status.DIVERGED not in stepped.statuses and all(math.isfinite(loss) for loss in stepped.losses)


def _note(stepped: Stepped, progress: Sequence[EpochTotals]) -> None:
    for one, loss in zip(progress, stepped.losses, strict=True):
        one.losses.append(loss)
    # A rule without a relaxation has losses and no residuals.
    for one, residual, status in zip(progress, stepped.residuals, stepped.statuses, strict=False):
        one.relaxed(residual, status)
