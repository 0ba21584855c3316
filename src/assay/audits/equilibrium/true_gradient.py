"""The yardstick: the gradient of the loss itself, in float64, from the forward dynamics alone.

For an equilibrium model the loss is read at the fixed point s* = Phi(s*, theta) of its free sweep, and the implicit
function theorem gives

    dL/dtheta = dl/dtheta + a . dPhi/dtheta,      a = dl/ds + (dPhi/ds)^T a,

which is what backprop through infinitely many sweeps converges to. Neither the energy nor a nudge nor the model's fast
kernels enter: a wrong energy cannot make its own yardstick wrong. For any other module it is automatic differentiation.
Both are checked once more by a central difference of the loss, which uses no derivative at all.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.protocols import Clamped, EquilibriumModel, State
from assay.rules.backprop import mean_loss
from assay.seeding import torch_generator
from assay.solving.relaxation import largest_change

Loss = Callable[[Tensor, Tensor], Tensor]
AT_REST = 1e-13
"""A float64 sweep that moves no unit by more than this is at rest: about 500 roundings of a unit of order one."""
MOST_SWEEPS = 2000
STEP = 1e-5
"""Step of the central difference: its truncation, of order step^2 = 1e-10, meets the rounding eps / step = 2e-11."""
DIFFERENCE_LIMIT = 1e-6
"""What both together may come to: 1e-10 times a third derivative of up to 1e4 in units of the gradient."""


@dataclass(frozen=True)
class TrueGradient:
    """The gradient by parameter name, and how far it can be trusted.

    ``residual`` and ``adjoint_residual`` are the last changes of the state and of a (0 for a feed-forward module);
    ``difference`` is the largest disagreement with a central difference of the loss, relative to the gradient's norm.
    """

    gradients: Mapping[str, Tensor]
    loss: float
    residual: float
    adjoint_residual: float
    sweeps: int
    difference: float
    equilibrium: bool

    @property
    def trusted(self) -> bool:
        """At rest in both directions and confirmed by the central difference."""
        at_rest = self.residual <= AT_REST and self.adjoint_residual <= AT_REST
        return at_rest and self.difference <= DIFFERENCE_LIMIT

    @property
    def norm(self) -> float:
        """The norm of the whole gradient."""
        return math.sqrt(math.fsum(float(g.square().sum()) for g in self.gradients.values()))

    def reason(self) -> str:
        """One sentence on whether this can serve as a yardstick."""
        if not self.residual <= AT_REST:
            return (
                f"the free relaxation is not at rest after {self.sweeps} float64 sweeps (it still moves by "
                f"{self.residual:.2g}): there is no fixed point whose gradient could be compared"
            )
        if not self.adjoint_residual <= AT_REST:
            return f"the adjoint relaxation is not at rest (it still moves by {self.adjoint_residual:.2g})"
        if not self.difference <= DIFFERENCE_LIMIT:
            return f"it disagrees with a central difference of the loss by {self.difference:.2g} of its norm"
        return f"confirmed by central differences of the loss to {self.difference:.1g} of its norm"


def true_gradient(
    model: nn.Module, x: Tensor, y: Tensor, *, loss: Loss | None = None, seed: int = 0, directions: int = 3
) -> TrueGradient:
    """The gradient of the mean loss of ``model`` on (x, y) for every parameter that requires one; the model is copied.

    ``loss`` maps (output, target) to a mean; by default the equilibrium model's own, cross-entropy otherwise.
    """
    precise, inputs = in_float64(model, x)
    names = [name for name, p in precise.named_parameters() if p.requires_grad]
    if not names:
        raise expected("a model with parameters that require a gradient", given=type(model).__name__)
    if isinstance(precise, EquilibriumModel):
        found = _at_rest(precise, inputs, y, loss)
    else:
        found = _by_backprop(precise, inputs, y, loss)
    gradients, value, state, residual, adjoint_residual, sweeps = found
    by_name = dict(zip(names, gradients, strict=True))
    settled = residual <= AT_REST and adjoint_residual <= AT_REST
    if not settled:
        return TrueGradient(by_name, value, residual, adjoint_residual, sweeps, math.inf, bool(state))
    difference = _central_difference(
        precise, inputs, y=y, loss=loss, gradients=by_name, state=state, seed=seed, directions=directions
    )
    return TrueGradient(by_name, value, residual, adjoint_residual, sweeps, difference, bool(state))


def in_float64(model: nn.Module, x: Tensor) -> tuple[nn.Module, Tensor]:
    """A float64 copy of the model in evaluation mode without gradients, and its inputs (integer tokens unchanged)."""
    return untouched(model).double(), x.detach().double() if x.is_floating_point() else x.detach()


def untouched(model: nn.Module) -> nn.Module:
    """A copy in evaluation mode (dropout off, running statistics fixed) without gradients; the original is kept."""
    twin = copy.deepcopy(model).eval()
    for parameter in twin.parameters():
        parameter.grad = None
    return twin


def settle(model: EquilibriumModel[Clamped], x: Tensor, state: State | None = None) -> tuple[State, float, int]:
    """The free fixed point by plain sweeps from ``state`` (by default the model's start), its residual, the sweeps."""
    with torch.no_grad():
        clamped = model.clamp(x)
        state = model.start(clamped) if state is None else state
        residual, sweeps = math.inf, 0
        while sweeps < MOST_SWEEPS and residual > AT_REST:
            before, state = state, model.sweep(clamped, state)
            residual, sweeps = largest_change(before, state), sweeps + 1
            if not math.isfinite(residual):
                break
    return state, residual, sweeps


_Found = tuple[list[Tensor], float, State, float, float, int]


def _at_rest(model: EquilibriumModel[Clamped], x: Tensor, y: Tensor, loss: Loss | None) -> _Found:
    state, residual, sweeps = settle(model, x)
    parameters = [p for p in _module(model).parameters() if p.requires_grad]
    with torch.enable_grad():
        leaves = tuple(layer.detach().requires_grad_() for layer in state)
        swept = model.sweep(model.clamp(x), leaves)
        value = _loss(model, model.logits(leaves), y, loss)
        pull = tuple(_or_zero(g, s) for g, s in _pairs(value, leaves))
        adjoint, moved, steps = pull, math.inf, 0
        while steps < MOST_SWEEPS and moved > AT_REST and math.isfinite(residual):
            back = torch.autograd.grad(swept, leaves, adjoint, retain_graph=True, allow_unused=True)
            before = adjoint
            adjoint = tuple(p + _or_zero(b, s) for p, b, s in zip(pull, back, leaves, strict=True))
            moved, steps = largest_change(before, adjoint), steps + 1
            if not math.isfinite(moved):
                break
        direct = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        through = torch.autograd.grad(swept, parameters, adjoint, allow_unused=True)
    gradients = [_or_zero(a, p) + _or_zero(b, p) for a, b, p in zip(direct, through, parameters, strict=True)]
    return gradients, float(value.detach()), state, residual, moved, sweeps


def _by_backprop(model: nn.Module, x: Tensor, y: Tensor, loss: Loss | None) -> _Found:
    parameters = [p for p in model.parameters() if p.requires_grad]
    with torch.enable_grad():
        value = _loss(model, model(x), y, loss)
        gradients = torch.autograd.grad(value, parameters, allow_unused=True)
    return [_or_zero(g, p) for g, p in zip(gradients, parameters, strict=True)], float(value.detach()), (), 0.0, 0.0, 0


def _central_difference(
    model: nn.Module,
    x: Tensor,
    *,
    y: Tensor,
    loss: Loss | None,
    gradients: dict[str, Tensor],
    state: State,
    seed: int,
    directions: int,
) -> float:
    """The largest |(L(theta + h d) - L(theta - h d)) / 2h - <g, d>| over unit directions d, relative to |g|.

    The first direction is the gradient's own; the others are half of it and half random, so that <g, d> is not tiny.
    """
    norm = math.sqrt(math.fsum(float(g.square().sum()) for g in gradients.values()))
    if norm == 0 or not math.isfinite(norm):
        return 0.0 if norm == 0 else math.inf
    generator = torch_generator(seed, "audit", "gradient", "directions")
    worst = 0.0
    for number in range(directions):
        direction = {name: g / norm for name, g in gradients.items()}
        if number:
            noise = {name: torch.randn(g.shape, generator=generator, dtype=g.dtype).to(g.device)
                     for name, g in gradients.items()}
            size = math.sqrt(math.fsum(float(n.square().sum()) for n in noise.values()))
            direction = {name: (d + noise[name] / size) / math.sqrt(2) for name, d in direction.items()}
        ahead, behind = (
            _shifted(model, x, y=y, loss=loss, direction=direction, step=step, state=state) for step in (STEP, -STEP)
        )
        along = math.fsum(float((gradients[name] * d).sum()) for name, d in direction.items())
        worst = max(worst, abs((ahead - behind) / (2 * STEP) - along) / norm)
    return worst


@torch.no_grad()
def _shifted(
    model: nn.Module, x: Tensor, *, y: Tensor, loss: Loss | None, direction: dict[str, Tensor], step: float,
    state: State,
) -> float:
    """The loss with the parameters moved along a direction; the model is a private copy and is moved back exactly."""
    parameters = dict(model.named_parameters())
    kept = {name: parameters[name].detach().clone() for name in direction}
    for name, d in direction.items():
        parameters[name].add_(d, alpha=step)
    # Followed from the fixed point found before, so that another attractor cannot be mistaken for a slope.
    output = model.logits(settle(model, x, state)[0]) if isinstance(model, EquilibriumModel) else model(x)
    value = float(_loss(model, output, y, loss))
    for name, original in kept.items():
        parameters[name].copy_(original)
    return value


def _loss(model: object, output: Tensor, y: Tensor, loss: Loss | None) -> Tensor:
    if loss is not None:
        return loss(output, y)
    if isinstance(model, EquilibriumModel):
        return model.row_losses(output, y).mean()
    return mean_loss(output, y)


def _pairs(value: Tensor, leaves: State) -> list[tuple[Tensor | None, Tensor]]:
    gradients = torch.autograd.grad(value, leaves, retain_graph=True, allow_unused=True)
    return list(zip(gradients, leaves, strict=True))


def _or_zero(gradient: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if gradient is None else gradient.detach()


def _module(model: object) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise expected("an equilibrium model that is a torch.nn.Module", given=type(model).__name__)
    return model
