"""What the gradient audit puts into its finding: numbers, tables, blame and sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from assay.audits.equilibrium.agreement import Agreement, Estimate, NudgeTrend, whole_error
from assay.audits.equilibrium.true_gradient import TrueGradient
from assay.protocols import Rule
from assay.results import Issue, Measurement, Region, Table


def measurements(
    rows: Sequence[Agreement],
    truth: TrueGradient,
    used: Estimate,
    *,
    trend: NudgeTrend | None,
    cosine: float | None,
    limit: float,
) -> tuple[Measurement, ...]:
    worst = worst_of(rows)
    numbers = [
        Measurement(
            name="largest relative error",
            value=worst.error,
            n=len(rows), of="parameters",
            region=Region(high=limit),
            note=f"over parameters; the largest is {worst.name}",
        ),
        Measurement(name="relative error of the whole gradient", value=whole_error(used.gradients, truth)),
        Measurement(name="cosine with the true gradient", value=cosine),
        Measurement(name="norm of the true gradient", value=truth.norm),
        Measurement(
            name="difference of the loss",
            value=abs(used.loss - truth.loss),
            note=f"the rule returned {used.loss:.6g}, the loss at rest is {truth.loss:.6g}",
        ),
    ]
    if used.residual is not None:
        numbers.append(Measurement(name="residual as used", value=used.residual, note=used.status or ""))
    if trend is not None:
        note = (
            "log-log, above the rounding floor" if trend.slope is not None else "every point is at the rounding floor"
        )
        steps = len(trend.betas)
        numbers.append(
            Measurement(name="slope of the error in beta", value=trend.slope, n=steps, of="nudges", note=note)
        )
    return tuple(numbers)


def issues(rows: Sequence[Agreement], trend: NudgeTrend | None, used: Estimate, limit: float) -> tuple[Issue, ...]:
    issues = []
    for row in rows:
        if row.error <= limit:
            continue
        flipped = row.cosine is not None and row.cosine < -0.9
        scaled = row.cosine is not None and row.ratio is not None and row.cosine > 0.999
        cause = (
            "the rule gives this parameter no gradient"
            if not row.given
            else "the sign is reversed"
            if flipped
            else f"the direction is right, the size off by a factor {row.ratio:.2g}"
            if scaled
            else "the energy's stationary point is not the fixed point of the sweep, or the contrast is wrong"
            if trend is not None and not trend.vanishes
            else f"the nudge is too strong or the relaxations too short (residual {used.residual})"
            if trend is not None
            else "the rule follows another direction than the gradient"
        )
        fix = (
            "use a smaller beta, more sweeps or a higher-order nudge"
            if trend is not None and trend.vanishes
            else ("compare the rule's formula for this parameter with the derivative of the energy")
        )
        issues.append(
            Issue(
                title=f"{row.name} is off by {row.error:.2g} of its norm",
                location=row.name,
                severity="high" if row.error > 0.5 else "medium",
                cause=cause,
                fix=fix,
            )
        )
    return tuple(issues)


def table(rows: Sequence[Agreement]) -> Table:
    return Table(
        title="Agreement with the true gradient, by parameter",
        columns=("Parameter", "Shape", "Cosine", "Relative error", "Norm ratio", "True norm"),
        rows=tuple(
            (r.name, "x".join(map(str, r.shape)) or "scalar", r.cosine, r.error, r.ratio, r.truth) for r in rows
        ),
        note="relative error = |estimate - truth| / |truth|; the truth is implicit differentiation in float64",
    )


def error_table(errors: Sequence[tuple[str, float]]) -> tuple[Table, ...]:
    if not errors:
        return ()
    note = "differences between lines are rounding, truncation of the relaxations and the bias of the rule"
    return (
        Table(title="Where the error comes from", columns=("Setting", "Relative error"), rows=tuple(errors), note=note),
    )


def health_table(used: Estimate) -> tuple[Table, ...]:
    """What the nudge moved in each layer, how much of it is rounding, and how far from rest it ended."""
    if used.health is None:
        return ()
    rows = tuple((layer.name, layer.signal, layer.rounding, layer.residual) for layer in used.health.layers)
    columns = ("Layer", "Signal per unit of beta", "Share that is rounding", "Last change of the nudged phase")
    note = used.health.complaint or "every layer hears the nudge"
    return (Table(title="What reaches each layer", columns=columns, rows=rows, note=note),)


def key_finding(rows: Sequence[Agreement], trend: NudgeTrend | None, worst: Agreement, cosine: float | None) -> str:
    shown = "none" if cosine is None else f"{cosine:.6f}"
    text = f"Cosine {shown} over {len(rows)} parameters; the largest error is {worst.error:.2g} ({worst.name})."
    if trend is not None and trend.slope is not None:
        text += f" At rest the error goes as beta^{trend.slope:.2f}."
    return text


def experiment(model: nn.Module, x: Tensor, rule: Rule, truth: TrueGradient) -> str:
    yardstick = "implicit differentiation of the fixed point" if truth.equilibrium else "automatic differentiation"
    return (
        f"{rule!r} on {type(model).__name__} ({dtype_name(dtype_of(model))}), one batch of {len(x)} inputs, against "
        f"{yardstick} in float64."
    )


def worst_of(rows: Sequence[Agreement]) -> Agreement:
    return max(rows, key=lambda row: math.inf if math.isnan(row.error) else row.error)


def dtype_of(model: nn.Module) -> torch.dtype:
    return next(p.dtype for p in model.parameters() if p.requires_grad)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
