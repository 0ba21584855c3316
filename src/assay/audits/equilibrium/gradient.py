"""The gradient audit: does a learning rule give the gradient of the loss, and if not, by how much and why not?"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from assay.audits.equilibrium.agreement import (
    AMPLIFICATION,
    Agreement,
    Estimate,
    NudgeTrend,
    Settling,
    at_rest,
    compare,
    estimate,
    estimate_in_float64,
    has_setting,
    measure_trend,
    whole_cosine,
    whole_error,
)
from assay.audits.equilibrium.gradient_report import (
    dtype_name,
    dtype_of,
    error_table,
    experiment,
    health_table,
    issues,
    key_finding,
    measurements,
    table,
    worst_of,
)
from assay.audits.equilibrium.pictures import agreement_figures, relaxation_figures
from assay.audits.equilibrium.true_gradient import AT_REST, Loss, TrueGradient, true_gradient
from assay.audits.explained import explained
from assay.errors import expected
from assay.learning.resolve import as_rule
from assay.learning.subjects import subject_of
from assay.protocols import EquilibriumModel, Rule, is_local
from assay.results import Check, Control, Evidence, Finding, Verdict
from assay.solving.solution import Diverged
from assay.stats import evidence_level, numeric_match

NUDGED_LIMIT = 0.05
"""A rule with a finite nudge is biased by design; 5 % of a parameter's gradient is what training is known to bear."""
NAMED = 3
"""Parameters named in a sentence; the table has them all."""
VANISHES = "the error vanishes with the nudge"
ROUNDINGS = 1000.0
"""A rule without a nudge must be exact up to rounding: sums of some thousands of terms over some layers lose about
this many units in the last place."""


def audit_gradient(
    model: Any,
    x: Tensor,
    y: Tensor,
    *,
    rule: Any,
    seed: int = 0,
    limit: float | None = None,
    loss: Loss | None = None,
    device: str | None = None,
    subject: str = "",
) -> Finding:
    """Whether ``rule`` gives the gradient of the loss of ``model`` on the batch (x, y), for every parameter.

    The loss is the rule's own, or fits the targets: cross-entropy for class indices, squared error for floats.
    The yardstick is the true gradient in float64 (see ``true_gradient``). Two things must hold: the largest relative
    error of any parameter, as the rule is used, is at most ``limit`` (default: 0.05 for a rule with a nudge ``beta``,
    rounding for any other), and with a ``beta`` the error at rest goes to zero with it. The first tells whether the
    estimate is good enough, the second whether it estimates the right thing at all.

    It does not show that training works, nor that the gradient is right on other batches. Measured in evaluation mode
    on copies: model, rule and generators are left as they were.

    >>> import assay
    >>> model = assay.models.EnergyMLP([4, 8, 8, 3], seed=0)
    >>> x, y = torch.linspace(-1, 1, 24).reshape(6, 4), torch.arange(6) % 3
    >>> audit_gradient(model, x, y, rule=assay.EqProp(beta=0.1, nudge="centered")).verdict
    <Verdict.PASS: 'PASS'>
    """
    model, x, y = subject_of(model, x, y, seed=seed, device=device)
    rule = as_rule(rule, model, seed=seed)
    loss = loss or getattr(rule, "loss", None)
    _check_arguments(model, x, y=y, rule=rule, limit=limit, loss=loss)
    nudged = has_setting(rule, "beta") and (isinstance(model, EquilibriumModel) or is_local(rule))
    if limit is None:
        limit = NUDGED_LIMIT if nudged else _rounding(model)
    with explained(x):
        truth = true_gradient(model, x, y, loss=loss, seed=seed)
    name = subject or f"{type(rule).__name__} on {type(model).__name__}"
    try:
        used = estimate(rule, model, x, y)
    except Diverged as error:
        return _no_gradient(name, str(error), truth)
    rows = compare(used.gradients, truth)
    trend = measure_trend(rule, model, x, y, truth=truth) if nudged and truth.trusted else None
    errors = _where_the_error_comes_from(rule, model, x=x, y=y, used=used, truth=truth) if truth.trusted else ()
    checks = _checks(truth, rows, trend, used=used, limit=limit)
    verdict, reason = _verdict(checks)
    controls = _controls(truth, limit) if truth.trusted else ()
    worst = worst_of(rows)
    cosine = whole_cosine(used.gradients, truth)
    return Finding(
        subject=name,
        name="gradient",
        title="Gradient",
        claim=f"Every parameter gets the gradient of the loss, to {limit:.2g} of its norm.",
        verdict=verdict,
        reason=reason,
        experiment=experiment(model, x, rule, truth),
        key_finding=key_finding(rows, trend, worst, cosine),
        evidence=_evidence(len(x), truth, controls),
        headline="largest relative error",
        measurements=measurements(rows, truth, used, trend=trend, cosine=cosine, limit=limit),
        tables=(table(rows), *error_table(errors), *health_table(used)),
        figures=(*agreement_figures(rows, trend, limit), *relaxation_figures(model, x, y, rule)),
        checks=checks,
        controls=controls,
        issues=issues(rows, trend, used, limit) if verdict is Verdict.FAIL else (),
        limitations=(
            f"One batch of {len(x)} inputs at one set of weights; agreement elsewhere is not shown.",
            "Measured in evaluation mode: dropout off, running statistics fixed.",
            *(() if trend is not None or not nudged else ("No trend in beta: there is no yardstick at rest.",)),
        ),
        varied=("parameters", dtype_name(dtype_of(model)), *(("beta",) if trend else ())),
    )


def _checks(
    truth: TrueGradient, rows: Sequence[Agreement], trend: NudgeTrend | None, *, used: Estimate, limit: float
) -> tuple[Check, ...]:
    trusted = Verdict.PASS if truth.trusted else Verdict.INCONCLUSIVE
    checks = [Check(name="the yardstick stands", verdict=trusted, reason=truth.reason(), label="guard")]
    decision = numeric_match(
        [row.error for row in rows], limit, magnitude=1.0, labels=[row.name for row in rows], name="relative error"
    )
    checks.append(decision.check("agreement as used"))
    missing = [row.name for row in rows if not row.given and row.truth > 0]
    if missing:
        more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        reason = f"the rule gave no gradient to {', '.join(missing[:NAMED])}{more}, whose true gradient is not zero"
        checks.append(Check(name="every parameter is reached", verdict=Verdict.FAIL, reason=reason))
    if trend is not None:
        told = "is at the rounding floor for every beta" if trend.slope is None else f"falls as beta^{trend.slope:.2f}"
        stays = (
            f"stays at {trend.errors[-1]:.2g} while beta falls to {trend.betas[-1]:.2g}: something else is estimated"
        )
        verdict = Verdict.PASS if trend.vanishes else Verdict.FAIL
        reason = f"at rest the error {told if trend.vanishes else stays}"
        checks.append(Check(name=VANISHES, verdict=verdict, reason=reason))
    if used.residual is not None:
        reason = f"the rule's own relaxations ended {used.status} with a last change of {used.residual:.2g}"
        verdict = Verdict.PASS if math.isfinite(used.residual) else Verdict.FAIL
        checks.append(Check(name="relaxations as used", verdict=verdict, reason=reason))
    return tuple(checks)


def _verdict(checks: Sequence[Check]) -> tuple[Verdict, str]:
    guard = checks[0]
    if guard.verdict is not Verdict.PASS:
        return Verdict.INCONCLUSIVE, guard.reason
    failed = [check for check in checks if check.verdict is not Verdict.PASS]
    if failed:
        # Why an estimate that is off at this setting may still be of the right thing is part of the reason.
        consistent = [c for c in checks if c.name == VANISHES and c not in failed]
        told = "; ".join(check.reason for check in [*failed, *consistent])
        return Verdict.worst(check.verdict for check in failed), told
    return Verdict.PASS, "; ".join(check.reason for check in checks[1:])


def _controls(truth: TrueGradient, limit: float) -> tuple[Control, ...]:
    """The true gradient must be accepted at this limit; reversed, scaled or shuffled it must not be."""
    shuffled = {n: g.flatten().flip(0).reshape(g.shape) for n, g in truth.gradients.items()}
    off = 1 + 2 * limit
    subjects: list[tuple[str, bool, Mapping[str, Tensor]]] = [
        ("the true gradient", True, truth.gradients),
        ("sign reversed", False, {n: -g for n, g in truth.gradients.items()}),
        (f"too large by {2 * limit:.2g} of its size", False, {n: off * g for n, g in truth.gradients.items()}),
        ("entries in reverse order", False, shuffled),
    ]
    controls = []
    for name, good, gradients in subjects:
        error = max(row.error for row in compare(gradients, truth))
        accepted = error <= limit
        controls.append(
            Control(
                name=name,
                kind="known-good" if good else "known-bad",
                expected="accepted" if good else "rejected",
                observed=f"{'accepted' if accepted else 'rejected'}: relative error {error:.2g}",
                separated=accepted is good,
            )
        )
    return tuple(controls)


def _where_the_error_comes_from(
    rule: Rule, model: nn.Module, *, x: Tensor, y: Tensor, used: Estimate, truth: TrueGradient
) -> tuple[tuple[str, float], ...]:
    """The whole error as used, without rounding, and without truncation either; what is left is the rule's own bias."""
    rows = [(f"as used ({dtype_name(dtype_of(model))})", whole_error(used.gradients, truth))]
    if dtype_of(model) != torch.float64:
        with contextlib.suppress(RuntimeError):  # a rule may hold tensors of its own that stay in float32
            precise = estimate_in_float64(rule, model, x, y)
            rows.append(("the same in float64", whole_error(precise.gradients, truth)))
    if isinstance(rule, Settling) or (has_setting(rule, "sweeps") and isinstance(model, EquilibriumModel)):
        settled = estimate_in_float64(at_rest(rule), model, x, y)
        rows.append(("in float64 with every relaxation at rest", whole_error(settled.gradients, truth)))
    return tuple(rows)


def _evidence(n: int, truth: TrueGradient, controls: Sequence[Control]) -> Evidence:
    separated = bool(controls) and all(control.separated for control in controls)
    return evidence_level(kind="deterministic", n=n, guards_hold=truth.trusted, controls_separated=separated)


def _no_gradient(name: str, why: str, truth: TrueGradient) -> Finding:
    return Finding(
        subject=name,
        name="gradient",
        title="Gradient",
        claim="Every parameter gets the gradient of the loss.",
        verdict=Verdict.FAIL,
        reason=f"the rule gave no gradient: {why}",
        checks=(
            Check(
                name="the yardstick stands",
                verdict=Verdict.PASS if truth.trusted else Verdict.INCONCLUSIVE,
                reason=truth.reason(),
                label="guard",
            ),
        ),
    )


def _rounding(model: nn.Module) -> float:
    """What rounding may come to; no less than the accuracy of a yardstick that was itself iterated to rest."""
    yardstick = AMPLIFICATION * AT_REST if isinstance(model, EquilibriumModel) else 0.0
    return max(ROUNDINGS * torch.finfo(dtype_of(model)).eps, yardstick)


def _check_arguments(
    model: nn.Module, x: Tensor, *, y: Tensor, rule: object, limit: float | None, loss: Loss | None
) -> None:
    if not isinstance(model, nn.Module):
        raise expected("a torch.nn.Module", given=type(model).__name__)
    if isinstance(rule, type) or not isinstance(rule, Rule):
        given = f"the class {rule.__name__}" if isinstance(rule, type) else type(rule).__name__
        raise expected("a rule with backward(model, x, y)", given=given, do="for instance rule=assay.Backprop()")
    if not any(p.requires_grad for p in model.parameters()):
        raise expected("a model with parameters that require a gradient", given=type(model).__name__)
    if len(x) != len(y) or len(x) == 0:
        raise expected("as many targets as inputs, at least one", given=f"{len(x)} inputs and {len(y)} targets")
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise expected("finite inputs", given="x with NaN or infinite entries")
    if loss is None and y.dtype != torch.long and not y.is_floating_point():
        raise expected(
            "class indices of dtype torch.int64, or floats to be predicted",
            given=f"y of dtype {y.dtype}",
            do="use y.long(), or pass loss=",
        )
    if loss is None and isinstance(model, EquilibriumModel):
        model.check_target(y, rows=len(x))
    if limit is not None and not 0 < limit < 1:
        raise expected("a limit between 0 and 1", given=f"limit={limit!r}", do="it is a relative error")
