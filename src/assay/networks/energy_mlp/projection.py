"""The best multiple of every layer's deviation: what a short nudged phase leaves out, as far as it costs no product.

A nudged sweep from zero has not heard the layers below yet, so every deviation is too short: the feedback it lacks is
a positive operator. With the deviation of row r of layer l replaced by alpha_l u_l, the energy of the nudged network
is, to second order, a quadratic of the alphas of this row. It is least where

    d_l alpha_l = c_l alpha_{l+1} + gamma c_{l-1} alpha_{l-1},        alpha_{K+1} = 1,
    c_l = <u_l, force from above>,   d_l = <u_l, whole force that made u_l>

(a Galerkin projection onto the layers). Because <u_l, W_l u_{l-1}> = <W_l^T u_l, u_{l-1}>, both come from the forces of
the sweep just made: dot products of rows, no product with a weight. At rest every alpha is 1, for any beta, so the
fixed point is untouched; before it the energy of the nudged network can only fall, up to the third order in beta.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from assay.protocols import State

STEEPEST = 0.1
"""A layer whose self-consistent force exceeds its own by more than the inverse of this is not near a minimum there: its
quadratic says nothing, and the row is left as the sweep made it."""


@final
class Projection:
    """The row products of the latest sweep, and the multiples that follow from them."""

    def __init__(self, gamma: float, depth: int) -> None:
        self.gamma = gamma
        self.from_above: list[Tensor | None] = [None] * depth
        self.whole: list[Tensor | None] = [None] * depth

    def note(self, layer: int, units: Tensor, *, above: Tensor, force: Tensor) -> None:
        """Keep c and d of a layer that has just been set to ``units``."""
        self.from_above[layer] = (units * above).sum(-1)
        same = force is above
        self.whole[layer] = self.from_above[layer] if same else (units * force).sum(-1)

    def multiples(self) -> list[Tensor]:
        """alpha of every layer, by row."""
        shares: list[Tensor] = []
        previous: Tensor | None = None
        for c, d in zip(self.from_above, self.whole, strict=True):
            assert c is not None and d is not None
            left = d if previous is None else d - self.gamma * previous * shares[-1]
            shares.append(torch.where(left > STEEPEST * d, c / left, 1.0))
            previous = c
        found = [shares[-1]]
        for share in reversed(shares[:-1]):
            found.append(share * found[-1])
        return found[::-1]

    def scale(self, units: State) -> None:
        """Every layer times its multiples, in place."""
        for layer, multiple in zip(units, self.multiples(), strict=True):
            layer.mul_(multiple.unsqueeze(-1))
