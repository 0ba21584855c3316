"""Links evaluated once: the drive a link makes at some states, and what goes back through it, from one small graph.

While a batch relaxes, a link is asked for its drive, its transpose and its winners at the same states several times.
The latest evaluation of every link is kept, with the graph of this link alone, and answers until the states below are
others. States are new tensors after every sweep, so identity tells whether they are the same; that nothing has been
written into them or into the weights since, torch's version counters do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, final

import torch
from torch import Tensor, nn

from assay.networks.energy_net.links import Conditions, Link
from assay.protocols import State


class LinkAnswers(Protocol):
    """What a sweep asks of links, each by its number and at the states below it."""

    def drive(self, number: int, link: Link, below: Sequence[Tensor]) -> Tensor:
        """F(s)."""

    def transpose(self, number: int, link: Link, below: Sequence[Tensor], cotangent: Tensor) -> tuple[Tensor, ...]:
        """J(s)^T v, for each state below."""

    def arrived(self, number: int, units: Tensor, drive: Tensor) -> None:
        """Hear which drive has taken a layer to ``units``."""


@final
@dataclass(frozen=True)
class Composable:
    """Links computed anew and differentiable themselves: for backprop through sweeps and complex states."""

    conditions: Conditions
    phases: int = 1

    def drive(self, number: int, link: Link, below: Sequence[Tensor]) -> Tensor:
        """F(s)."""
        return link(below, self.conditions, phases=self.phases)

    def transpose(self, number: int, link: Link, below: Sequence[Tensor], cotangent: Tensor) -> tuple[Tensor, ...]:
        """J(s)^T v, for each state below."""
        return link.transpose(below, cotangent, self.conditions, phases=self.phases)

    def arrived(self, number: int, units: Tensor, drive: Tensor) -> None:
        """Nothing is kept."""


@final
@dataclass(eq=False)
class EvaluatedLink:
    """A link at the states ``below``, of these ``versions`` and its weights'; the graph ends at copies of them."""

    below: tuple[Tensor, ...]
    versions: list[int]
    leaves: tuple[Tensor, ...]
    out: Tensor
    winners: dict[str, Tensor]

    @property
    def drive(self) -> Tensor:
        """F(s)."""
        return self.out.detach()

    def transpose(self, cotangent: Tensor) -> tuple[Tensor, ...]:
        """J^T v."""
        found = torch.autograd.grad(self.out, self.leaves, cotangent, retain_graph=True, allow_unused=True)
        return tuple(torch.zeros_like(s) if g is None else g for g, s in zip(found, self.below, strict=True))

    def slopes(self, parameters: Sequence[nn.Parameter], cotangent: Tensor) -> tuple[Tensor | None, ...]:
        """The derivative of <v, F(s)> with respect to parameters of the link."""
        return torch.autograd.grad(self.out, parameters, cotangent, retain_graph=True, allow_unused=True)


@final
@dataclass(eq=False)
class Kept:
    """The latest evaluation of every link, and the whole drive that took each layer of units where it is."""

    conditions: Conditions
    phases: int = 1
    evaluations: dict[int, EvaluatedLink] = field(default_factory=dict)
    arrivals: dict[int, tuple[Tensor, int, Tensor]] = field(default_factory=dict)

    def at(
        self, number: int, link: Link, below: Sequence[Tensor], conditions: Conditions | None = None
    ) -> EvaluatedLink:
        """The evaluation of a link at real states ``below``."""
        known, versions = self.evaluations.get(number), [t._version for t in (*below, *link.parameters())]
        if (known is None or known.versions != versions
                or any(a is not b for a, b in zip(known.below, below, strict=True))):
            winners: dict[str, Tensor] = {}
            with torch.enable_grad():
                leaves = tuple(s.detach().requires_grad_() if s.is_floating_point() else s for s in below)
                out = link(leaves, conditions or self.conditions, phases=self.phases,
                           winners=winners if link.linear else None)
            known = self.evaluations[number] = EvaluatedLink(tuple(below), versions, leaves, out, winners)
        return known

    def drive(self, number: int, link: Link, below: Sequence[Tensor]) -> Tensor:
        """F(s)."""
        return self.at(number, link, below).drive

    def transpose(self, number: int, link: Link, below: Sequence[Tensor], cotangent: Tensor) -> tuple[Tensor, ...]:
        """J(s)^T v, for each state below."""
        return self.at(number, link, below).transpose(cotangent)

    def arrived(self, number: int, units: Tensor, drive: Tensor) -> None:
        """Keep the drive that has taken a layer to ``units``."""
        self.arrivals[number] = (units, units._version, drive)

    def drive_to(self, number: int, state: State) -> Tensor | None:
        """The drive that took a layer to where it is in ``state``, if that is where it was taken last."""
        units, version, drive = self.arrivals.get(number, (None, 0, None))
        return drive if units is state[number] and units._version == version else None
