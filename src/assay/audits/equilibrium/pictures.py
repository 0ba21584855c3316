"""Figures of the gradient audit: agreement, trend in the nudge, and a relaxation coming to rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from assay.audits.equilibrium.agreement import Agreement, NudgeTrend, has_setting
from assay.audits.equilibrium.true_gradient import untouched
from assay.protocols import Clamped, EquilibriumModel, Nudge, Rule, State
from assay.results import Figure, Reference, Series
from assay.solving.relaxation import largest_change

Phases = list[list[float]]
"""One list for the free sweeps and one for the nudged."""


def agreement_figures(rows: Sequence[Agreement], trend: NudgeTrend | None, limit: float) -> tuple[Figure, ...]:
    """The error of each parameter, and of the whole gradient against beta."""
    places = tuple(float(i) for i in range(len(rows)))
    figures = [
        Figure(
            key="error-by-parameter",
            question="Which parameters get the gradient, and how nearly?",
            x_label="parameter",
            y_label="relative error",
            y_scale="log",
            categories=tuple(row.name for row in rows),
            series=(Series(name="as used", x=places, y=_positive([r.error for r in rows]), style="dots"),),
            references=(Reference(value=limit, label="limit"),),
        )
    ]
    if trend is not None:
        figures.append(
            Figure(
                key="error-by-beta",
                question="Does the error vanish with the nudge?",
                x_label="beta",
                y_label="relative error of the whole gradient",
                x_scale="log",
                y_scale="log",
                series=(Series(name="float64, at rest", x=trend.betas, y=_positive(trend.errors)),),
                references=(
                    Reference(value=limit, label="limit"),
                    Reference(value=trend.floor, label="rounding floor"),
                ),
                caption="A wrong estimator levels off; a biased one falls with its order.",
            )
        )
    return tuple(figures)


def relaxation_figures(model: nn.Module, x: Tensor, y: Tensor, rule: Rule) -> tuple[Figure, ...]:
    """Residual and energy against sweeps, free and then nudged; none for a module without an equilibrium."""
    if not (isinstance(model, EquilibriumModel) and has_setting(rule, "sweeps") and has_setting(rule, "beta")):
        return ()
    free, nudged = rule.sweeps  # type: ignore[attr-defined]
    beta = float(rule.beta)  # type: ignore[attr-defined]
    twin = untouched(model)
    if not isinstance(twin, EquilibriumModel):
        return ()
    residuals, energies = _traced(twin, x, y=y, free=min(free, 200), nudged=min(nudged, 200), beta=beta)
    first = len(residuals[0])
    steps = tuple(float(i + 1) for i in range(first + len(residuals[1])))
    finite = [e for part in energies for e in part]
    if not all(map(math.isfinite, [*residuals[0], *residuals[1], *finite])):
        return ()
    switch = (Reference(value=first + 0.5, label=f"nudged (beta = {beta:g}) from sweep", axis="x"),)
    parts = (("free", steps[:first]), ("nudged", steps[first:]))
    return tuple(
        Figure(
            key=key,
            question=question,
            x_label="sweep",
            y_label=label,
            y_scale=scale,
            references=switch,
            series=tuple(
                Series(name=name, x=xs, y=_positive(values) if scale == "log" else tuple(values))
                for (name, xs), values in zip(parts, numbers, strict=True)
            ),
        )
        for key, question, label, scale, numbers in _panels(residuals, energies)
        if key != "energy-by-sweep" or twin.symmetric
    )


def _panels(residuals: Phases, energies: Phases) -> tuple[tuple[str, str, str, Literal["linear", "log"], Phases], ...]:
    rest, lower = "Do the relaxations come to rest?", "Does the relaxation lower the energy?"
    return (
        ("residual-by-sweep", rest, "largest change of a unit", "log", residuals),
        ("energy-by-sweep", lower, "mean energy of a row, without the loss", "linear", energies),
    )


@torch.no_grad()
def _traced(
    model: EquilibriumModel[Clamped], x: Tensor, *, y: Tensor, free: int, nudged: int, beta: float
) -> tuple[Phases, Phases]:
    clamped = model.clamp(x)
    state: State = model.start(clamped)
    pull = Nudge(state[0].new_full((len(x),), beta), y)
    residuals: Phases = [[], []]
    energies: Phases = [[], []]
    for phase, (sweeps, nudge) in enumerate(((free, None), (nudged, pull))):
        for _ in range(sweeps):
            before, state = state, model.sweep(clamped, state, nudge)
            residuals[phase].append(largest_change(before, state))
            if model.symmetric:
                energies[phase].append(float(model.energy(clamped, state).mean()))
    return residuals, energies


def _positive(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
