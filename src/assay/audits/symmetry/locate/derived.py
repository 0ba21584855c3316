"""Outputs that are slopes: forces by automatic differentiation. A value put right by hand does not put them right."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from assay.audits.symmetry.subject import Subject
from assay.errors import InputError
from assay.probe import tree
from assay.probe.hooks import watching
from assay.probe.rounding import VANISHES
from assay.probe.subject import Leaves
from assay.probe.values import difference, exact, is_continuous


def plain_outputs(subject: Subject, leaves: Leaves) -> list[int]:
    """The declared outputs that are not slopes of what some module makes; an InputError if there is none.

    With the slope of every module halved, and its values kept, exactly the others change.
    """
    if not subject.makes_graphs:
        return subject.tested
    precision = subject.precisions[-1]
    twin = subject.twin(precision)
    before = subject.values(leaves, precision)
    with watching(twin, None, lambda name: _halving):
        after = [exact(y.detach()) for y in subject.run(leaves, twin, subject.dtype(precision))]
    plain = [i for i in subject.tested if not _differs(before[i], after[i])]
    if not plain:
        raise InputError("every output is a slope of what modules make: putting a value right does not put it right")
    return plain


def patched(output: Any, patch: list[Tensor]) -> Any:
    """The value with its real and complex tensors replaced in order; slopes stay those of the value it had."""
    queue = iter(patch)
    leaves = [
        _instead(leaf, next(queue)) if isinstance(leaf, Tensor) and is_continuous(leaf) and leaf.numel() else leaf
        for _, leaf in tree.leaves(output)
    ]
    return tree.rebuild(output, iter(leaves))


def _instead(leaf: Tensor, new: Tensor) -> Tensor:
    new = new.to(leaf.device, leaf.dtype)
    # A model that differentiates its own output would find nothing that leads back to its inputs.
    return new + (leaf - leaf.detach()) if leaf.requires_grad else new


def _halving(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
    return tree.map_tensors(output, lambda y: 0.5 * y + 0.5 * y.detach() if is_continuous(y) and y.requires_grad else y)


def _differs(before: Tensor, after: Tensor) -> bool:
    if before.shape != after.shape or not before.numel():
        return before.shape != after.shape
    return float(difference(before, after).abs().max()) > VANISHES * float(before.abs().max())
