"""How an estimated gradient compares with the true one, by parameter, and how the error falls with the nudge."""

from __future__ import annotations

import copy
import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from assay.audits.equilibrium.true_gradient import AT_REST, MOST_SWEEPS, TrueGradient
from assay.protocols import Rule
from assay.rules.health import Health, HealthWarning

DIRECTIONLESS = 2.0**-26
"""A parameter whose gradient is this small beside the whole (the root of float64's epsilon) has no direction of its
own: its error is measured against the whole."""
NUDGES = (1.0, 0.25, 0.0625, 0.015625)
"""The rule's own nudge and three smaller ones, each a quarter of the one before."""
AMPLIFICATION = 100.0
"""A residual r of a map that contracts by rho leaves an error r / (1 - rho); rho up to 0.99 is allowed for."""


@runtime_checkable
class Settling(Protocol):
    """A rule that can be told to run its inference to rest, as predictive coding can."""

    def settled(self, *, tolerance: float, most: int) -> Rule: ...


@dataclass(frozen=True)
class Agreement:
    """One parameter: ``error`` is |estimate - truth| / |truth|, ``ratio`` the ratio of the norms."""

    name: str
    shape: tuple[int, ...]
    cosine: float | None
    error: float
    ratio: float | None
    truth: float
    given: bool


@dataclass(frozen=True)
class Estimate:
    """What a rule gave: gradients by name (None where it gave none), the loss it returned, how its relaxation ended."""

    gradients: Mapping[str, Tensor | None]
    loss: float
    residual: float | None
    status: str | None
    health: Health | None = None


@dataclass(frozen=True)
class NudgeTrend:
    """Relative error of the whole gradient at several nudges, everything else at rest in float64."""

    betas: tuple[float, ...]
    errors: tuple[float, ...]
    norm: float
    """Of the true gradient."""

    @property
    def floor(self) -> float:
        """The error that residuals alone may leave: they are divided by the nudge and, to be relative, by the norm."""
        return AMPLIFICATION * AT_REST / (min(self.betas) * min(1.0, self.norm))

    @property
    def slope(self) -> float | None:
        """The slope of log error against log beta above the floor; None with fewer than two such points."""
        points = [(math.log(b), math.log(e)) for b, e in zip(self.betas, self.errors, strict=True) if e > self.floor]
        if len(points) < 2:
            return None
        mean_b, mean_e = (math.fsum(p[i] for p in points) / len(points) for i in (0, 1))
        spread = math.fsum((b - mean_b) ** 2 for b, _ in points)
        return math.fsum((b - mean_b) * (e - mean_e) for b, e in points) / spread

    @property
    def vanishes(self) -> bool:
        """Whether the error goes to zero with the nudge: at the smallest one it is at the floor, or has fallen at least
        as a power of 3/4 since the largest. The lowest order of any scheme is 1; an error that stays has order 0."""
        last, first = self.errors[-1], self.errors[0]
        return last <= self.floor or last <= first * (self.betas[-1] / self.betas[0]) ** 0.75


def estimate(rule: Rule, model: nn.Module, x: Tensor, y: Tensor, *, precise: bool = False) -> Estimate:
    """What ``rule`` gives on a copy of ``model``, in float64 if ``precise``; neither rule nor model is touched."""
    # Copied together: a rule that was made for this model (feedback alignment is) must meet its own copy.
    rule, model = copy.deepcopy((rule, model))
    model.eval()
    for parameter in model.parameters():
        parameter.grad = None
    if precise:
        model.double()
        x = x.double() if x.is_floating_point() else x
    with warnings.catch_warnings():
        # What the rule would complain about is in the finding, layer by layer.
        warnings.simplefilter("ignore", HealthWarning)
        loss = rule.backward(model, x, y)
    last = getattr(rule, "last", None)
    gradients = {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
    return Estimate(
        gradients={n: None if g is None else g.detach().double() for n, g in gradients.items()},
        loss=float(loss),
        residual=None if last is None else float(last.residual),
        status=None if last is None else str(last.status),
        health=getattr(last, "health", None),
    )


def estimate_in_float64(rule: Rule, model: nn.Module, x: Tensor, y: Tensor) -> Estimate:
    """The same rule on a float64 copy: what is left of its error when rounding is not to blame."""
    return estimate(rule, model, x, y, precise=True)


def at_rest(rule: Rule, **changes: object) -> Rule:
    """The rule with its relaxations run until nothing moves, where it has ``sweeps`` and ``tolerance`` to say so, or a
    method ``settled`` that does it."""
    if isinstance(rule, Settling):
        rule = rule.settled(tolerance=AT_REST, most=MOST_SWEEPS)
    elif has_setting(rule, "sweeps") and has_setting(rule, "tolerance"):
        changes = {"sweeps": (MOST_SWEEPS, MOST_SWEEPS), "tolerance": AT_REST, **changes}
    return changed(rule, **changes) if changes else rule


def measure_trend(rule: Rule, model: nn.Module, x: Tensor, y: Tensor, *, truth: TrueGradient) -> NudgeTrend:
    """The error of the whole gradient at the rule's nudge and three smaller ones; the rule needs a ``beta``."""
    beta = float(rule.beta)  # type: ignore[attr-defined]
    betas = tuple(beta * share for share in NUDGES)
    errors = []
    for nudge in betas:
        found = estimate_in_float64(at_rest(rule, beta=nudge), model, x, y)
        errors.append(whole_error(found.gradients, truth))
    return NudgeTrend(tuple(map(abs, betas)), tuple(errors), truth.norm)


def compare(gradients: Mapping[str, Tensor | None], truth: TrueGradient) -> tuple[Agreement, ...]:
    """The agreement of each parameter; one the rule gave no gradient counts as zero, an error of 1."""
    least = DIRECTIONLESS * truth.norm
    rows = []
    for name, true in truth.gradients.items():
        given = gradients.get(name)
        found = torch.zeros_like(true) if given is None else given.to(true.dtype)
        size, length = float(true.norm()), float(found.norm())
        scale = max(size, least)
        difference = float((found - true).norm())
        both = size > least and length > 0
        rows.append(
            Agreement(
                name=name,
                shape=tuple(true.shape),
                cosine=float((found * true).sum()) / (size * length) if both else None,
                error=difference / scale if scale > 0 else (0.0 if difference == 0 else math.inf),
                ratio=length / size if size > least else None,
                truth=size,
                given=given is not None,
            )
        )
    return tuple(rows)


def whole_error(gradients: Mapping[str, Tensor | None], truth: TrueGradient) -> float:
    """|estimate - truth| / |truth| over all parameters together."""
    total = math.fsum(
        float((true if (g := gradients.get(name)) is None else g.to(true.dtype) - true).square().sum())
        for name, true in truth.gradients.items()
    )
    return math.sqrt(total) / truth.norm if truth.norm > 0 else (0.0 if total == 0 else math.inf)


def whole_cosine(gradients: Mapping[str, Tensor | None], truth: TrueGradient) -> float | None:
    """The cosine between the whole estimated and the whole true gradient; None if either is zero."""
    pairs: Sequence[tuple[Tensor, Tensor]] = [
        (g.to(true.dtype), true) for n, true in truth.gradients.items() if (g := gradients.get(n)) is not None
    ]
    dot = math.fsum(float((g * true).sum()) for g, true in pairs)
    norm = math.sqrt(math.fsum(float(g.square().sum()) for g, _ in pairs))
    return dot / (norm * truth.norm) if norm > 0 and truth.norm > 0 else None


def has_setting(rule: Rule, name: str) -> bool:
    """Whether the rule carries a setting of this name."""
    return getattr(rule, name, _MISSING) is not _MISSING


def changed(rule: Rule, **changes: object) -> Rule:
    """A copy of the rule with other settings; its original, and what it remembers, stay as they are."""
    twin: Any = copy.deepcopy(rule)
    if dataclasses.is_dataclass(twin):
        twin = dataclasses.replace(cast(Any, twin), **changes)
    else:
        for name, value in changes.items():
            setattr(twin, name, value)
    return cast(Rule, twin)


_MISSING = object()
