"""Two of the three gradient tests: input gradients transform, parameter gradients do not change.

Differentiating f(gx) = rho f(x): J(gx)^T rho_out^-T u = rho_in^-T J(x)^T u for every cotangent u (catches custom
backwards and detached components), and the gradient of <u, f(x)> by a parameter equals that of <rho_out^-T u, f(gx)>
(names the parameter of a latent defect: a bias that is still zero). The cotangent transforms; y.sum() would not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.measure.arbitrate import PROMISED
from assay.audits.symmetry.measure.perturbed import BROKEN_BAND, DRAWS, ESTIMATE_SAFETY, nudge
from assay.audits.symmetry.representations.base import Invariant, Representation
from assay.audits.symmetry.subject import Subject
from assay.probe import tree
from assay.probe.noise import normal
from assay.probe.subject import Leaves, Precision
from assay.probe.values import exact
from assay.seeding import torch_generator

FLOAT64_TERMS = 64
"""Roundings of float64 a gradient may carry from terms as large as the largest gradient of its kind."""


@dataclass(frozen=True)
class GradientError:
    """How far one gradient is from what symmetry demands, against what rounding allows."""

    kind: str
    name: str
    relative: float
    excess: float
    budget: float | None = None
    share: float = 0.0
    """The error as a share of the largest gradient of its kind: one that is zero by itself has no size of its own."""

    @property
    def label(self) -> Literal["EXACT", "APPROXIMATE", "BROKEN", "UNTESTED"]:
        """EXACT: rounding of the low precision explains it; APPROXIMATE: it does not, but the budget allows it.

        UNTESTED where the two precisions differ by more than any rounding: at a kink or a jump there is no gradient.
        """
        if self.excess > 1.0 and self.budget is not None and self.relative <= self.budget:
            return "APPROXIMATE"
        if self.share > BROKEN_BAND and self.share > BROKEN_BAND * self.excess:
            return "BROKEN" if self.excess > PROMISED else "UNTESTED"
        return "EXACT" if self.excess <= 1.0 else "BROKEN"

    @property
    def broken(self) -> bool:
        """The float64 error exceeds the rounding of the low precision, and the budget."""
        return self.label == "BROKEN"


@dataclass(frozen=True)
class GradientTest:
    """Errors of every input and parameter under one generator; ``problem`` says why nothing was tested."""

    generator: str
    inputs: tuple[GradientError, ...]
    parameters: tuple[GradientError, ...]
    problem: str = ""
    elements: int = 0
    """Elements they were compared at."""


@dataclass(frozen=True)
class _Gradients:
    inputs: Mapping[str, Tensor]
    parameters: Mapping[str, Tensor]


def gradient_test(
    subject: Subject,
    generator: str,
    elements: Elements,
    leaves: Leaves,
    *,
    case: int = 0,
    budget: float | None = None,
) -> GradientTest:
    """Both covariance tests at one input (or batch) for a few elements."""
    group = subject.group(case)
    if "crop" in elements.parts:
        return GradientTest(generator, (), (), "outputs are compared on a part of the frame only")
    if subject.inexact(elements):
        return GradientTest(generator, (), (), "the grid is interpolated, which costs more than gradients can show")
    random = torch_generator(subject.seed, "cotangent", generator)
    shapes = subject.values(leaves, "low")
    cotangents = [normal(y, random) for y in shapes]
    worst: dict[tuple[str, str], tuple[float, float, float]] = {}
    here = {precision: _gradients(subject, leaves, cotangents, precision) for precision in subject.precisions}
    for number in range(elements.count):
        element = elements[number]
        found = _at_element(subject, group, element, leaves=leaves, cotangents=cotangents, here=here)
        if isinstance(found, str):
            return GradientTest(generator, (), (), found)
        for key, numbers in found.items():
            old = worst.get(key, (0.0, 0.0, 0.0))
            worst[key] = (max(old[0], numbers[0]), max(old[1], numbers[1]), max(old[2], numbers[2]))
    return dataclasses.replace(_collect(generator, worst, budget), elements=elements.count)


def _collect(
    generator: str, worst: dict[tuple[str, str], tuple[float, float, float]], budget: float | None
) -> GradientTest:
    scale = {
        kind: max((size for (k, _), (_, _, size) in worst.items() if k == kind), default=1.0)
        for kind in ("input", "parameter")
    }
    errors = []
    for (kind, name), (error, bound, size) in worst.items():
        # Where a gradient is zero but for float64 rounding of far larger terms, both precisions may agree by luck.
        least = FLOAT64_TERMS * torch.finfo(torch.float64).eps * scale[kind]
        excess = 0.0 if error == 0 else error / max(bound, least) if max(bound, least) else math.inf
        relative, share = (error / (whole or 1.0) for whole in (size or scale[kind], scale[kind]))
        errors.append(GradientError(kind, name, relative, excess, budget, share))
    return GradientTest(
        generator,
        tuple(one for one in errors if one.kind == "input"),
        tuple(one for one in errors if one.kind == "parameter"),
    )


def _at_element(
    subject: Subject, group: Group, element: Elements, *, leaves: Leaves, cotangents: list[Tensor],
    here: Mapping[Precision, _Gradients | str],
) -> dict[tuple[str, str], tuple[float, float, float]] | str:
    moved = [m if m is x else m[0] for m, x in zip(subject.transformed(leaves, element), leaves, strict=True)]
    turned = [
        cotangent_action(rep or Invariant(), group, element, u)
        for rep, u in zip(subject.outputs, cotangents, strict=True)
    ]
    gaps: dict[Precision, dict[tuple[str, str], tuple[Tensor, Tensor]]] = {}
    for precision in subject.precisions:
        mine, there = here[precision], _gradients(subject, moved, turned, precision)
        if isinstance(mine, str) or isinstance(there, str):
            return mine if isinstance(mine, str) else str(there)
        gaps[precision] = _pairs(subject, group, element, here=mine, there=there)
    result = {}
    best = subject.precisions[-1]
    for key, (expected, found) in gaps[best].items():
        error, size = float((found - expected).norm()), float(expected.norm())
        if not math.isfinite(error):
            result[key] = (math.inf, 1.0, 1.0)
            continue
        if best == "high":
            low_expected, low_found = gaps["low"][key]
            bound = float((low_expected - expected).norm()) + float((low_found - found).norm())
        else:
            bound = 64 * torch.finfo(subject.low_dtype).eps * size
        result[key] = (error, bound, size)
    if best == "low" and any(error > bound for error, bound, _ in result.values()):
        # A translation far away costs digits: what rounding does to each gradient is estimated at x and at gx.
        estimates = [_moved_gradients(subject, *one) for one in ((leaves, cotangents), (moved, turned))]
        for key, (error, bound, size) in result.items():
            allowed = ESTIMATE_SAFETY * sum(one.get(key, 0.0) for one in estimates)
            result[key] = (error, max(bound, allowed), size)
    return result


def _moved_gradients(subject: Subject, leaves: Leaves, cotangents: list[Tensor]) -> dict[tuple[str, str], float]:
    """How far each gradient moves if weights and inputs move by one rounding, at most over a few draws."""
    generator, worst = torch_generator(subject.seed, "gradient rounding"), dict[tuple[str, str], float]()
    here = _gradients(subject, leaves, cotangents, "low")
    for _ in range(DRAWS):
        model, nudged = nudge(subject, leaves, "low", generator)
        there = _gradients(dataclasses.replace(subject, low=model, _base={}), nudged, cotangents, "low")
        if isinstance(here, str) or isinstance(there, str):
            return {}
        for kind, before, after in (
            ("input", here.inputs, there.inputs),
            ("parameter", here.parameters, there.parameters),
        ):
            for name, gradient in before.items():
                key = (kind, name or "input" if kind == "input" else name)
                worst[key] = max(worst.get(key, 0.0), float((after[name] - gradient).norm()))
    return worst


def _pairs(
    subject: Subject, group: Group, element: Elements, *, here: _Gradients, there: _Gradients
) -> dict[tuple[str, str], tuple[Tensor, Tensor]]:
    pairs = {}
    reps = dict(zip(subject.input_names, subject.inputs, strict=True))
    for name, gradient in here.inputs.items():
        pairs["input", name or "input"] = (cotangent_action(reps[name], group, element, gradient), there.inputs[name])
    for name, gradient in here.parameters.items():
        pairs["parameter", name] = (gradient, there.parameters[name])
    return pairs


def _gradients(
    subject: Subject, leaves: Leaves, cotangents: Sequence[Tensor], precision: Precision
) -> _Gradients | str:
    """Gradients of sum <u, f(x)> by every floating input and parameter; a sentence if there are none."""
    model, dtype = subject.twin(precision), subject.dtype(precision)
    fed, outputs = forward_with_grad(subject, model, leaves, dtype)
    terms = [
        inner(u.to(y.device, y.dtype), y)
        for index, (y, u) in enumerate(zip(outputs, cotangents, strict=True))
        if y.requires_grad and subject.outputs[index] is not None
    ]
    if not terms:
        return "no declared output is differentiable"
    wanted = {
        name: x for name, x in zip(subject.input_names, fed, strict=True) if isinstance(x, Tensor) and x.requires_grad
    }
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
    sources = [*wanted.values(), *weights.values()]
    # A model may keep a part of its graph (weights expanded once, as escnn does): it must not be freed.
    found = torch.autograd.grad(torch.stack(terms).sum(), sources, allow_unused=True, retain_graph=True)
    filled = [exact(torch.zeros_like(x) if g is None else g) for x, g in zip(sources, found, strict=True)]
    return _Gradients(
        dict(zip(wanted, filled[: len(wanted)], strict=True)), dict(zip(weights, filled[len(wanted) :], strict=True))
    )


def forward_with_grad(
    subject: Subject, model: nn.Module, leaves: Leaves, dtype: torch.dtype
) -> tuple[Leaves, list[Tensor]]:
    """Floating inputs that require gradients, and the outputs computed from them."""
    fed = subject.fed(leaves, model, dtype, grad=True)
    with torch.enable_grad():
        # Not the leaves themselves: a model may write into what it is given.
        given = [x.clone() if isinstance(x, Tensor) else x for x in fed]
    return fed, tree.tensors(subject.result(given, model, grad=True))


def cotangent_action(rep: Representation, group: Group, element: Elements, u: Tensor) -> Tensor:
    """rho(g)^-T u: the transpose of rho(g^-1), by autograd, so that it holds for every representation."""
    if isinstance(rep, Invariant):
        return u
    with torch.enable_grad():
        x = torch.zeros_like(u).unsqueeze(0).requires_grad_(True)
        y = rep.act(group.inverse(element), x)
        (found,) = torch.autograd.grad(inner(u.unsqueeze(0), y), x)
    return found[0].detach()


def inner(a: Tensor, b: Tensor) -> Tensor:
    """The real inner product: complex numbers count as pairs of real ones."""
    product = (a.to(b.device).conj() * b).sum()
    return product.real if product.is_complex() else product
