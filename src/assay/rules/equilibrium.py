"""EqProp: the gradient of the loss from two relaxations and one contrast, with no graph through the relaxation.

1. Clamp the input and let the units settle (free phase).
2. Pull the output weakly towards the target and let them settle again (nudged phases, all signs as one batch).
3. The difference between the energy's parameter derivatives at the two ends, divided by the nudge, is the gradient.

The states are constants in step 3. Which steps use automatic differentiation:
``docs/explanations/autograd.md``.
"""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import torch
from torch import Tensor, nn

from assay.errors import InputError, expected, unknown
from assay.protocols import Clamped, EquilibriumModel, Nudge, State
from assay.rules.estimators import BPTT, Centered, Estimator, FiniteNudge, OneSided, Stencil, estimator
from assay.rules.health import Health, HealthWarning, examine
from assay.solving.relaxation import largest_change
from assay.solving.solution import Solution, Status


@dataclass(frozen=True)
class Step:
    """What happened in one call of ``EqProp.backward``: the loss and how both relaxations ended (without tensors)."""

    loss: float
    free: Solution
    nudged: Solution | None
    health: Health | None = None
    """What reached each layer and what was left of it; None for backprop through time, which sends no nudge."""

    @property
    def residual(self) -> float:
        """The larger of the two last changes."""
        return max(self.free.residual, self.nudged.residual if self.nudged else 0.0)

    @property
    def status(self) -> Status:
        """The worse of the two ends."""
        order = list(Status)
        return max(self.free.status, self.nudged.status if self.nudged else self.free.status, key=order.index)


Coordinates = Literal["deviations", "states"]


@dataclass(init=False)
class EqProp:
    """Equilibrium propagation on any ``EquilibriumModel``.

    The estimator is a value, ``EqProp(Centered(0.1))`` or ``EqProp(Holomorphic(8, beta=0.2))``, or is spelled:
    ``EqProp(nudge="centered", beta=0.1)``. Without any it is ``OneSided(1e-3)``, or ``Centered(0.1)`` if a ``beta`` is
    given or states are asked for. ``sweeps`` are those of the free and of the nudged phase; with a ``tolerance`` they
    are upper limits. A relaxation that diverges is an error, or with ``on_divergence="record"`` a status in
    ``rule.last``.

    ``coordinates="deviations"`` relaxes what the nudge moves, which float32 resolves at any depth, feedback and beta;
    there the nudged residual is relative to the size of a layer's deviation. ``"states"`` relaxes the nudged states and
    takes their difference, as a physical network must: with weak feedback it drowns in rounding or noise.

    The result is the gradient of the loss only at a fixed point: look at ``rule.last.residual``.
    """

    estimator: Estimator
    sweeps: tuple[int, int]
    tolerance: float | None
    coordinates: Coordinates
    on_divergence: Literal["raise", "record"]
    last: Step | None = field(init=False, repr=False, compare=False)
    """What happened in the latest call; None before the first."""
    _complained: bool = field(init=False, repr=False, compare=False)

    def __init__(
        self, estimator: Estimator | str | None = None, *, nudge: str | None = None, beta: float | None = None,
        sweeps: tuple[int, int] = (30, 10), tolerance: float | None = None, coordinates: Coordinates = "deviations",
        on_divergence: Literal["raise", "record"] = "raise",
    ) -> None:
        self.estimator = _chosen(estimator, nudge, beta, coordinates)
        if len(sweeps) != 2 or any(not isinstance(n, int) or n < 1 for n in sweeps):
            raise expected("sweeps=(free, nudged), two integers >= 1", given=f"sweeps={sweeps!r}")
        if tolerance is not None and not tolerance > 0:
            raise expected("tolerance > 0, or None for fixed sweeps", given=f"tolerance={tolerance}")
        if on_divergence not in ("raise", "record"):
            raise expected("on_divergence 'raise' or 'record'", given=repr(on_divergence))
        if coordinates not in ("deviations", "states"):
            raise InputError(unknown("coordinates", coordinates, ("deviations", "states")))
        self.sweeps, self.tolerance, self.on_divergence = sweeps, tolerance, on_divergence
        self.coordinates, self.last, self._complained = coordinates, None, False

    @property
    def nudge(self) -> str:
        """The estimator as it is spelled."""
        return str(self.estimator)

    @property
    def beta(self) -> float:
        """The strength of the nudge; an AttributeError for an estimator that has none."""
        if not isinstance(self.estimator, FiniteNudge):
            raise AttributeError(f"{self.estimator} has no beta")
        return self.estimator.beta

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The detached mean loss at the free state, after adding the estimated gradient to every ``.grad``."""
        network = _equilibrium_model(model)
        if self.estimator.needs_symmetry and not network.symmetric:
            raise expected(f"symmetric weights for nudge='{self.nudge}'",
                           given=f"{type(model).__name__} with untied weights",
                           do="use nudge='asymmetric', or tie the weights")
        network.check_target(y, rows=len(x))
        if isinstance(self.estimator, BPTT):
            return self._through_time(network, x, y)
        with torch.no_grad():
            clamped = network.clamp(x)
            free = network.relax(clamped, None, sweeps=self.sweeps[0], tolerance=self.tolerance)
            self._judge(free, "free")
            loss = network.add_readout_gradient(free.value, y)
            if isinstance(self.estimator, FiniteNudge):
                by_deviation = self.coordinates == "deviations"
                nudged = (self._deviated if by_deviation else self._nudged)(network, clamped, free.value, y)
            else:
                nudged = self._responded(network, clamped, free.value, y)
            health = self._examined(model, free, nudged, float(loss))
        self.last = Step(float(loss), free.summary(), nudged.summary(), health)
        return loss

    def _examined(self, model: nn.Module, free: Solution, nudged: Solution, loss: float) -> Health:
        """The health of this step; the first complaint of this rule is also a warning."""
        finite = isinstance(self.estimator, FiniteNudge)
        moved, coordinates = nudged.value, self.coordinates if finite else "deviations"
        if coordinates == "states":
            phases = len(moved[0]) // len(free.value[0])
            moved = tuple(s.chunk(phases)[0] - f for s, f in zip(moved, free.value, strict=True))
        names = getattr(model, "layer_names", None) or [f"layer {i + 1}" for i in range(len(moved))]
        health = examine(names, free, nudged, moved=moved, resting=free.value, coordinates=coordinates,
                         strength=abs(self.beta) if finite else 1.0, loss=loss)
        if not self._complained and (complaint := health.complaint) is not None:
            self._complained = True
            warnings.warn(f"EqProp: {complaint} (said once; see rule.last.health)", HealthWarning, stacklevel=4)
        return health

    def _responded(self, model: EquilibriumModel[Clamped], clamped: Clamped, free: State, y: Tensor) -> Solution:
        """The contrast in the limit of no nudge: the linear response of the free state."""
        moved = model.tangent(clamped, free, y, sweeps=self.sweeps[1], tolerance=self.tolerance)
        self._judge(moved, "tangent")
        model.add_tangent_gradient(clamped, free, moved.value, 1 / (len(y) * model.loss_scale))
        return moved

    def _deviated(self, model: EquilibriumModel[Clamped], clamped: Clamped, free: State, y: Tensor) -> Solution:
        """The contrast of all nudges in deviation coordinates: one relaxation of what the nudges move."""
        scheme, stencil = self._finite()
        order = scheme.order
        nudge = self._nudge(free, y, anchored=not model.symmetric)
        moved = model.deviate(clamped, free, nudge, sweeps=self.sweeps[1], tolerance=self.tolerance, order=order)
        self._judge(moved, "nudged")
        coefficients = [c / len(y) for c in stencil.coefficients]
        if model.symmetric:
            model.add_deviation_gradient(clamped, free, moved.value, coefficients, order=order)
        else:
            # No energy to differentiate: the contrast is the vector field at the free state along the response to beta.
            phases = (layer.chunk(len(coefficients)) for layer in moved.value)
            real = [complex(c).real for c in coefficients]
            response = tuple(sum(c * part for c, part in zip(real, parts, strict=True)) for parts in phases)
            model.add_tangent_gradient(clamped, free, cast(State, response), 1 / model.loss_scale)
        return moved

    def _nudged(self, model: EquilibriumModel[Clamped], clamped: Clamped, free: State, y: Tensor) -> Solution:
        """The contrast as a difference of states: all nudges relaxed side by side, as one batch from the free state."""
        _, stencil = self._finite()
        phases, per_row = len(stencil.betas), 1 / (len(y) * model.loss_scale)
        nudge = self._nudge(free, y, anchored=not model.symmetric)
        state = tuple(torch.cat([layer.to(nudge.beta.dtype)] * phases) for layer in free)
        nudged = model.relax(
            clamped.repeat(phases), state, sweeps=self.sweeps[1], tolerance=self.tolerance, nudge=nudge
        )
        self._judge(nudged, "nudged")
        if model.symmetric:
            coefficients = _per_row([per_row * c for c in stencil.coefficients], nudged.value[0], len(y))
            model.add_energy_gradient(clamped, nudged.value, coefficients)
            if stencil.free:
                model.add_energy_gradient(clamped, free, _per_row([per_row * stencil.free], free[0], len(y)))
        else:
            response = tuple((plus - minus) / (2 * self.beta) for plus, minus in (s.chunk(2) for s in nudged.value))
            model.add_tangent_gradient(clamped, free, response, per_row)
        return nudged

    def _nudge(self, free: State, y: Tensor, *, anchored: bool) -> Nudge:
        """Every nudge of the stencil, each for all rows."""
        _, stencil = self._finite()
        phases = len(stencil.betas)
        like = free[0]
        if stencil.is_complex:
            like = like.new_empty(0, dtype=torch.promote_types(like.dtype, torch.complex64))
        anchor = tuple(torch.cat([layer] * phases) for layer in free) if anchored else None
        return Nudge(_per_row(stencil.betas, like, len(y)), y if phases == 1 else torch.cat([y] * phases), anchor)

    def _finite(self) -> tuple[FiniteNudge, Stencil]:
        assert isinstance(self.estimator, FiniteNudge)
        return self.estimator, self.estimator.stencil()

    def _through_time(self, model: EquilibriumModel[Clamped], x: Tensor, y: Tensor) -> Tensor:
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
        self.last = Step(float(loss.detach()), free, None)
        return loss.detach()

    def _judge(self, solution: Solution, phase: str) -> None:
        if self.on_divergence == "raise":
            solution.raise_if_diverged(phase)


def _chosen(given: Estimator | str | None, nudge: str | None, beta: float | None, coordinates: str) -> Estimator:
    """The estimator meant by a value, a spelling, a strength, or none of them."""
    if given is not None and nudge is not None:
        raise expected("an estimator or its spelling nudge=, not both", given=f"{given!r} and nudge={nudge!r}")
    found = given if given is not None else nudge
    if found is None:
        by_default = OneSided() if beta is None and coordinates != "states" else Centered()
        return by_default if beta is None else by_default.with_beta(beta)
    if isinstance(found, str):
        return estimator(found, beta)
    if not isinstance(found, Estimator):
        raise expected("an estimator such as Centered(0.1), or its spelling", given=repr(found))
    if beta is None:
        return found
    return found.with_beta(beta) if isinstance(found, FiniteNudge) else found


def _equilibrium_model(model: object) -> EquilibriumModel[Clamped]:
    """The model, or an InputError. Looking up every member of the protocol takes longer than a small sweep: once a
    class will do."""
    if type(model) not in _KNOWN_CLASSES:
        if not isinstance(model, EquilibriumModel):
            raise expected("an equilibrium model (assay.protocols.EquilibriumModel) for EqProp",
                           given=type(model).__name__, do="use assay.Backprop(), or an energy model of assay.models")
        _KNOWN_CLASSES.add(type(model))
    return cast(EquilibriumModel[Clamped], model)


_KNOWN_CLASSES: weakref.WeakSet[type] = weakref.WeakSet()


def _per_row(values: Sequence[complex], like: Tensor, rows: int) -> Tensor:
    """Each value ``rows`` times over, in the dtype of ``like``."""
    numbers = list(values) if like.is_complex() else [complex(value).real for value in values]
    if len(numbers) == 1:
        return like.new_full((rows,), numbers[0])
    return torch.tensor(numbers, dtype=like.dtype, device=like.device).unsqueeze(1).expand(-1, rows).flatten()
