"""The free and the nudged phase of a convolutional network, written out: no derivative of a sweep, no product twice.

With the nudged state s_l + gamma^(K-l) u_l, one nudged sweep from the top down is that of the layered network,

    e_K = beta (onehot - softmax(W_o (s_K + u_K) + b_o)) W_o + gamma L_K u_{K-1}
    e_l = L_{l+1}^T u_{l+1} + gamma L_l u_{l-1}
    u_l = [ sigma(a_l + gamma^(K-l) e_l) - sigma(a_l) ] / gamma^(K-l)

where L is a convolution with its pooling, under a maximum at the winners of the free state. The drives a and the
winners are by-products of the last free sweep (``Trail``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.networks.energy_conv.links import Links, Pooled, channels_last
from assay.protocols import State
from assay.solving.activations import Activation
from assay.solving.deviation import Units, relative_change
from assay.solving.responses import response


@dataclass(frozen=True)
class Trail:
    """What the last free sweep came across: the whole drive of every layer, and the winners of every link."""

    drives: tuple[Tensor, ...]
    winners: tuple[Tensor | None, ...]


class FreeSweep:
    """One sweep up; the winners of a link are those of the last time its drive was made, hence of the maps below it."""

    def __init__(self, links: Links, unit: Activation, gamma: float, first: Pooled) -> None:
        self.links, self.unit, self.gamma, self.first = links, unit, gamma, first
        self.winners: list[Tensor | None] = [first.winners]
        self.drives = [first.drive]

    def start(self) -> State:
        """A pass up without feedback."""
        state = [self.unit.function(self.first.drive)]
        for layer in range(1, len(self.links.kernels)):
            pooled = self.links.pooled(layer, state[-1])
            self.winners.append(pooled.winners)
            self.drives.append(pooled.drive)
            state.append(self.unit.function(pooled.drive))
        return tuple(state)

    def __call__(self, state: State) -> State:
        new = list(state)
        for layer in range(len(new)):
            pooled = self.first if layer == 0 else self.links.pooled(layer, new[layer - 1])
            drive, self.winners[layer] = pooled.drive, pooled.winners
            if layer + 1 < len(new):
                heard = self.links.feedback(layer + 1, new[layer + 1], self.winners[layer + 1])
                drive = torch.add(drive, heard, alpha=self.gamma)
            self.drives[layer] = drive
            new[layer] = self.unit.function(drive)
        return tuple(new)

    def trail(self) -> Trail:
        """What the last sweep left behind."""
        return Trail(tuple(self.drives), tuple(self.winners))


def trail_at(links: Links, gamma: float, first: Pooled, state: State) -> Trail:
    """The drives and winners at a state, wherever it comes from."""
    received = [first, *(links.pooled(layer, below) for layer, below in enumerate(state[:-1], start=1))]
    drives = [pooled.drive for pooled in received]
    for layer, above in enumerate(state[1:], start=1):
        drives[layer - 1] = torch.add(drives[layer - 1], links.feedback(layer, above, received[layer].winners),
                                      alpha=gamma)
    return Trail(tuple(drives), tuple(pooled.winners for pooled in received))


class NudgedSweep:
    """One sweep down of the deviations, with everything that stays the same computed beforehand."""

    def __init__(
        self, links: Links, unit: Activation, gamma: float, *, free: State, trail: Trail, readout: Tensor,
        logits: Tensor, wanted: Tensor, beta: Tensor,
    ) -> None:
        self.links, self.gamma, self.trail, self.readout = links, gamma, trail, readout
        self.wanted, self.beta = wanted, beta.unsqueeze(1)
        phases, top = len(beta) // len(free[0]), len(free) - 1
        self.logits = logits if phases == 1 else logits.repeat(phases, 1)
        self.shapes = [(len(beta), *layer.shape[1:]) for layer in free]
        strongest = float(beta.abs().max())
        self.responses = [
            response(unit, s, scale=gamma ** (top - layer), phases=phases, strongest=strongest, rows=0,
                     excess=None if unit.smooth else a - s)
            for layer, (s, a) in enumerate(zip(free, trail.drives, strict=True))
        ]

    def __call__(self, units: Units, measure: bool) -> list[float]:
        changes = [0.0] * len(units) if measure else []
        for layer in reversed(range(len(units))):
            new = self.responses[layer](self._force(layer, units))
            if measure:
                changes[layer] = relative_change(units[layer], new)
            units[layer] = new
        return changes

    def _force(self, layer: int, units: Units) -> Tensor:
        below = units[layer - 1] if layer > 0 else None
        if layer == len(units) - 1:
            top = units[layer]
            logits = self.logits if top is None else torch.addmm(self.logits, top.flatten(1), self.readout.mT)
            error = self.wanted - self.beta * torch.softmax(logits, -1)
            force = channels_last((error @ self.readout).view(self.shapes[layer]))
        else:
            above = units[layer + 1]
            assert above is not None
            force = self.links.feedback(layer + 1, above, self.trail.winners[layer + 1])
        if below is None:
            return force
        return force.add_(self.links.bare(layer, below, self.trail.winners[layer]), alpha=self.gamma)


def deviation_gradient(
    links: Links, gamma: float, images: Tensor, free: State, *, deviation: State, winners: Sequence[Tensor | None],
    factors: Sequence[float],
) -> list[tuple[Tensor, Tensor]]:
    """(weight, bias) of every layer: the sum over phases of -``factors`` times the change of dE/dtheta over gamma^K."""
    found, top, phases = [], len(free) - 1, len(factors)
    below_sum: Tensor | None = None
    for layer, units in enumerate(deviation):
        weighted = _weighted(units, factors)
        total = weighted if phases == 1 else torch.unflatten(weighted, 0, (phases, -1)).sum(0)
        if layer == 0:
            weight = links.slope(0, total, images, winners[0])
        else:
            # u_l (s_{l-1} + d_{l-1}) over all phases at once, then the part in which the maps below move alone.
            resting = free[layer - 1] if phases == 1 else torch.cat([free[layer - 1]] * phases)
            moved = torch.add(resting, deviation[layer - 1], alpha=gamma ** (top - layer + 1))
            assert below_sum is not None
            weight = links.slope(layer, weighted, moved, winners[layer])
            weight = weight + gamma * links.slope(layer, free[layer], below_sum, winners[layer])
        below_sum = total
        found.append((weight, total.sum((0, 2, 3))))
    return found


def _weighted(units: Tensor, factors: Sequence[float]) -> Tensor:
    """Every phase times its factor."""
    if len(factors) == 1:
        return units * factors[0]
    scales = torch.tensor(factors, dtype=units.dtype, device=units.device).view(-1, 1, 1, 1, 1)
    return (torch.unflatten(units, 0, (len(factors), -1)) * scales).flatten(0, 1)
