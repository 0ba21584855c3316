r"""Predictive coding: every layer has a state and a prediction of it from below; inference lowers the squared errors.

With layers f_1 ... f_L, s_0 = x and states s_1 ... s_{L-1} that start at their feed-forward values, the energy is

    F(s) = sum_{l<L} |s_l - f_l(s_{l-1})|^2 / 2  +  beta * loss(f_L(s_{L-1}), y)

(Rao & Ballard 1999; Whittington & Bogacz 2017). Inference lowers F over the states, learning then lowers it over the
weights: the gradient is dF/dtheta / beta at the states reached. Three forms share this energy:

* ``states``: s_l -= rate * dF/ds_l, all layers at once. Local: an error meets its own layer and the one below. The
  signal shrinks by the rate with every layer it passes, so few steps at a small rate are backprop scaled by layer
  (``audit_inference`` measures it).
* ``errors``: the same energy over e_l = s_l - f_l(s_{l-1}) (Goemaere et al. 2025, arXiv 2505.20137). The same
  equilibrium, reached at every depth at once, but each step is a backward pass through all layers: not local.
* ``fixed``: the fixed-prediction assumption (Millidge et al. 2020; Rosenbaum 2022): Jacobians stay those of the
  feed-forward pass, e_l -= rate * (e_l - J_{l+1}^T e_{l+1}). Its equilibrium *is* backprop, exactly and for any loss;
  at rate 1 it is reached in L - 1 steps.

Limits: as beta -> 0 the equilibrium of the first two gives the gradient of the loss, with an error of order beta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from assay.errors import InputError, expected, unknown
from assay.probe.chain import Layer, activities, layers_of
from assay.rules.backprop import mean_loss
from assay.rules.graphs import Loss, add_gradients
from assay.solving.solution import Diverged, Solution, Status

Form = Literal["states", "errors", "fixed"]
DEFAULTS: dict[str, tuple[int | None, float]] = {"states": (20, 0.1), "errors": (5, 0.5), "fixed": (None, 1.0)}
"""Steps and rate of each form; None is as many steps as there are layers below the last."""


@dataclass
class PredictiveCoding:
    """Predictive coding on a chain of layers, for classes and for regression.

    ``steps`` of inference at ``rate``, with a ``tolerance`` at most so many; ``beta`` is the weight of the loss in the
    energy. ``last`` tells how inference ended: its residual is the largest change of a state in the last step.

    >>> net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    >>> rule = PredictiveCoding(form="fixed")
    >>> loss = rule.backward(net, torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))
    >>> rule.last.steps
    1
    """

    form: Form = "states"
    steps: int | None = None
    rate: float | None = None
    beta: float = 1.0
    tolerance: float | None = None
    loss: Loss | None = None
    local = True
    last: Solution | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.form not in get_args(Form):
            raise InputError(unknown("form of predictive coding", self.form, get_args(Form)))
        if self.steps is not None and (isinstance(self.steps, bool) or self.steps < 1):
            raise expected("steps >= 1, or None for the form's own", given=f"steps={self.steps!r}")
        if not self.beta > 0 or (self.rate is not None and not self.rate > 0):
            raise expected("beta > 0 and rate > 0", given=f"beta={self.beta}, rate={self.rate}")

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The detached feed-forward loss, after adding dF/dtheta / beta at the inferred states to ``.grad``."""
        layers = layers_of(model, rule="predictive coding")
        if self.form == "fixed":
            return self._fixed(layers, x, y)
        free = activities(layers, x)
        loss = self._loss(free[-1], y).detach()
        states = self.infer(layers, free[:-1], y)
        with torch.enable_grad():
            energy = self.energy(layers, [x, *states], y) / (len(y) * self.beta)
        add_gradients([energy], model.parameters(), [None])
        return loss

    def infer(self, layers: tuple[Layer, ...], below: Sequence[Tensor], y: Tensor) -> list[Tensor]:
        """The hidden states after inference, from the feed-forward activities ``below`` (x first)."""
        steps, rate = self.schedule(len(layers))
        x, free = below[0], below[1:]
        moved = [h.clone() for h in free] if self.form == "states" else [torch.zeros_like(h) for h in free]
        done, change = 0, 0.0
        while free and done < steps and not self._may_stop(change, done):
            done += 1
            leaves = [value.detach().requires_grad_() for value in moved]
            with torch.enable_grad():
                states, errors = (leaves, None) if self.form == "states" else _from_errors(layers, x, leaves)
                energy = self.energy(layers, [x, *states], y, errors)
                pulls = torch.autograd.grad(energy, leaves)
            moved = [value.detach() - rate * pull for value, pull in zip(leaves, pulls, strict=True)]
            change = rate * max(float(pull.abs().max()) for pull in pulls)
        self._ended(change, done)
        if self.form == "states":
            return moved
        with torch.no_grad():
            return _from_errors(layers, x, moved)[0]

    def energy(
        self, layers: tuple[Layer, ...], states: Sequence[Tensor], y: Tensor, errors: Sequence[Tensor] | None = None
    ) -> Tensor:
        """F summed over the rows, at x and the hidden states; ``errors`` if they are known already."""
        if errors is None:
            errors = [s - layer(b) for layer, b, s in zip(layers[:-1], states[:-1], states[1:], strict=True)]
        top = self.beta * len(y) * self._loss(layers[-1](states[-1]), y)
        return top + sum((e.square().sum() / 2 for e in errors), start=torch.zeros_like(top))

    def schedule(self, depth: int) -> tuple[int, float]:
        """Steps and rate for a chain of ``depth`` layers."""
        steps, rate = DEFAULTS[self.form]
        return self.steps or steps or max(1, depth - 1), self.rate or rate

    def settled(self, *, tolerance: float, most: int) -> PredictiveCoding:
        """The same rule with inference run until no state moves by more than ``tolerance``."""
        return replace(self, steps=most, tolerance=tolerance)

    def _fixed(self, layers: tuple[Layer, ...], x: Tensor, y: Tensor) -> Tensor:
        """Errors at fixed predictions and Jacobians; each layer has a graph of its own, none spans two."""
        steps, rate = self.schedule(len(layers))
        below = activities(layers, x)
        with torch.enable_grad():
            leaves = [h.detach().requires_grad_() for h in below[1:-1]]
            outputs = [layer(h) for layer, h in zip(layers, [x.detach(), *leaves], strict=True)]
            loss = self._loss(outputs[-1], y)
        hidden, errors = outputs[:-1], [torch.zeros_like(h) for h in leaves]
        done, change = 0, 0.0
        while leaves and done < steps and not self._may_stop(change, done):
            done += 1
            with torch.enable_grad():
                # The first layer reads x alone: nothing of its output is needed here.
                pulls = torch.autograd.grad([*hidden[1:], loss], leaves, [*errors[1:], None], retain_graph=True)
            moves = [rate * (pull - error) for pull, error in zip(pulls, errors, strict=True)]
            errors = [error + move for error, move in zip(errors, moves, strict=True)]
            change = max(float(move.abs().max()) for move in moves)
        self._ended(change, done)
        parameters = [p for layer in layers for p in layer.parameters()]
        add_gradients([*hidden, loss], parameters, [*errors, None])
        return loss.detach()

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (self.loss or mean_loss)(outputs, y)

    def _may_stop(self, change: float, done: int) -> bool:
        """Whether the last of ``done`` steps moved nothing to speak of, or left the finite numbers."""
        return done > 0 and (not math.isfinite(change) or (self.tolerance is not None and change <= self.tolerance))

    def _ended(self, change: float, steps: int) -> None:
        within = self.tolerance is not None and change <= self.tolerance
        short = Status.TRUNCATED if self.tolerance is None else Status.UNCONVERGED
        status = Status.CONVERGED if within else short if math.isfinite(change) else Status.DIVERGED
        self.last = Solution((), status, (change,), steps)
        if status is Status.DIVERGED:
            raise Diverged(f"the inference of predictive coding left the finite numbers after {steps} steps; use a "
                           "smaller rate, or form='errors'", self.last)


def _from_errors(
    layers: tuple[Layer, ...], x: Tensor, errors: Sequence[Tensor]
) -> tuple[list[Tensor], Sequence[Tensor]]:
    """The states that have these errors, from the input up."""
    states = [x]
    for layer, error in zip(layers[:-1], errors, strict=True):
        states.append(layer(states[-1]) + error)
    return states[1:], errors
