"""One training step of many networks of one shape, as one batched program, and whether it gives each its very bits.

Each network keeps its own rows in every product, so it computes what it would compute alone. Whether to the last bit is
up to the library's kernels: they are chosen by shape, layout and type, never by the numbers in them. ``same_bits``
therefore looks, at the very shapes of a training, before anything is stacked unasked.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.networks.energy_mlp.layers import Layers
from assay.networks.energy_mlp.population import population_gradient
from assay.protocols import Rule, Task
from assay.rules.backprop import Backprop
from assay.rules.equilibrium import EqProp
from assay.rules.estimators import Centered, FiniteNudge, OneSided, Richardson, Tangent
from assay.solving.solution import Diverged, Status

STACKED = (OneSided, Centered, Richardson, Tangent)
"""Estimators with a form for many networks side by side."""


@runtime_checkable
class Stackable(Protocol):
    """A layered model that can be stacked: its parameters, weight and bias of each layer in order, as ``Layers``."""

    @property
    def widths(self) -> tuple[int, ...]: ...
    def as_layers(self) -> Layers: ...


@dataclass(frozen=True)
class Stepped:
    """The loss of every network and, where there was a relaxation, how far from rest each one ended."""

    losses: tuple[float, ...]
    residuals: tuple[float, ...] = ()
    statuses: tuple[Status, ...] = ()


def obstacle(models: Sequence[nn.Module], rule: Rule) -> str | None:
    """Why a step of these networks under this rule cannot be stacked, or None."""
    first = models[0]
    if any(type(model) is not type(first) for model in models):
        return f"models of type {', '.join(sorted({type(model).__name__ for model in models}))}"
    if len({widths_of(model) for model in models}) > 1:
        return "networks of different widths"
    flags = {tuple(parameter.requires_grad for parameter in model.parameters()) for model in models}
    if isinstance(rule, Backprop):
        if rule.loss is not None or widths_of(first) is None or not isinstance(first, nn.Sequential):
            return f"backprop on {type(first).__name__}, which is not linear layers in a row with the usual loss"
        return "different parameters frozen" if len(flags) > 1 else None
    if not isinstance(rule, EqProp) or rule.coordinates == "states" or not isinstance(rule.estimator, STACKED):
        return f"the rule {rule}, which is neither backprop nor EqProp in deviations with a real stencil or tangent"
    if not isinstance(first, Stackable):
        return f"models of type {type(first).__name__}"
    if first.as_layers().solver != "sweeps":
        return f"the solver {first.as_layers().solver}, which has no form for many networks"
    return "frozen parameters" if flags != {(True,) * len(list(first.parameters()))} else None


def widths_of(model: nn.Module) -> tuple[int, ...] | None:
    """The widths of a layered network from input to output; None if it is not one."""
    if isinstance(model, Stackable):
        return model.widths
    if not isinstance(model, nn.Sequential):
        return None
    linear = [module for module in model if isinstance(module, nn.Linear)]
    others = [module for module in model if not isinstance(module, nn.Linear)]
    plain = not any([*module.parameters(), *module.buffers()] for module in others)
    if not linear or not plain or any(layer.bias is None for layer in linear):
        return None
    if len(list(model.parameters())) != 2 * len(linear):  # a layer used twice
        return None
    return (linear[0].in_features, *(layer.out_features for layer in linear))


def stack_parameters(models: Sequence[nn.Module]) -> list[nn.Parameter]:
    """Copies of the parameters with the networks in front: (networks, ...)."""
    return [
        nn.Parameter(torch.stack([each.detach() for each in same]), requires_grad=same[0].requires_grad)
        for same in zip(*(model.parameters() for model in models), strict=True)
    ]


def step_stacked(rule: Rule, like: nn.Module, stacked: Sequence[nn.Parameter], *, x: Tensor, y: Tensor) -> Stepped:
    """Fill ``.grad`` of the stacked parameters from x (networks, rows, inputs) and y (networks, rows).

    ``like`` is any of the networks; only its shape is used.
    """
    for parameter in stacked:
        parameter.grad = None
    if isinstance(rule, EqProp) and isinstance(like, Stackable):
        return _equilibrium(rule, like.as_layers(), stacked, x=x, y=y)
    assert isinstance(like, nn.Sequential)
    return _backprop(like, stacked, x, y)


def exact_by_construction(rule: Rule, models: Sequence[nn.Module]) -> bool:
    """Whether no network's work depends on another's: sweeps are fixed, so none waits for the slowest to settle."""
    if not isinstance(rule, EqProp):
        return True
    layers = models[0].as_layers() if isinstance(models[0], Stackable) else None
    lone = layers is not None and layers.depth == 1 and layers.readout is not None
    return rule.tolerance is None and not lone and not isinstance(rule.estimator, Tangent)


def same_bits(
    models: Sequence[nn.Module], tasks: Sequence[Task], rule: Rule, *, batch_size: int,
    optimiser: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
) -> bool:
    """Whether a step taken side by side is bit for bit each network's own, at every batch size of the training.

    Losses, residuals, gradients and parameters after a step of the optimiser are compared. The models are left alone.
    """
    rows = len(tasks[0].train)
    for size in {min(batch_size, rows), rows % batch_size or min(batch_size, rows)}:
        alone, its_rule = [copy.deepcopy(model).train() for model in models], copy.deepcopy(rule)
        stacked = stack_parameters(alone)
        opt = optimiser([parameter for parameter in stacked if parameter.requires_grad])
        x = torch.stack([task.train.x[:size] for task in tasks])
        y = torch.stack([task.train.y[:size] for task in tasks])
        together = step_stacked(its_rule, alone[0], stacked, x=x, y=y)
        opt.step()
        for index, (model, task) in enumerate(zip(alone, tasks, strict=True)):
            own = optimiser([parameter for parameter in model.parameters() if parameter.requires_grad])
            own.zero_grad()
            try:
                loss = float(its_rule.backward(model, task.train.x[:size].clone(), task.train.y[:size].clone()))
            except Diverged:
                return False
            own.step()
            if loss != together.losses[index] or not _same(model, stacked, index):
                return False
            last = its_rule.last if isinstance(its_rule, EqProp) else None
            if last and (last.residual, last.status) != (together.residuals[index], together.statuses[index]):
                return False
    return True


def _same(model: nn.Module, stacked: Sequence[nn.Parameter], index: int) -> bool:
    for own, all_of_them in zip(model.parameters(), stacked, strict=True):
        if not torch.equal(own, all_of_them[index]):
            return False
        if (own.grad is None) != (all_of_them.grad is None):
            return False
        if own.grad is not None and all_of_them.grad is not None and not torch.equal(own.grad, all_of_them.grad[index]):
            return False
    return True


def _equilibrium(rule: EqProp, shape: Layers, stacked: Sequence[nn.Parameter], *, x: Tensor, y: Tensor) -> Stepped:
    pairs = [(w.detach(), b.detach().unsqueeze(1)) for w, b in zip(stacked[::2], stacked[1::2], strict=True)]
    readout = pairs.pop() if shape.readout is not None else None
    layers = Layers([w for w, _ in pairs], [b for _, b in pairs], readout, shape.gamma, shape.activation)
    stencil = rule.estimator.stencil() if isinstance(rule.estimator, FiniteNudge) else None
    step = population_gradient(
        layers, x, y, sweeps=rule.sweeps, tolerance=rule.tolerance,
        betas=[beta.real for beta in stencil.betas] if stencil else (),
        coefficients=[c.real for c in stencil.coefficients] if stencil else (),
    )
    for parameter, gradient in zip(stacked, (g for pair in step.gradients for g in pair), strict=True):
        parameter.grad = gradient
    return Stepped(tuple(step.losses.tolist()), step.residuals, step.statuses)


def _backprop(like: nn.Sequential, stacked: Sequence[nn.Parameter], x: Tensor, y: Tensor) -> Stepped:
    """Cross-entropy of each network's mean over its rows; one backward pass for all, whose losses simply add up."""
    parameters = iter(stacked)
    with torch.enable_grad():
        units = x
        for module in like:
            if isinstance(module, nn.Linear):
                weight, bias = next(parameters), next(parameters)
                units = _Linear.apply(units, weight, bias)  # type: ignore[no-untyped-call]
            else:
                units = module(units)
        log_probabilities = torch.log_softmax(units, -1)
        towards = torch.zeros_like(log_probabilities).scatter_(-1, y.unsqueeze(-1), -1.0 / y.shape[-1])
        log_probabilities.backward(towards)  # type: ignore[no-untyped-call]
    # Row by row, as a network alone would: a batched mean adds in another order.
    found = log_probabilities.detach()
    return Stepped(tuple(float(functional.nll_loss(p, target)) for p, target in zip(found, y, strict=True)))


class _Linear(torch.autograd.Function):
    """Many ``nn.Linear`` side by side; the products of the backward pass are those of one, in the same order."""

    @staticmethod
    def forward(ctx: Any, units: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(units, weight)
        return torch.baddbmm(bias.unsqueeze(1), units, weight.mT)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), (units, weight) = gradients, ctx.saved_tensors
        into_units, into_weight, into_bias = ctx.needs_input_grad
        return (
            gradient @ weight if into_units else None,
            gradient.mT @ units if into_weight else None,
            gradient.sum(-2) if into_bias else None,
        )
