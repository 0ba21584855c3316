"""Many seeds of one experiment: side by side as one batched program where that is faster, one after another elsewhere.

Nobody has to choose. The numbers are those of ``train`` seed by seed, up to rounding: every network has its own
initialisation, batches and noise, and the optimisers allowed here treat each number of a parameter by itself.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.protocols import Rule, Task
from assay.rules.equilibrium import EqProp
from assay.rules.estimators import estimator
from assay.rules.training import (
    Evaluation,
    OptimiserFactory,
    Progress,
    Schedule,
    TrainResult,
    check_settings,
    evaluate,
    noisy,
    rate_factor,
    train,
)
from assay.seeding import torch_generator
from assay.solvers.layered import Layers
from assay.solvers.population import pays, population_gradient
from assay.solvers.solution import Status

ELEMENTWISE = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad)
"""Optimisers that treat every number of a parameter by itself, so that stacked networks do not feel each other."""


@runtime_checkable
class Stackable(Protocol):
    """A layered model that can be stacked: its parameters, weight and bias of each layer in order, as ``Layers``."""

    @property
    def widths(self) -> tuple[int, ...]: ...
    def as_layers(self) -> Layers: ...


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


def train_many(
    models: Sequence[nn.Module], tasks: Sequence[Task], rule: Rule, *, seeds: Sequence[int], epochs: int,
    batch_size: int = 32, optimiser: OptimiserFactory | None = None, learning_rate: float = 2e-3,
    schedule: Schedule = "cosine", warmup: float = 0.0, input_noise: float = 0.0, test: bool = True,
    side_by_side: bool | None = None,
) -> tuple[TrainResult, ...]:
    """Each model trained in place on its task under its seed, as ``train`` would do it; one result per seed.

    ``side_by_side`` is decided by the library when None: narrow layered networks, an EqProp rule with real nudges and
    an elementwise optimiser are stacked. True insists and is an error where stacking is impossible. If any network
    diverges the stack is given up and all are trained one by one, so that each gets its own verdict.
    """
    if not len(models) == len(tasks) == len(seeds) > 0:
        raise expected("as many models as tasks and seeds, at least one",
                       given=f"{len(models)} models, {len(tasks)} tasks, {len(seeds)} seeds")
    settings = _Settings(epochs, batch_size, optimiser, learning_rate, schedule, warmup, input_noise, test)
    obstacle = _obstacle(models, tasks, rule, settings)
    if side_by_side and obstacle:
        raise expected("networks that can be stacked", given=obstacle, do="use side_by_side=None")
    wanted = side_by_side if side_by_side is not None else isinstance(models[0], Stackable) and pays(
        models[0].widths, len(models))
    if wanted and not obstacle and isinstance(rule, EqProp):
        before = [copy.deepcopy(model.state_dict()) for model in models]
        results = _side_by_side(models, tasks, rule, seeds, settings)
        if results is not None:
            return results
        for model, state in zip(models, before, strict=True):
            model.load_state_dict(state)
    return tuple(
        train(model, task, rule, epochs=epochs, seed=seed, batch_size=batch_size, optimiser=optimiser,
              learning_rate=learning_rate, schedule=schedule, warmup=warmup, input_noise=input_noise, test=test)
        for model, task, seed in zip(models, tasks, seeds, strict=True)
    )


def _obstacle(models: Sequence[nn.Module], tasks: Sequence[Task], rule: Rule, settings: _Settings) -> str | None:
    """Why these networks cannot be stacked, or None."""
    if not isinstance(rule, EqProp) or estimator(rule.nudge).name in ("bptt", "holomorphic", "one-sided", "asymmetric"):
        return f"the rule {rule}, which is not a real stencil or tangent of EqProp"
    first = models[0]
    if not isinstance(first, Stackable) or any(type(model) is not type(first) for model in models):
        return f"models of type {', '.join(sorted({type(model).__name__ for model in models}))}"
    if any(isinstance(model, Stackable) and model.widths != first.widths for model in models):
        return "networks of different widths"
    if any(not p.requires_grad for model in models for p in model.parameters()):
        return "frozen parameters"
    if len({(task.train.x.shape, task.train.y.shape) for task in tasks}) > 1:
        return "tasks of different sizes"
    make = settings.optimiser
    if make is not None and not isinstance(make([nn.Parameter(torch.zeros(1))]), ELEMENTWISE):
        return "an optimiser that does not treat every number by itself"
    return None


def _side_by_side(
    models: Sequence[nn.Module], tasks: Sequence[Task], rule: EqProp, seeds: Sequence[int], settings: _Settings
) -> tuple[TrainResult, ...] | None:
    """One result per network, or None as soon as one of them diverges."""
    for task in tasks:
        check_settings(epochs=settings.epochs, batch_size=settings.batch_size, input_noise=settings.input_noise,
                       warmup=settings.warmup, task=task, test=settings.test)
    stacked = [nn.Parameter(torch.stack([p.detach() for p in group]))
               for group in zip(*(model.parameters() for model in models), strict=True)]
    opt = settings.optimiser(stacked) if settings.optimiser else torch.optim.Adam(stacked, lr=settings.learning_rate)
    rows = len(tasks[0].train)
    steps = settings.epochs * math.ceil(rows / settings.batch_size)
    factor = rate_factor(settings.schedule, steps=steps, warmup=settings.warmup)
    rates = torch.optim.lr_scheduler.LambdaLR(opt, factor)
    orders = [torch_generator(seed, "train", "order") for seed in seeds]
    noises = [torch_generator(seed, "train", "noise") for seed in seeds]
    began, histories = time.perf_counter(), [[] for _ in seeds]  # type: ignore[var-annotated]
    for number in range(1, settings.epochs + 1):
        started = time.perf_counter()
        progress = [Progress() for _ in seeds]
        order = torch.stack([torch.randperm(rows, generator=generator) for generator in orders])
        for chosen in torch.split(order, settings.batch_size, dim=1):
            x = torch.stack([noisy(task.train.x[i], settings.input_noise, noise)
                             for task, i, noise in zip(tasks, chosen, noises, strict=True)])
            y = torch.stack([task.train.y[i] for task, i in zip(tasks, chosen, strict=True)])
            if not _step(stacked, models[0], opt, rule, x, y, progress):
                return None
            rates.step()
        for index, (model, task) in enumerate(zip(models, tasks, strict=True)):
            with torch.no_grad():
                for parameter, all_of_them in zip(model.parameters(), stacked, strict=True):
                    parameter.copy_(all_of_them[index])
            accuracy = evaluate(model, task.validation).accuracy
            seconds = (time.perf_counter() - started) / len(seeds)
            histories[index].append(progress[index].epoch(number, accuracy, seconds))
    elapsed = (time.perf_counter() - began) / len(seeds)
    results = []
    for model, task, seed, history in zip(models, tasks, seeds, histories, strict=True):
        final = evaluate(model, task.test) if settings.test else Evaluation(math.nan, math.nan, 0, 0)
        results.append(TrainResult(
            test_accuracy=final.accuracy, validation_accuracy=history[-1].validation_accuracy, history=tuple(history),
            seconds=elapsed, seed=seed, test_loss=final.loss,
        ))
    return tuple(results)


def _step(
    stacked: list[nn.Parameter], like: nn.Module, opt: torch.optim.Optimizer, rule: EqProp, x: Tensor, y: Tensor,
    progress: list[Progress],
) -> bool:
    """Whether all networks took a step."""
    assert isinstance(like, Stackable)
    shape = like.as_layers()
    pairs = [(w.detach(), b.detach().unsqueeze(1)) for w, b in zip(stacked[::2], stacked[1::2], strict=True)]
    readout = pairs.pop() if shape.readout is not None else None
    layers = Layers([w for w, _ in pairs], [b for _, b in pairs], readout, shape.gamma, shape.activation)
    scheme = estimator(rule.nudge)
    stencil = None if scheme.name == "tangent" else scheme.stencil(rule.beta)
    step = population_gradient(
        layers, x, y, sweeps=rule.sweeps, tolerance=rule.tolerance,
        betas=[beta.real for beta in stencil.betas] if stencil else (),
        coefficients=[c.real for c in stencil.coefficients] if stencil else (),
    )
    losses = step.losses.tolist()
    status = max(step.free.status, step.nudged.status, key=list(Status).index)
    if status is Status.DIVERGED or not all(math.isfinite(loss) for loss in losses):
        return False
    for one, loss in zip(progress, losses, strict=True):
        one.losses.append(loss)
        one.relaxed(max(step.free.residual, step.nudged.residual), status)
    for parameter, gradient in zip(stacked, (g for pair in step.gradients for g in pair), strict=True):
        parameter.grad = gradient
    opt.step()
    return True
