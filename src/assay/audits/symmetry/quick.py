"""Short calls over the same core: one-line assertions and audits of the usual groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypedDict, Unpack

from torch import nn

from assay.audits.symmetry import facts, stages
from assay.audits.symmetry.audit import audit_symmetry, summarise
from assay.audits.symmetry.facts import PARTS
from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.continuous import SE, SO
from assay.audits.symmetry.groups.discrete import C, S
from assay.audits.symmetry.representations.actions import permuted
from assay.audits.symmetry.representations.base import Representation, invariant, point, vector
from assay.audits.symmetry.representations.images import image
from assay.audits.symmetry.spec import Symmetry
from assay.audits.symmetry.subject import prepare
from assay.errors import NotPassed
from assay.learning.subjects import subject_of
from assay.probe.copies import own_autograd, uncompiled, untouched_random_state
from assay.results import Finding, Verdict


class NotEquivariant(NotPassed, AssertionError):
    """What ``assert_equivariant`` raises: also an AssertionError, so that test runners show it as a failure."""


class AuditOptions(TypedDict, total=False):
    """The keyword arguments of ``audit_symmetry``."""

    seed: int
    budget: float | None
    rare: float
    inputs: int | None
    transforms: int | None
    skip: Iterable[str]
    training_steps: int
    adversarial: int
    call: Callable[[nn.Module, Any], Any] | None
    twin: nn.Module | None
    name: str | None


def assert_equivariant(
    model: nn.Module,
    sample: Any,
    symmetry: Symmetry,
    *,
    seed: int = 0,
    budget: float | None = None,
    inputs: int = 16,
    transforms: int = 8,
    call: Callable[[nn.Module, Any], Any] | None = None,
) -> Finding:
    """PASS for the forward pass, which is all it tests; otherwise raises NotEquivariant (an AssertionError).

    Only the forward pass is tested, at a few inputs and elements, up to the first part of the group that breaks; then
    the first guilty module is looked for, but not its cause, which ``audit_symmetry`` tells. NaN, a stochastic model
    and an output that reacts to nothing are failures too: an assertion that cannot fail is worth nothing.

    >>> import torch; from assay import symmetry as sym
    >>> spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector())
    >>> assert_equivariant(torch.nn.Identity(), torch.randn(8, 3), spec).verdict
    <Verdict.PASS: 'PASS'>
    """
    __tracebackhide__ = True  # pytest then shows the line of the test and the reason, not this function
    skip = frozenset(part for part in PARTS if part not in ("sensitivity", "special", "search", "localise"))
    options = facts.Options(seed, budget, inputs, transforms, skip, first_only=True)
    model, sample = subject_of(model, sample, seed=seed)
    with untouched_random_state(), own_autograd(), uncompiled():
        subject = prepare(model, sample, symmetry, seed=seed, inputs=inputs, call=call)
        found = stages.run_forward(subject, options, type(model).__name__, sample)
        if found.broken and not found.guards.stopped:  # only now it pays to look for the place
            found = dataclasses.replace(found, places=stages.run_places(found))
        finding = summarise(found)
    wrong = [check for check in finding.checks if check.verdict is not Verdict.PASS and check.name not in skip]
    if not wrong:
        kept = tuple(check for check in finding.checks if check.name not in skip)
        why = f"{symmetry.group.name} holds in the forward pass, at {inputs} inputs and {transforms} elements at most"
        return finding.model_copy(update={"verdict": Verdict.PASS, "reason": why, "checks": kept})
    raise NotEquivariant(f"{finding.subject}: {finding.verdict}: {finding.reason}", finding)


def audit_invariance(
    model: nn.Module, sample: Any, group: Group, *, inputs_as: Any, **options: Unpack[AuditOptions]
) -> Finding:
    """``audit_symmetry`` for a model whose single output does not change under the group."""
    return audit_symmetry(model, sample, Symmetry(group, inputs=inputs_as, outputs=invariant()), **options)


def audit_equivariance(
    model: nn.Module, sample: Any, group: Group, *, inputs_as: Any, outputs_as: Any, **options: Unpack[AuditOptions]
) -> Finding:
    """``audit_symmetry`` with group and representations given one by one."""
    return audit_symmetry(model, sample, Symmetry(group, inputs=inputs_as, outputs=outputs_as), **options)


def audit_so3(
    model: nn.Module, sample: Any, *, outputs_as: Representation | None = None, **options: Unpack[AuditOptions]
) -> Finding:
    """Rotations of vectors along the last axis; the output is invariant unless ``outputs_as`` says otherwise."""
    spec = Symmetry(SO(3), inputs=vector(), outputs=outputs_as or invariant())
    return audit_symmetry(model, sample, spec, **options)


def audit_se3(
    model: nn.Module, sample: Any, *, outputs_as: Representation | None = None, **options: Unpack[AuditOptions]
) -> Finding:
    """Rotations and translations of points along the last axis."""
    spec = Symmetry(SE(3), inputs=point(), outputs=outputs_as or invariant())
    return audit_symmetry(model, sample, spec, **options)


def audit_permutations(
    model: nn.Module,
    sample: Any,
    *,
    axis: int = 1,
    outputs_as: Representation | None = None,
    **options: Unpack[AuditOptions],
) -> Finding:
    """Permutations along ``axis`` of the input; the output is invariant unless ``outputs_as`` says otherwise."""
    spec = Symmetry(S(), inputs=permuted(axis), outputs=outputs_as or invariant())
    return audit_symmetry(model, sample, spec, **options)


def audit_images(
    model: nn.Module,
    sample: Any,
    *,
    group: Group | None = None,
    outputs_as: Representation | None = None,
    **options: Unpack[AuditOptions],
) -> Finding:
    """Rotations by 90 degrees (or ``group``) of images [batch, channel, height, width]."""
    spec = Symmetry(group or C(4), inputs=image(-2, -1), outputs=outputs_as or invariant())
    return audit_symmetry(model, sample, spec, **options)
