"""The third gradient test: autograd against finite differences in float64.

The only one that catches a backward pass that is wrong but equivariant, a detached branch, and forces that are not
minus the gradient of the energy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.audits.symmetry.measure.gradients import forward_with_grad
from assay.audits.symmetry.subject import Subject
from assay.probe.subject import Leaves
from assay.probe.values import exact
from assay.seeding import torch_generator

DIRECTIONS = 5
SAFETY = 10.0
"""A mismatch counts if it exceeds ten times the error that two step sizes show of the difference quotient."""


@dataclass(frozen=True)
class DifferenceTest:
    """Directional derivatives of one function by autograd and by differences, over several random directions."""

    what: str
    mismatches: int
    directions: int
    relative: float
    names: tuple[str, ...] = ()
    note: str = ""
    of_autograd: bool = True
    """False for a claimed relation between outputs (forces and energy)."""

    @property
    def broken(self) -> bool:
        """More than half of the directions disagree; a kink of a ReLU spoils one now and then."""
        return 2 * self.mismatches > self.directions


def input_differences(subject: Subject, leaves: Leaves) -> DifferenceTest | str:
    """<J(x)^T u, v> by autograd against (<u, f(x + hv)> - <u, f(x - hv)>) / 2h, for random u and v."""
    if subject.high is None:
        return "needs float64"
    random = torch_generator(subject.seed, "differences")
    fed, outputs = forward_with_grad(subject, subject.high, leaves, torch.float64)
    cotangents = [torch.randn(y.shape, generator=random, dtype=torch.float64) for y in outputs]
    used = [index for index in subject.tested if outputs[index].requires_grad]
    sources = [x for x in fed if isinstance(x, Tensor) and x.requires_grad]
    if not used or not sources:
        return "no declared output is differentiable by an input"
    total = torch.stack([(cotangents[i] * outputs[i].cpu()).sum() for i in used]).sum()
    gradients = [None if g is None else exact(g) for g in torch.autograd.grad(total, sources, allow_unused=True)]

    def value(moved: Leaves) -> float:
        found = subject.values(moved, "high")
        return sum(float((cotangents[i] * found[i]).sum()) for i in used)

    results = []
    for _ in range(DIRECTIONS):
        direction = [
            torch.randn(x.shape, generator=random, dtype=torch.float64) if _is_float(x) else None for x in leaves
        ]
        along = iter(gradients)
        analytic = sum(float((g * d).sum()) for d in direction if d is not None for g in [next(along)] if g is not None)
        results.append(quotient_disagrees(analytic, _along(value, leaves, direction), _scale(leaves)))
    return _summary("inputs", results)


def parameter_differences(subject: Subject, leaves: Leaves) -> DifferenceTest | str:
    """The same by parameters; when it fails, the parameters at fault are named one by one."""
    if subject.high is None:
        return "needs float64"
    model = subject.high
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}
    random = torch_generator(subject.seed, "parameter differences")
    _, outputs = forward_with_grad(subject, model, leaves, torch.float64)
    used = [index for index in subject.tested if outputs[index].requires_grad]
    if not used or not weights:
        return "no declared output is differentiable by a parameter"
    cotangents = {i: torch.randn(outputs[i].shape, generator=random, dtype=torch.float64) for i in used}
    total = torch.stack([(cotangents[i] * outputs[i].cpu()).sum() for i in used]).sum()
    found = torch.autograd.grad(total, list(weights.values()), allow_unused=True)
    gradients = {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(weights.items(), found, strict=True)}

    def value_at(names: list[str], direction: dict[str, Tensor]) -> Callable[[float], float]:
        def value(step: float) -> float:
            kept = {name: weights[name].detach().clone() for name in names}
            with torch.no_grad():
                for name in names:
                    weights[name].add_(step * direction[name])
            try:
                y = subject.values(leaves, "high")
                return sum(float((cotangents[i] * y[i]).sum()) for i in used)
            finally:
                with torch.no_grad():
                    for name in names:
                        weights[name].copy_(kept[name])

        return value

    def compare(names: list[str]) -> tuple[bool, float]:
        direction = {
            n: torch.randn(weights[n].shape, generator=random, dtype=torch.float64).to(weights[n]) for n in names
        }
        analytic = sum(float((gradients[n] * direction[n]).sum()) for n in names)
        size = sum(float(weights[n].detach().abs().mean()) for n in names) / len(names)
        return quotient_disagrees(analytic, value_at(names, direction), size or 1.0)

    results = [compare(list(weights)) for _ in range(DIRECTIONS)]
    summary = _summary("parameters", results)
    if not summary.broken:
        return summary
    guilty = tuple(name for name in weights if sum(compare([name])[0] for _ in range(3)) >= 2)
    return DifferenceTest("parameters", summary.mismatches, summary.directions, summary.relative, guilty)


def force_differences(subject: Subject, leaves: Leaves, names: tuple[str, str, str]) -> DifferenceTest | str:
    """<-F, v> against the difference quotient of the energy along random displacements v of the positions."""
    forces, energy, position = names
    if subject.high is None:
        return "needs float64"
    place = subject.input_names.index(position)
    here = subject.values(leaves, "high")
    force, total = here[subject.output_names.index(forces)], subject.output_names.index(energy)
    x = leaves[place]
    if force.shape != x.shape:
        return f"{forces} has shape {tuple(force.shape)}, {position} {tuple(x.shape)}"
    random = torch_generator(subject.seed, "forces")
    results, signs = [], []
    for _ in range(DIRECTIONS):
        direction: list[Tensor | None] = [None] * len(leaves)
        step = direction[place] = torch.randn(x.shape, generator=random, dtype=torch.float64)
        analytic = -float((force * step).sum())
        along = _along(lambda moved: float(subject.values(moved, "high")[total].sum()), leaves, direction)
        results.append(quotient_disagrees(analytic, along, _scale([x])))
        signs.append(quotient_disagrees(-analytic, along, _scale([x]))[0])
    summary = _summary(f"{forces} = -d {energy} / d {position}", results)
    note = "they are plus the gradient: the sign is wrong" if summary.broken and sum(signs) * 2 < DIRECTIONS else ""
    return DifferenceTest(summary.what, summary.mismatches, summary.directions, summary.relative, (), note, False)


def quotient_disagrees(analytic: float, value: Callable[[float], float], scale: float) -> tuple[bool, float]:
    """Whether autograd and the difference quotient disagree by more than the quotient's own error, and by how much.

    The step balances truncation h^2 against rounding eps / h: h = eps^(1/3) times the scale of the argument.
    """
    eps = torch.finfo(torch.float64).eps
    h = eps ** (1 / 3) * scale
    wide, narrow = ((value(s) - value(-s)) / (2 * s) for s in (2 * h, h))
    own_error = abs(wide - narrow) + eps * abs(value(0.0)) / h
    if not math.isfinite(analytic) or not math.isfinite(own_error):
        return True, math.inf
    size = max(abs(analytic), abs(narrow), 1e-300)
    gap = abs(analytic - narrow)
    return gap > SAFETY * own_error and gap > eps ** (1 / 3) * size, gap / size


def _summary(what: str, results: list[tuple[bool, float]]) -> DifferenceTest:
    middle = sorted(gap for _, gap in results)[len(results) // 2]
    return DifferenceTest(what, sum(bad for bad, _ in results), len(results), middle)


def _along(
    value: Callable[[Leaves], float], leaves: Leaves, direction: list[Tensor | None]
) -> Callable[[float], float]:
    return lambda step: value(_stepped(leaves, direction, step))


def _stepped(leaves: Leaves, direction: list[Tensor | None], step: float) -> Leaves:
    return [x if d is None else exact(x) + step * d for x, d in zip(leaves, direction, strict=True)]


def _scale(leaves: Leaves) -> float:
    sizes = [float(exact(x).abs().mean()) for x in leaves if _is_float(x)]
    return max([*sizes, 1e-12])


def _is_float(x: object) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()
