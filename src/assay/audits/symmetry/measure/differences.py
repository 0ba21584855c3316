"""The third gradient test: autograd against finite differences in float64.

The only one that catches a backward pass that is wrong but equivariant, a detached branch, and forces that are not
minus the gradient of the energy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.audits.symmetry.measure.gradients import forward_with_grad, inner
from assay.audits.symmetry.measure.quotients import Quotient, quotient
from assay.audits.symmetry.measure.tolerance import Label
from assay.audits.symmetry.representations.actions import Permuted
from assay.audits.symmetry.representations.base import Representation
from assay.audits.symmetry.spec import atoms
from assay.audits.symmetry.subject import Subject
from assay.probe.copies import refreshed
from assay.probe.noise import normal
from assay.probe.subject import Leaves
from assay.probe.values import exact, exact_spread, is_continuous
from assay.seeding import torch_generator

DIRECTIONS = 5
"""At most: as soon as more than half of them agree, or disagree, the others would change nothing."""
RESOLUTION = torch.finfo(torch.float64).eps ** (1 / 3)
"""What a central difference in float64 resolves at its best step: truncation and rounding both cost about this."""
ASIDE = 1e-3
"""How far a second point lies from an input at which the function has a kink, in spreads of the input."""


@dataclass(frozen=True)
class DifferenceTest:
    """Directional derivatives of one function by autograd and by differences, over several random directions."""

    what: str
    mismatches: int
    directions: int
    """Directions in which there is a derivative to compare with."""
    relative: float
    names: tuple[str, ...] = ()
    note: str = ""
    of_autograd: bool = True
    """False for a claimed relation between outputs (forces and energy)."""
    budget: float | None = None

    @property
    def wrong(self) -> bool:
        """More than half of the directions disagree."""
        return 2 * self.mismatches > self.directions

    @property
    def broken(self) -> bool:
        """It is wrong by more than the budget allows."""
        return self.wrong and not (self.budget is not None and self.relative <= self.budget)

    @property
    def label(self) -> Label:
        """EXACT only where differences can see that well; else their own error hides what is left."""
        if self.wrong:
            return "BROKEN" if self.broken else "APPROXIMATE"
        return "EXACT" if self.relative <= RESOLUTION else "FLOAT-LIMITED"

    @property
    def reason(self) -> str:
        """In how many directions the two agree, and how far apart they are in the middle one."""
        who = f" by {', '.join(self.names[:3])}" if self.names else ""
        pair = f"autograd{who} and finite differences" if self.of_autograd else "the two sides"
        note = f" ({self.note})" if self.note else ""
        if self.wrong:
            return f"{pair} differ by {self.relative:.2g} in {self.mismatches} of {self.directions} directions{note}"
        agree = f"{pair} agree in {self.directions - self.mismatches} of {self.directions} directions"
        if self.label == "EXACT":
            return f"{agree}, to {self.relative:.2g}{note}"
        return f"{agree}, within the error of the differences themselves, {self.relative:.2g} of the slope{note}"


Test = Callable[[Leaves], DifferenceTest | str]


def at_a_smooth_point(test: Test, subject: Subject, leaves: Leaves) -> DifferenceTest | str:
    """The test at the inputs; where they sit on a kink (a ReLU at exactly 0), at a point beside them."""
    found = test(leaves)
    if isinstance(found, str) or found.directions:
        return found
    random = torch_generator(subject.seed, "aside")
    beside = [exact(x) + ASIDE * exact_spread(x) * normal(exact(x), random) if is_continuous(x) else x for x in leaves]
    found = test(beside)
    if isinstance(found, str) or found.directions:
        return found
    return "the function has kinks at the inputs and beside them: no derivative to compare with"


def input_differences(subject: Subject, leaves: Leaves) -> DifferenceTest | str:
    """<J(x)^T u, v> by autograd against (<u, f(x + hv)> - <u, f(x - hv)>) / 2h, for random u and v."""
    if subject.high is None:
        return "needs float64"
    random = torch_generator(subject.seed, "differences")
    fed, outputs = forward_with_grad(subject, subject.high, leaves, torch.float64)
    cotangents = [normal(exact(y), random) for y in outputs]
    used = [index for index in subject.tested if outputs[index].requires_grad]
    sources = [x for x in fed if isinstance(x, Tensor) and x.requires_grad]
    if not used or not sources:
        return "no declared output is differentiable by an input"
    total = torch.stack([inner(cotangents[i], outputs[i].cpu()) for i in used]).sum()
    # A model may keep a part of its graph (weights expanded once, as escnn does): it must not be freed.
    slopes = torch.autograd.grad(total, sources, allow_unused=True, retain_graph=True)
    gradients = [None if g is None else exact(g) for g in slopes]

    def value(moved: Leaves) -> float:
        found = subject.values(moved, "high")
        return sum(float(inner(cotangents[i], found[i])) for i in used)

    def compare() -> Quotient:
        direction = [normal(exact(x), random) if is_continuous(x) else None for x in leaves]
        # Absent pairs stay absent: of a matrix that a model makes sparse autograd gives the slopes of the others.
        pairs_of = zip(direction, leaves, subject.inputs, strict=True)
        direction = [d * (x != 0) if d is not None and _of_pairs(rep) else d for d, x, rep in pairs_of]
        along = iter(gradients)
        pairs = [(g, d) for d in direction if d is not None for g in [next(along)] if g is not None]
        analytic = sum(float(inner(g, d)) for g, d in pairs)
        return quotient(analytic, _along(value, leaves, direction), _scale(leaves))

    return _summary("inputs", _until_decided(compare))


def _of_pairs(rep: Representation) -> bool:
    return any(isinstance(one, Permuted) and len(one.where) > 1 for one in atoms(rep))


def parameter_differences(subject: Subject, leaves: Leaves) -> DifferenceTest | str:
    """The same by parameters; when it fails, the parameters at fault are named one by one."""
    if subject.high is None:
        return "needs float64"
    model = subject.high
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad and is_continuous(p)}
    random = torch_generator(subject.seed, "parameter differences")
    _, outputs = forward_with_grad(subject, model, leaves, torch.float64)
    used = [index for index in subject.tested if outputs[index].requires_grad]
    if not used or not weights:
        return "no declared output is differentiable by a parameter"
    cotangents = {i: normal(exact(outputs[i]), random) for i in used}
    total = torch.stack([inner(cotangents[i], outputs[i].cpu()) for i in used]).sum()
    found = torch.autograd.grad(total, list(weights.values()), allow_unused=True, retain_graph=True)
    gradients = {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(weights.items(), found, strict=True)}

    def value_at(names: list[str], direction: dict[str, Tensor]) -> Callable[[float], float]:
        kept = {name: weights[name].detach().clone() for name in names}

        def value(step: float) -> float:
            with torch.no_grad():
                for name in names:
                    weights[name].add_(direction[name], alpha=step)
            refreshed(model)
            try:
                y = subject.values(leaves, "high")
                return sum(float(inner(cotangents[i], y[i])) for i in used)
            finally:
                with torch.no_grad():
                    for name in names:
                        weights[name].copy_(kept[name])
                refreshed(model)

        return value

    def compare(names: list[str]) -> Quotient:
        direction = {n: normal(weights[n], random) for n in names}
        analytic = sum(float(inner(gradients[n], direction[n])) for n in names)
        size = sum(float(weights[n].detach().abs().mean()) for n in names) / len(names)
        return quotient(analytic, value_at(names, direction), size or 1.0)

    summary = _summary("parameters", _until_decided(lambda: compare(list(weights))))
    if not summary.wrong:
        return summary
    guilty = tuple(name for name in weights if sum(compare([name]).differs for _ in range(3)) >= 2)
    return replace(summary, names=guilty)


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
    signs: list[bool] = []

    def compare() -> Quotient:
        direction: list[Tensor | None] = [None] * len(leaves)
        step = direction[place] = normal(exact(x), random)
        analytic = -float((force * step).sum())
        along = _along(lambda moved: float(subject.values(moved, "high")[total].sum()), leaves, direction)
        found = quotient(analytic, along, _scale([x]))
        if found.differs:
            signs.append(quotient(-analytic, along, _scale([x])).differs)
        return found

    summary = _summary(f"{forces} = -d {energy} / d {position}", _until_decided(compare))
    note = "they are plus the gradient: the sign is wrong" if summary.wrong and sum(signs) * 2 < len(signs) else ""
    return replace(summary, note=note, of_autograd=False)


def _until_decided(compare: Callable[[], Quotient]) -> list[Quotient]:
    results: list[Quotient] = []
    for _ in range(DIRECTIONS):
        results.append(compare())
        differ = [one.differs for one in results if not one.kinked]
        if 2 * max(sum(differ), len(differ) - sum(differ)) > DIRECTIONS:
            break
    return results


def _summary(what: str, results: list[Quotient]) -> DifferenceTest:
    smooth = [one for one in results if not one.kinked]
    gaps = sorted(one.relative for one in smooth)
    middle = gaps[len(gaps) // 2] if gaps else 0.0
    return DifferenceTest(what, sum(one.differs for one in smooth), len(smooth), middle)


def _along(
    value: Callable[[Leaves], float], leaves: Leaves, direction: list[Tensor | None]
) -> Callable[[float], float]:
    return lambda step: value(_stepped(leaves, direction, step))


def _stepped(leaves: Leaves, direction: list[Tensor | None], step: float) -> Leaves:
    return [x if d is None else exact(x) + step * d for x, d in zip(leaves, direction, strict=True)]


def _scale(leaves: Leaves) -> float:
    sizes = [float(exact(x).abs().mean()) for x in leaves if is_continuous(x)]
    return max([*sizes, 1e-12])
