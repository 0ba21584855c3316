"""Was the defect mended? Two models on the same inputs and elements, compared pair by pair."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from assay.audits.symmetry.facts import RARE, Facts, Options, Test
from assay.audits.symmetry.measure.endtoend import Errors
from assay.audits.symmetry.spec import Symmetry
from assay.audits.symmetry.stages import run_forward
from assay.audits.symmetry.subject import prepare
from assay.learning.subjects import subject_of
from assay.probe.copies import own_autograd, uncompiled, untouched_random_state
from assay.results import Check, Finding, Measurement, Table, Verdict
from assay.stats import summarise


def against(
    old: nn.Module,
    new: nn.Module,
    sample: Any,
    symmetry: Symmetry,
    *,
    seed: int = 0,
    budget: float | None = None,
    rare: float = RARE,
    inputs: int | None = None,
    transforms: int | None = None,
    call: Callable[[nn.Module, Any], Any] | None = None,
    device: str | None = None,
) -> Finding:
    """Whether ``new`` keeps a symmetry that ``old`` breaks (or keeps it as ``old`` did).

    Both see the same inputs and the same elements. Per input the mean of log10(error of new / error of old) is taken
    over elements; the interval is a t interval over inputs. PASS: new holds. PARTIAL: new is better and still broken.
    FAIL: new is broken and not better. It says nothing about gradients: audit the new model for that.
    """
    started = time.perf_counter()
    counts = Options.counts(rare, inputs, transforms)
    options = Options(seed, budget, *counts, frozenset({"special", "sizes"}))
    with untouched_random_state(), own_autograd(), uncompiled():
        before, after = (
            _measured(model, sample, symmetry, options, call=call, device=device) for model in (old, new)
        )
    checks = [*_checks("old", before), *_checks("new", after)]
    stopped = after.guards.stopped or before.guards.stopped
    if stopped:
        verdict, reason, found, table = Verdict.INCONCLUSIVE, stopped, [], None
    else:
        pairs = list(zip(before.tests, after.tests, strict=True))
        found = [ratio(a, b) for a, b in pairs]
        verdict, reason = _decide(before, after, found)
        table = _table(pairs, found)
    return Finding(
        subject=f"{type(new).__name__} against {type(old).__name__}",
        title="Symmetry, new against old",
        claim=f"the new model is symmetric under {symmetry.group.name} where the old one is not ({symmetry})",
        verdict=verdict,
        reason=reason,
        headline=max(found, key=lambda one: one.value or 0.0).name if found else None,
        measurements=tuple(found),
        tables=(table,) if table is not None else (),
        checks=tuple(checks),
        limitations=("forward pass only; audit the new model for gradients and training",),
        seeds=(seed,),
        seconds=time.perf_counter() - started,
    )


def ratio(old: Test, new: Test) -> Measurement:
    """Mean log10(new error / old error) over inputs, with a t interval; errors below rounding count as rounding."""
    shrink = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps
    values = []
    shared = set(old.errors.element[old.errors.sampled].tolist()) & set(new.errors.element[new.errors.sampled].tolist())
    for cluster in sorted(set(old.errors.cluster.tolist())):
        logs = [_log_errors(test.errors, cluster, shared, shrink) for test in (old, new)]
        values.append(float(logs[1] - logs[0]))
    name = f"log10(new error / old error), {old.generator}, {old.errors.output}"
    return summarise(name, values, unit="decades", of="inputs", note="negative: the new model is better")


def _log_errors(errors: Errors, cluster: int, elements: set[int], shrink: float) -> Tensor:
    """Mean log10 of the relative error of one input over the elements both models were run at in any case."""
    mine = (errors.cluster == cluster) & errors.sampled & torch.isin(errors.element, torch.tensor(sorted(elements)))
    floor = torch.clamp(errors.bound[mine] * shrink, min=1e-300)
    return torch.log10(errors.scaled(torch.maximum(errors.best[mine], floor))).mean()


def _measured(
    model: nn.Module, sample: Any, symmetry: Symmetry, options: Options, *, call: Any, device: str | None
) -> Facts:
    model, sample = subject_of(model, sample, device=device)
    subject = prepare(model, sample, symmetry, seed=options.seed, inputs=options.inputs, call=call)
    return run_forward(subject, options, type(model).__name__, sample)


def _checks(which: str, facts: Facts) -> list[Check]:
    found = [check.model_copy(update={"name": f"{which}: {check.name}"}) for check in facts.guards.checks]
    for test in facts.tests:
        name = f"{which}: {test.generator}: {test.errors.output}"
        judged = test.judgement
        found.append(Check(name=name, verdict=judged.verdict, reason=judged.reason, label=judged.label))
    return found


def _decide(before: Facts, after: Facts, found: list[Measurement]) -> tuple[Verdict, str]:
    was, now = bool(before.broken), bool(after.broken)
    if after.guards.sensitivity is not None and (
        after.guards.sensitivity.dead_outputs or after.guards.sensitivity.dead_inputs
    ):
        return Verdict.INCONCLUSIVE, "the new model no longer reacts to an input: its symmetry is vacuous"
    largest = min(found, key=lambda one: one.value or 0.0)
    change = f"{largest.value:+.1f} decades ({largest.name.split(', ', 1)[1]})"
    if not now:
        return (
            Verdict.PASS,
            f"mended: the error changed by {change} and the new model holds" if was else "both models hold",
        )
    if not was:
        return Verdict.FAIL, f"the old model holds and the new one does not: {after.broken[0].judgement.reason}"
    worst = max(found, key=lambda one: one.value or 0.0)
    if worst.interval is not None and worst.interval.high < 0:
        return (
            Verdict.PARTIAL,
            f"better by {-(worst.value or 0.0):.1f} decades and still broken: {after.broken[0].judgement.reason}",
        )
    return Verdict.FAIL, f"not mended: {after.broken[0].generator}: {after.broken[0].judgement.reason}"


def _table(pairs: list[tuple[Test, Test]], found: list[Measurement]) -> Table:
    rows = tuple(
        (
            a.generator,
            a.errors.output,
            a.judgement.label,
            b.judgement.label,
            a.judgement.worst,
            b.judgement.worst,
            m.value,
        )
        for (a, b), m in zip(pairs, found, strict=True)
    )
    columns = ("generator", "output", "old", "new", "old max relative error", "new max relative error", "log10 ratio")
    return Table(title="Old against new", columns=columns, rows=rows, note="same inputs and elements for both")
