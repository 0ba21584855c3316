"""EqProp: the gradient of the loss from two relaxations and one contrast, with no graph through the relaxation.

1. Clamp the input and let the units settle (free phase).
2. Pull the output weakly towards the target and let them settle again (nudged phases, all signs as one batch).
3. The difference between the energy's parameter derivatives at the two ends, divided by the nudge, is the gradient.

The states are constants in step 3. Which steps use automatic differentiation is written down in ``docs/autograd.md``.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, field
from typing import Literal, cast

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.protocols import Clamped, EquilibriumModel, Nudge, State
from assay.rules.estimators import Estimator, Stencil, estimator
from assay.solving.relaxation import largest_change
from assay.solving.solution import Solution, Status


@dataclass(frozen=True)
class Step:
    """What happened in one call of ``EqProp.backward``: the loss and how both relaxations ended (without tensors)."""

    loss: float
    free: Solution
    nudged: Solution | None

    @property
    def residual(self) -> float:
        """The larger of the two last changes."""
        return max(self.free.residual, self.nudged.residual if self.nudged else 0.0)

    @property
    def status(self) -> Status:
        """The worse of the two ends."""
        order = list(Status)
        return max(self.free.status, self.nudged.status if self.nudged else self.free.status, key=order.index)


@dataclass(frozen=True)
class EqProp:
    """Equilibrium propagation on any ``EquilibriumModel``.

    ``nudge`` chooses the estimator: one-sided, centered, richardson, holomorphic(N), tangent, asymmetric or bptt (the
    yardstick). ``sweeps`` are those of the free and of the nudged phase; with a ``tolerance`` they are upper limits.
    ``beta`` is the nudge: its square is the bias of ``centered``, its inverse the noise of float32; 0.1 to 0.5 works.
    A relaxation that diverges is an error, or with ``on_divergence="record"`` a status in ``rule.last``.

    The result is the gradient of the loss only at a fixed point: look at ``rule.last.residual``.
    """

    beta: float = 0.1
    nudge: str = "centered"
    sweeps: tuple[int, int] = (30, 10)
    tolerance: float | None = None
    on_divergence: Literal["raise", "record"] = "raise"
    _history: list[Step] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        estimator(self.nudge)
        if not isinstance(self.beta, int | float) or not 0 < abs(self.beta) < 1:
            raise expected("0 < |beta| < 1", given=f"beta={self.beta!r}",
                           do="use 0.1 to 0.5 in float32; the limit beta -> 0 is nudge='tangent'")
        if len(self.sweeps) != 2 or any(not isinstance(n, int) or n < 1 for n in self.sweeps):
            raise expected("sweeps=(free, nudged), two integers >= 1", given=f"sweeps={self.sweeps!r}")
        if self.tolerance is not None and not self.tolerance > 0:
            raise expected("tolerance > 0, or None for fixed sweeps", given=f"tolerance={self.tolerance}")
        if self.on_divergence not in ("raise", "record"):
            raise expected("on_divergence 'raise' or 'record'", given=repr(self.on_divergence))

    @property
    def last(self) -> Step | None:
        """What happened in the latest call; None before the first."""
        return self._history[-1] if self._history else None

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The detached mean loss at the free state, after adding the estimated gradient to every ``.grad``."""
        network = _equilibrium_model(model)
        scheme = estimator(self.nudge)
        if scheme.needs_symmetry and not network.symmetric:
            raise expected(f"symmetric weights for nudge='{self.nudge}'",
                           given=f"{type(model).__name__} with untied weights",
                           do="use nudge='asymmetric', or tie the weights")
        _check_targets(y, rows=len(x), classes=network.classes)
        if scheme.name == "bptt":
            return self._through_time(network, x, y)
        with torch.no_grad():
            clamped = network.clamp(x)
            free = network.relax(clamped, None, sweeps=self.sweeps[0], tolerance=self.tolerance)
            self._judge(free, "free")
            loss = network.add_readout_gradient(free.value, y)
            nudged = self._nudged(network, clamped, free.value, y, scheme)
        self._remember(Step(float(loss), free.summary(), nudged.summary()))
        return loss

    def _nudged(self, model: EquilibriumModel, clamped: Clamped, free: State, y: Tensor, scheme: Estimator) -> Solution:
        per_row = 1 / (len(y) * model.loss_scale)
        if scheme.name == "tangent":
            moved = model.tangent(clamped, free, y, sweeps=self.sweeps[1], tolerance=self.tolerance)
            self._judge(moved, "tangent")
            model.add_tangent_gradient(clamped, free, moved.value, per_row)
            return moved
        stencil = scheme.stencil(self.beta)
        nudged = self._relax_nudged(model, clamped, free, y, scheme, stencil)
        coefficients = _per_row(tuple(per_row * c for c in stencil.coefficients), nudged.value[0], len(y))
        if scheme.name == "asymmetric":
            # No energy to differentiate: the contrast is the vector field at the free state along the response to beta.
            response = tuple((plus - minus) / (2 * self.beta) for plus, minus in (s.chunk(2) for s in nudged.value))
            model.add_tangent_gradient(clamped, free, response, per_row)
        else:
            model.add_energy_gradient(clamped, nudged.value, coefficients)
        if stencil.free:
            model.add_energy_gradient(clamped, free, _per_row((per_row * stencil.free,), free[0], len(y)))
        return nudged

    def _relax_nudged(
        self, model: EquilibriumModel, clamped: Clamped, free: State, y: Tensor, scheme: Estimator, stencil: Stencil
    ) -> Solution:
        """All nudges of the stencil relaxed side by side, as one batch that starts at the free state."""
        phases = len(stencil.betas)
        dtype = torch.promote_types(free[0].dtype, torch.complex64) if stencil.is_complex else free[0].dtype
        state = tuple(torch.cat([layer.to(dtype)] * phases) for layer in free)
        anchor = tuple(layer.clone() for layer in state) if scheme.name == "asymmetric" else None
        nudge = Nudge(_per_row(stencil.betas, state[0], len(y)), torch.cat([y] * phases), anchor)
        solution = model.relax(
            clamped.repeat(phases), state, sweeps=self.sweeps[1], tolerance=self.tolerance, nudge=nudge
        )
        self._judge(solution, "nudged")
        return solution

    def _through_time(self, model: EquilibriumModel, x: Tensor, y: Tensor) -> Tensor:
        with torch.enable_grad():
            clamped = model.clamp(x)
            state = model.start(clamped)
            for _ in range(self.sweeps[0]):
                before, state = state, model.sweep(clamped, state)
            loss = model.row_losses(model.logits(state), y).mean()
            loss.backward()  # type: ignore[no-untyped-call]
        residual = largest_change(before, state)
        status = Status.TRUNCATED if math.isfinite(residual) else Status.DIVERGED
        free = Solution((), status, (residual,), self.sweeps[0])
        self._judge(free, "free")
        self._remember(Step(float(loss.detach()), free, None))
        return loss.detach()

    def _judge(self, solution: Solution, phase: str) -> None:
        if self.on_divergence == "raise":
            solution.raise_if_diverged(phase)

    def _remember(self, step: Step) -> None:
        self._history[:] = [step]


def _equilibrium_model(model: object) -> EquilibriumModel:
    """The model, or an InputError. Looking up every member of the protocol takes longer than a small sweep: once a
    class will do."""
    if type(model) not in _KNOWN_CLASSES:
        if not isinstance(model, EquilibriumModel):
            raise expected("an equilibrium model (assay.protocols.EquilibriumModel) for EqProp",
                           given=type(model).__name__, do="use assay.Backprop(), or an energy model of assay.models")
        _KNOWN_CLASSES.add(type(model))
    return cast(EquilibriumModel, model)


_KNOWN_CLASSES: weakref.WeakSet[type] = weakref.WeakSet()


def _per_row(values: tuple[complex, ...], like: Tensor, rows: int) -> Tensor:
    """Each value ``rows`` times over, in the dtype of ``like``."""
    numbers = values if like.is_complex() else tuple(complex(value).real for value in values)
    return torch.tensor(numbers, dtype=like.dtype, device=like.device).unsqueeze(1).expand(-1, rows).flatten()


def _check_targets(y: Tensor, *, rows: int, classes: int) -> None:
    if y.dtype != torch.long:
        raise expected("class indices of dtype torch.int64", given=f"y of dtype {y.dtype}", do="use y.long()")
    if len(y) != rows:
        raise expected(f"one target per row ({rows})", given=f"y of shape {tuple(y.shape)}")
    if len(y) == 0:
        raise expected("at least one row in the batch", given="none")
    low, high = (int(v) for v in torch.aminmax(y))
    if low < 0 or high >= classes:
        raise expected(f"class indices from 0 to {classes - 1}", given=f"indices from {low} to {high}",
                       do="give the model as many outputs as there are classes")
