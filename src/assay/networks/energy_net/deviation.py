"""How a nudge moves the units of any network, and what that does to its energy, link by link.

The nudged state of a layer at level l is s + gamma^(L-l) u, with L the deepest level. A link F from parents p to the
layer l adds, to the force on l and on each parent,

    upwards     [ F(s_p + d_p) - F(s_p) ] / gamma^(L-l)                      = integral of  J [gamma^(l-p) u_p]
    downwards   gamma^(l-p) [ J(s_p + d_p)^T (s_l + d_l) - J(s_p)^T s_l ] / gamma^(L-p)

For a linear link both are J and J^T of the u themselves. A curved one is integrated along the deviation by Gauss' rule,
each node one forward-mode derivative of the link upwards, and the curvature of its transpose downwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor
from torch.func import jvp

from assay.networks.energy_net.evaluation import EvaluatedLink, Kept
from assay.networks.energy_net.graph import OrderedUnits, Unit
from assay.networks.energy_net.links import Conditions, Link
from assay.protocols import State
from assay.solving.deviation import Units, relative_change
from assay.solving.responses import Response

Pull = Callable[[Units], dict[int, Tensor]]
"""The force of the loss on the units the output is read from, by unit, at a deviation."""
Nodes = tuple[Sequence[float], Sequence[float]]
AT_THE_START: Nodes = ((0.0,), (1.0,))
"""The derivative at the free state itself: the limit of no nudge."""


@dataclass(eq=False)
class NetDeviationSweep:
    """One sweep from the output down; ``resting`` are the free states, once for each phase, and ``kept`` has the links
    at them."""

    split: OrderedUnits
    gamma: float
    free: State
    resting: State
    kept: Kept
    conditions: Conditions
    responses: Sequence[Response]
    pull: Pull
    nodes: Nodes
    phases: int
    transposes: dict[int, Callable[[Tensor], tuple[Tensor, ...]]] = field(default_factory=dict)

    def __call__(self, units: Units, measure: bool) -> list[float]:
        changes = [0.0] * len(units) if measure else []
        pulled = self.pull(units)
        for index in reversed(range(len(units))):
            force = pulled.get(index)
            for term in self._forces(index, units):
                force = term if force is None else force + term
            new = torch.zeros_like(self.resting[index]) if force is None else self.responses[index](force)
            if measure:
                changes[index] = relative_change(units[index], new)
            units[index] = new
        return changes

    def _forces(self, index: int, units: Units) -> list[Tensor]:
        found = []
        own = self.split.units[index]
        if not own.constant and any(units[p] is not None for p in own.parents):
            found.append(self._upwards(index, own, units))
        for child in self.split.children(index):
            if units[child] is not None:
                found.append(self._downwards(child, index, units))
        return found

    def _upwards(self, index: int, unit: Unit, units: Units) -> Tensor:
        along = self._along(unit, units)
        if unit.link.linear:
            return self._bare(index, unit.link, along)
        below, shift = self._below(unit), self._shift(unit, units)
        return _integral(
            lambda *s: unit.link(s, self.conditions, phases=self.phases), below, shift, along=along, nodes=self.nodes
        )

    def _downwards(self, child: int, index: int, units: Units) -> Tensor:
        unit, moved = self.split.units[child], units[child]
        assert moved is not None
        place = unit.parents.index(index)
        if unit.link.linear:
            if child not in self.transposes:
                self.transposes[child] = self._transpose(child, unit)
            return self.transposes[child](moved)[place]
        scale = self.gamma ** (self.split.levels - unit.level)
        below, shift, along = self._below(unit), self._shift(unit, units), self._along(unit, units)
        total = torch.zeros_like(self.resting[index])
        for node, weight in zip(*self.nodes, strict=True):
            points = tuple(s + node * d for s, d in zip(below, shift, strict=True))
            above = self.resting[child] + node * scale * moved
            bent = unit.link.curvature(points, along, above, self.conditions, phases=self.phases)[place]
            straight = unit.link.transpose(points, moved, self.conditions, phases=self.phases)[place]
            total.add_(bent, alpha=weight).add_(straight, alpha=weight)
        return total

    def _transpose(self, child: int, unit: Unit) -> Callable[[Tensor], tuple[Tensor, ...]]:
        """J^T of a linear link from one graph of it, kept for all sweeps of this batch."""
        if self.phases == 1 and not self.resting[child].is_complex():
            return self._at_rest(child, unit.link).transpose
        with torch.enable_grad():
            leaves = [s.detach().clone().requires_grad_() for s in self._below(unit)]
            out = self._bare(child, unit.link, leaves)

        def transposed(cotangent: Tensor) -> tuple[Tensor, ...]:
            back = torch.autograd.grad(out, leaves, cotangent.conj(), retain_graph=True, allow_unused=True)
            return tuple(torch.zeros_like(s) if g is None else g.conj() for g, s in zip(back, leaves, strict=True))

        return transposed

    def _bare(self, index: int, link: Link, values: Sequence[Tensor]) -> Tensor:
        return link(values, self.conditions, winners=self._at_rest(index, link).winners, bare=True)

    def _at_rest(self, index: int, link: Link) -> EvaluatedLink:
        """A link at the free state, of one phase: the others share it."""
        return self.kept.at(index, link, [self.free[parent] for parent in self.split.units[index].parents])

    def _below(self, unit: Unit) -> tuple[Tensor, ...]:
        return tuple(self.resting[parent] for parent in unit.parents)

    def _shift(self, unit: Unit, units: Units) -> tuple[Tensor, ...]:
        """d of each parent."""
        return tuple(
            self._moved(p, units) * self.gamma ** (self.split.levels - self.split.units[p].level) for p in unit.parents
        )

    def _along(self, unit: Unit, units: Units) -> tuple[Tensor, ...]:
        """d of each parent in units of the layer the link leads to."""
        return tuple(
            self._moved(p, units) * self.gamma ** (unit.level - self.split.units[p].level) for p in unit.parents
        )

    def _moved(self, index: int, units: Units) -> Tensor:
        moved = units[index]
        return torch.zeros_like(self.resting[index]) if moved is None else moved


def change_of_product(
    link: Link, below: State, *, above: Tensor, shift: State, along: State, moved: Tensor, conditions: Conditions,
    nodes: Nodes, linear: Callable[[Sequence[Tensor]], Tensor] | None,
) -> Tensor:
    """The change of <s_l, F(s_p)>, in units of the layer above: differentiable in the link's parameters.

    <u_l, F(s_p + d_p)> + <s_l, F(s_p + d_p) - F(s_p)> in those units. The second is an integral of <J^T s_l, d_p>.
    """
    total = (moved * link([s + d for s, d in zip(below, shift, strict=True)], conditions)).sum()
    if linear is not None:
        return total + (above * linear(along)).sum()
    for node, weight in zip(*nodes, strict=True):
        points = [s + node * d for s, d in zip(below, shift, strict=True)]
        heard = link.transpose(points, above, conditions)
        for h, d in zip(heard, along, strict=True):
            total = total + weight * (h * d).sum()
    return total


def _integral(
    function: Callable[..., Tensor], at: Sequence[Tensor], shift: Sequence[Tensor], *, along: Sequence[Tensor],
    nodes: Nodes,
) -> Tensor:
    """The mean derivative of ``function`` between ``at`` and ``at + shift`` in the direction ``along``."""
    total: Tensor | None = None
    for node, weight in zip(*nodes, strict=True):
        points = tuple(s + node * d for s, d in zip(at, shift, strict=True))
        slope = weight * cast(Tensor, jvp(function, points, tuple(along))[1])
        total = slope if total is None else total + slope
    assert total is not None
    return total
