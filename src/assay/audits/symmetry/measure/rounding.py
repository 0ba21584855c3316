"""Errors of a symmetry as norms, and the rounding they are judged by."""

from __future__ import annotations

from torch import Tensor

from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.representations.base import Representation
from assay.audits.symmetry.subject import Subject
from assay.probe.rounding import VANISHES, norms
from assay.probe.values import difference


def is_constant(gap: Tensor) -> bool:
    """Whether an error [elements, inputs, ...] is there and the same for every input: something was added."""
    varies, size = gap - gap.mean(dim=1, keepdim=True), float(gap.abs().max())
    return gap.shape[1] > 1 and size > 0 and float(varies.abs().max()) <= VANISHES * size


def acted(rep: Representation, elements: Elements, x: Tensor) -> Tensor:
    """rho(g) x for every element."""
    return rep.act(elements, x.expand(elements.count, *x.shape))


def error_norms(subject: Subject, rep: Representation, elements: Elements, *, here: Tensor, there: Tensor) -> Tensor:
    """|f(gx) - rho(g) f(x)| for every element and row."""
    gap = difference(there, acted(rep, elements, here))
    mask = rep.mask(elements, there)
    return norms(gap if mask is None else gap * mask, subject.rows)


def carried_rounding(subject: Subject, rep: Representation, elements: Elements, *, case: int, index: int) -> Tensor:
    """r(x) = |f_low(x) - f_high(x)|, carried to where rho(g) puts it, for every element and row."""
    here_low, here_high = subject.base(case, "low")[index], subject.base(case, "high")[index]
    moved = difference(acted(rep, elements, here_low), acted(rep, elements, here_high))
    mask = rep.mask(elements, moved)
    return norms(moved if mask is None else moved * mask, subject.rows)


def rounding_there(subject: Subject, rep: Representation, elements: Elements, *, low: Tensor, high: Tensor) -> Tensor:
    """r(gx) = |f_low(gx) - f_high(gx)| for every element and row."""
    gap, mask = difference(low, high), rep.mask(elements, high)
    return norms(gap if mask is None else gap * mask, subject.rows)


def compare(
    subject: Subject, rep: Representation, elements: Elements, *, case: int, index: int, low: Tensor,
    high: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Errors in both precisions and the rounding bound of one output that is supposed to transform as ``rep``."""
    low_error = error_norms(subject, rep, elements, here=subject.base(case, "low")[index], there=low)
    if high is None:
        return low_error, None, None
    high_error = error_norms(subject, rep, elements, here=subject.base(case, "high")[index], there=high)
    carried = carried_rounding(subject, rep, elements, case=case, index=index)
    bound = rounding_there(subject, rep, elements, low=low, high=high) + carried
    return low_error, high_error, bound
