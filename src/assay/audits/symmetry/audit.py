"""audit_symmetry: measure, decide, and put everything a reader needs into one Finding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from assay.audits.symmetry import decide, stages
from assay.audits.symmetry.explain import diagnose
from assay.audits.symmetry.facts import RARE, Facts, Options
from assay.audits.symmetry.measure.controls import controls
from assay.audits.symmetry.present import figures, tables
from assay.audits.symmetry.spec import Symmetry
from assay.audits.symmetry.subject import prepare
from assay.errors import expected
from assay.learning.subjects import subject_of
from assay.probe.copies import own_autograd, uncompiled, untouched_random_state
from assay.results import Finding, Verdict


def audit_symmetry(
    model: Any,
    sample: Any,
    symmetry: Symmetry,
    *,
    seed: int = 0,
    budget: float | None = None,
    rare: float = RARE,
    inputs: int | None = None,
    transforms: int | None = None,
    skip: Iterable[str] = (),
    training_steps: int = 5,
    adversarial: int = 0,
    call: Callable[[nn.Module, Any], Any] | None = None,
    twin: nn.Module | None = None,
    device: str | None = None,
    name: str | None = None,
) -> Finding:
    """Whether a model has the symmetry claimed for it, and if not where, why and how to mend it.

    Args:
        model: any ``nn.Module``, or what makes one (a class, a function of seed, ``pkg.module:name``); copies of it are
            run, so it is left exactly as it was found.
        sample: a tensor, tuple (``model(*sample)``) or dict (``model(**sample)``) of example inputs; a list of such
            inputs for models without a batch axis; or a callable ``(n, generator) -> inputs``.
        symmetry: the group and how it acts.
        seed: all randomness follows from it.
        budget: the largest relative error you accept; without it only rounding is accepted.
        rare: the rarest defect to be met with 95 %, as a share of inputs and of elements: 0.05 needs 59 of each, 0.001
            needs 2995. A sample with fewer inputs leaves more room, and the report says how much.
        inputs, transforms: how many of each are used at most, if you would rather say that.
        skip: parts to leave out (see ``assay.audits.symmetry.facts.PARTS``); they are UNTESTED, never passed.
        training_steps: steps of training before the symmetry is tested again.
        adversarial: rounds of a search for the worst input and element; 0 for none.
        call: ``(model, inputs) -> outputs`` for models with a call of their own.
        twin: a float64 version of a model that does not run in float64 by itself; it is proved to be the same function
            before it is believed.
        device: where to run (cpu, cuda, mps, auto); where the model is, if left out.
        name: what to call the model in the report.

    >>> import torch; from assay import symmetry as sym
    >>> spec = sym.Symmetry(sym.S(), inputs=sym.permuted(1), outputs=sym.permuted(1))
    >>> audit_symmetry(torch.nn.Tanh(), torch.randn(8, 5), spec).verdict
    <Verdict.PASS: 'PASS'>

    A PASS says that no break larger than rounding was found on these inputs; see the statement about rare inputs.
    """
    if not isinstance(symmetry, Symmetry):
        raise expected("a Symmetry(group, inputs=..., outputs=...)", given=type(symmetry).__name__)
    started = time.perf_counter()
    model, sample = subject_of(model, sample, seed=seed, device=device)
    options = Options(
        seed, budget, *Options.counts(rare, inputs, transforms), frozenset(skip), training_steps, adversarial
    )
    with untouched_random_state(), own_autograd(), uncompiled():
        subject = prepare(model, sample, symmetry, seed=seed, inputs=options.inputs, call=call, twin=twin)
        finding = summarise(stages.run(subject, options, name or type(model).__name__, sample))
    return finding.model_copy(update={"seconds": time.perf_counter() - started})


def summarise(facts: Facts) -> Finding:
    """The finding of what was measured."""
    found = decide.checks(facts)
    outcome = decide.verdict(facts, found)
    tried = stages.Attempts()
    issues = tried("diagnosis", lambda: diagnose.issues(facts)) or []
    shown = tried("tables", lambda: tables.tables(facts)) or []
    drawn = tried("figures", lambda: figures.figures(facts)) or []
    told = tried("controls", lambda: controls(facts.subject)) or ()
    outcome, why = decide.calibrated(outcome, decide.reason(facts, found, outcome), told)
    missing = [f"{part} could not be made: {why}" for part, why in tried.untested.items()]
    return Finding(
        subject=facts.name,
        title="Symmetry",
        claim=claim(facts),
        verdict=outcome,
        reason=why,
        key_finding=issues[0].cause if issues and outcome is not Verdict.PASS else "",
        headline=tables.headline(facts),
        measurements=tuple(tables.measurements(facts)),
        tables=tuple(shown),
        figures=tuple(drawn),
        checks=tuple(found),
        controls=told,
        issues=tuple(issues),
        limitations=(*diagnose.limitations(facts), *missing),
        improvements=tuple(dict.fromkeys(issue.fix for issue in issues)),
        varied=("inputs", "group elements", "weight jitter"),
        seeds=(facts.options.seed,),
    )


def claim(facts: Facts) -> str:
    """The claim in words."""
    spec = facts.subject.symmetry
    kind = "invariant" if spec.is_invariance else "equivariant"
    exact = "up to rounding" if facts.options.budget is None else f"to a relative error of {facts.options.budget:g}"
    return f"the model is {kind} under {spec.group.name} {exact} ({spec})"
