"""From names to things that train: the model, the rule and the result of one arm at one seed."""

from __future__ import annotations

import copy
import inspect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from assay.errors import expected
from assay.learning import TrainResult, train_many
from assay.learning.names import named_rule
from assay.learning.resolve import as_model, as_rule
from assay.learning.training import Callback
from assay.models import EnergyConv, EnergyMLP, EnergyNet
from assay.protocols import EquilibriumModel, Rule
from assay.rules import Backprop, FeedbackAlignment, keep_bounded
from assay.seeding import derive
from assay.studies.arms.brought import fetched
from assay.studies.arms.settings import ArmSettings
from assay.studies.arms.table import Arm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.tasks.base import ArrayTask, TuningView

READ_SWEEPS, READ_TOLERANCE = 20, 1e-4
"""How far a model relaxes before a class is read out: a state change of 1e-4 moves no argmax that matters."""


@dataclass(frozen=True)
class Built:
    """A model and the rule that trains it."""

    model: nn.Module
    rule: Rule


def build(arm: Arm, settings: ArmSettings, task: ArrayTask | TuningView, *, seed: int) -> Built:
    """The model and the rule of an arm; arms of one model start from the same weights at the same seed."""
    if arm.model_from is not None:
        made: Any = as_model(fetched(arm.model_from), seed=seed)
        model = made.feedforward() if isinstance(made, EnergyMLP) and not arm.relaxes else made
    else:
        made = _energy_model(arm.model, settings, task, seed=seed)
        model = _with_energy(made, task) if arm.relaxes else made.feedforward()
    if arm.relaxes and not isinstance(model, EquilibriumModel):
        raise expected(f"a model with an energy for the rule {arm.rule}", given=f"{arm.model}: {type(model).__name__}",
                       do="see assay.protocols.EquilibriumModel, or choose another rule")
    drawn = derive(seed, "feedback") % 2**31
    if arm.rule_from is not None:
        return Built(model, as_rule(_fresh(fetched(arm.rule_from)), model, seed=drawn))
    options: dict[str, Any] = {}
    if arm.relaxes:
        options = {"beta": settings.beta, "sweeps": _pair(settings.sweeps), "tolerance": settings.tolerance}
    rule = named_rule(arm.rule, model, seed=drawn, **options)
    if isinstance(rule, FeedbackAlignment):
        rule.refuse_partial = True
    return Built(model, rule)


def _fresh(rule: Any) -> Any:
    """A rule object for one training: what it learns about one seed must not reach the next."""
    return rule if isinstance(rule, type) or inspect.isroutine(rule) else copy.deepcopy(rule)


def fit(built: Built, task: Any, settings: ArmSettings, *, seed: int, device: str | None = None) -> TrainResult:
    """The one training loop with the settings of an arm; Adam, decoupled weight decay if there is any."""
    return fit_many([built], [task], settings, seeds=[seed], device=device)[0]


def fit_many(
    built: Sequence[Built], tasks: Sequence[Any], settings: ArmSettings, *, seeds: Sequence[int],
    device: str | None = None, callbacks: Sequence[Callback] = (),
) -> tuple[TrainResult, ...]:
    """The same at many seeds, side by side where that is faster and changes nothing; they share the first one's rule.

    Every one of ``callbacks`` sees each model at the end of each epoch. Rules that hold weights of their own (``fa``,
    ``dfa``) belong to one model and are given one at a time, as are networks whose weights are bounded.
    """

    def optimiser(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)

    def bounded(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        assert settings.bound is not None
        return keep_bounded(optimiser(parameters), feeding_back(built[0].model), bound=settings.bound)

    holds = settings.bound is not None and isinstance(built[0].model, EquilibriumModel)
    if holds and len(built) > 1:  # the weights of each network are held by an optimiser of its own
        return tuple(fit_many([one], [task], settings, seeds=[seed], device=device, callbacks=callbacks)[0]
                     for one, task, seed in zip(built, tasks, seeds, strict=True))
    schedule: Any = settings.schedule
    return train_many(
        [each.model for each in built], tasks, built[0].rule, seeds=seeds, epochs=settings.epochs,
        batch_size=settings.batch_size, optimiser=bounded if holds else optimiser, schedule=schedule,
        input_noise=settings.input_noise, device=device, callbacks=callbacks,
    )


def feeding_back(model: nn.Module) -> list[nn.Parameter]:
    """The weights between layers of units: the loop of a relaxation goes through these and no others."""
    if not isinstance(model, EnergyMLP | EnergyConv):
        raise expected("an EnergyMLP or EnergyConv for a bound on the weights that feed back",
                       given=type(model).__name__, do="leave bound out for this arm")
    layers = list(model.layers)
    return [cast(nn.Parameter, layer.weight) for layer in layers[1 : len(layers) - isinstance(model, EnergyMLP)]]


def gradient_agreement(built: Built, x: torch.Tensor, y: torch.Tensor) -> float | None:
    """The cosine between this rule's gradient and backprop through the converged relaxation, over all parameters.

    None where there is nothing to compare: backprop itself, or a model without a relaxation. The gradients in
    ``.grad`` before the call are gone after it.
    """
    if isinstance(built.rule, Backprop) or not isinstance(built.model, EquilibriumModel):
        return None
    place = next(built.model.parameters()).device
    x, y = x.to(place), y.to(place)
    ours, true = (_gradient(built.model, rule, x, y) for rule in (built.rule, Backprop()))
    norms = float(ours.norm() * true.norm())
    return float(ours @ true) / norms if norms > 0 and math.isfinite(norms) else None


def _gradient(model: nn.Module, rule: Rule, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    model.zero_grad(set_to_none=True)
    rule.backward(model, x, y)
    parts = [(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    return torch.cat(parts).double()


def _with_energy(made: Any, task: ArrayTask | TuningView) -> nn.Module:
    """The model that relaxes: our energy models read classes, so a regression gets the same net with a squared loss."""
    if task.classes:
        return cast(nn.Module, made)
    if not isinstance(made, EnergyMLP):
        raise expected("the model 'mlp', or one of your own with a squared loss, for a regression by relaxation",
                       given=f"{type(made).__name__} on '{task.name}'", do="see assay.models.EnergyNet(loss='mse')")
    return EnergyNet(made.feedforward(), gamma=made.gamma, loss="mse", sweeps=READ_SWEEPS, tolerance=READ_TOLERANCE)


def _energy_model(name: str, settings: ArmSettings, task: ArrayTask | TuningView, *, seed: int) -> Any:
    shape = task.input_shape
    if name == "mlp":
        if len(shape) != 1 or not task.train.x.is_floating_point():
            raise expected("flat floating-point inputs for the model 'mlp'", given=f"inputs of shape {shape}",
                           do="choose another task: sequences need attention, which is a track of its own")
        widths = [shape[0], *settings.hidden, task.outputs]
        return EnergyMLP(widths, gamma=settings.gamma, activation=settings.activation, sweeps=READ_SWEEPS,
                         tolerance=READ_TOLERANCE, seed=seed)
    if name == "looped":
        from assay.models import LoopedMLP

        return LoopedMLP(shape[0], settings.hidden[0], task.classes, spectral_norm=True, sweeps=settings.sweeps[0],
                         seed=seed)
    from assay.models import EnergyConv

    if len(shape) != 3:
        raise expected("pictures for the model 'conv'", given=f"inputs of shape {shape}", do="choose the model 'mlp'")
    return EnergyConv(
        (shape[0], shape[1], shape[2]), settings.hidden, classes=task.classes, gamma=settings.gamma,
        activation=settings.activation, kernel=settings.kernel, pooling=settings.pooling, sweeps=READ_SWEEPS,
        tolerance=READ_TOLERANCE, seed=seed,
    )


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    if len(values) != 2:
        raise expected("sweeps of two phases (free, nudged)", given=f"sweeps={values}")
    return values[0], values[1]
