"""The credit audit: does the learning signal reach every depth, can it be measured, and does depth pay?"""

from __future__ import annotations

import time
from typing import Any

from torch import Tensor, nn

from assay.audits.credit.decide import decide, make_checks, make_controls, make_issues
from assay.audits.credit.depth import Baselines, in_points
from assay.audits.credit.inputs import check_arguments
from assay.audits.credit.measure import Credit, measure_credit
from assay.audits.credit.pictures import figures
from assay.audits.credit.recipe import Recipe
from assay.audits.credit.reference import AGREES, MOST_NOISE
from assay.audits.credit.tables import tables
from assay.learning.resolve import as_rule
from assay.learning.subjects import subject_of
from assay.results import Check, Evidence, Finding, Measurement, Region, Verdict
from assay.stats import evidence_level

TITLE = "How the depth is used"
CLAIM = "The learning signal reaches every block, can be measured, and training the blocks beats leaving them frozen."


def audit_credit(
    model: Any,
    x: Tensor,
    y: Tensor,
    *,
    rule: Any = None,
    train: Recipe | None = None,
    baselines: Baselines | None = None,
    blocks: str | None = None,
    seed: int = 0,
    redraws: int = 20,
    responses: bool = True,
    device: str | None = None,
    subject: str = "",
) -> Finding:
    """What a trained ``model`` and the ``rule`` that trained it do with depth, on the test batch (x, y).

    The three published diagnostics stand beside better ones: growth beside absorption, the raw gradient norm beside the
    share of samples whose reference is noise, a bare difference of accuracies beside a paired interval with a headroom
    guard. Depth utility needs ``baselines``, or ``train``, a Recipe that trains them here; without either it is not run
    and the verdict is at best PARTIAL. ``blocks`` is a glob that overrides the choice of blocks; ``redraws`` fresh
    feedback matrices make the null band; ``responses=False`` leaves out the perturbation tests. Targets are class
    indices, or floats (then the loss is the squared error).

    Measured on copies in evaluation mode: the model, its gradients and the random generators are left as they were.
    PASS says that this model makes use of its depth; it does not say that the rule is as good as backprop.

    >>> import assay, torch
    >>> model = assay.models.ResMLP(12, width=16, depth=3, classes=3)
    >>> x, y = torch.linspace(-1, 1, 96).reshape(8, 12), torch.arange(8) % 3
    >>> finding = audit_credit(model, x, y, rule=assay.Backprop())
    >>> finding.verdict
    <Verdict.PARTIAL: 'PARTIAL'>
    >>> print(finding.checks[0].reason)
    3 blocks (class ResidualBlock, 86% of the parameters): blocks.0, blocks.1, blocks.2
    """
    model, x, y = subject_of(model, x, y, seed=seed, device=device)
    check_arguments(model, x, y, least=2)
    started = time.perf_counter()
    rule = None if rule is None else as_rule(rule, model, seed=seed, blocks=blocks)
    name = subject or (f"{type(rule).__name__} on {type(model).__name__}" if rule else type(model).__name__)
    if broken := _not_finite(model):
        reason = f"parameters or buffers that are not finite: {', '.join(broken)}; nothing can be measured"
        return Finding(
            subject=name,
            name="credit",
            title=TITLE,
            claim=CLAIM,
            verdict=Verdict.FAIL,
            reason=reason,
            checks=(Check(name="finite weights", verdict=Verdict.FAIL, reason=reason),),
        )
    if train is not None:
        baselines = train.run()
    credit = measure_credit(
        model, x, y, rule=rule, baselines=baselines, glob=blocks, seed=seed, redraws=redraws, responses=responses
    )
    checks, controls = make_checks(credit), make_controls(credit)
    verdict, reason = decide(credit, checks, controls)
    return Finding(
        subject=name,
        name="credit",
        title=TITLE,
        claim=CLAIM,
        verdict=verdict,
        reason=reason,
        experiment=f"{credit.samples} samples, float64 copies in evaluation mode; {credit.blocks}",
        key_finding=_key_finding(credit),
        evidence=_evidence(credit, bool(controls) and all(control.separated for control in controls)),
        headline=_headline(credit, verdict),
        measurements=_measurements(credit),
        tables=tables(credit),
        figures=figures(credit),
        checks=checks,
        controls=controls,
        issues=make_issues(credit),
        limitations=_limitations(credit),
        seconds=time.perf_counter() - started,
        seeds=credit.utility.gap.seeds if credit.utility.gap else (),
        varied=("test items", *(("initialisation", "data order", "feedback matrices") if credit.utility.gap else ())),
    )


def _not_finite(model: nn.Module) -> list[str]:
    named = [*model.named_parameters(), *model.named_buffers()]
    return [name for name, value in named if value.is_floating_point() and not bool(value.detach().isfinite().all())]


def _headline(credit: Credit, verdict: Verdict) -> str | None:
    """The number that decided, if one did: a signal no better than chance is told by many, not by one."""
    if credit.utility.gap is not None:
        return credit.utility.gap.name
    noise = max(credit.reference.noise)
    return "samples without a reference" if (noise > MOST_NOISE) is (verdict is not Verdict.PASS) else None


def _evidence(credit: Credit, separated: bool) -> Evidence:
    if credit.utility.gap is None:
        return evidence_level(kind="deterministic", n=credit.samples, controls_separated=separated)
    return evidence_level(
        kind="statistical", n=len(credit.utility.gap.seeds), controls_separated=separated, fixed_beforehand=True
    )


def _key_finding(credit: Credit) -> str:
    told = [f"published verdict {credit.published.verdict}"]
    cosines = [a.cosine for a in credit.alignment if a is not None]
    if cosines:
        told.append("cosines " + " ".join(f"{value:.3f}" for value in cosines))
    told.append(f"largest growth {credit.scale.max_growth:.3g}")
    if credit.utility.gap is not None and credit.utility.gap.value is not None:
        told.append(f"{100 * credit.utility.gap.value:+.1f} pp over frozen blocks")
    return ", ".join(told)


def _measurements(credit: Credit) -> tuple[Measurement, ...]:
    noise = max(credit.reference.noise)
    rows = [
        Measurement(
            name="largest growth of a block",
            value=credit.scale.max_growth,
            unit="ratio",
            n=credit.samples, of="samples",
            note="published D1; mean over samples",
        ),
        Measurement(
            name="gradient norm behind the last block",
            value=credit.published.gradient,
            n=credit.samples, of="samples",
            note="published D2; of the batch-mean loss",
        ),
        Measurement(
            name="gauge-invariant gradient",
            value=credit.reference.invariant[-1],
            n=credit.samples, of="samples",
            note="median of |g| |h| / loss behind the last block",
        ),
        Measurement(
            name="samples without a reference",
            value=noise,
            unit="share",
            n=credit.samples, of="samples",
            region=Region(high=MOST_NOISE),
            note=f"cosine of usual and exact gradient below {AGREES:g}, worst depth",
        ),
        Measurement(
            name="absorption", value=credit.scale.absorption, unit="ratio", n=credit.samples, of="samples",
            note="|h_L| / |h_0|",
        ),
    ]
    utility = credit.utility
    rows += [in_points(m) for m in (utility.gap, utility.headroom) if m is not None]
    if utility.detectable is not None:
        rows.append(
            Measurement(
                name="smallest detectable gain",
                value=100 * utility.detectable,
                unit="pp",
                source="derived",
                note="80 % power",
            )
        )
    return tuple(rows)


def _limitations(credit: Credit) -> tuple[str, ...]:
    told = [
        f"One batch of {credit.samples} samples; dropout off, running statistics fixed.",
        "Blocks that pay need not be trained well: passing does not certify the rule.",
    ]
    if credit.utility.gap is None:
        told.append("Depth utility was not run: give baselines= or train=.")
    if credit.rule and not credit.response:
        told.append("No perturbation tests: the rule sends no signal through the stream, or they were left out.")
    return tuple(told)
