"""Sweeps that leave the strong directions to a small exact solve.

A plain sweep shrinks an error by about gamma sigma^2 in each singular direction of the weights. Free weights grow a few
outliers (``outliers``) for which that is far from zero, while the bulk stays at gamma or so. Along the outliers

    change of layer l = d_l ( a U_l sigma_l y_l + b V_{l+1} sigma_{l+1} z_{l+1} ),   y_l = V_l^T change of layer l-1
    (a, b) = (1, gamma) of states, (gamma, 1) of deviations                          z_l = U_l^T change of layer l

closes in some ten numbers y and z a link. d_l is the mean slope of the layer's units in a row: the directions are
spread over all units, so a mean is what they see. Between two layers it is diagonal, a loop of strength
gamma d_{l-1} d_l sigma^2 for each direction, and solved by a division. Two uses:

* ``Deflated``: a free sweep used the z of the state before it; what they have changed since goes round the loops, down
  the chain and up again, and is added to every layer.
* ``Foresight``: a nudged sweep from the top down does not know the layers below yet. The loop tells what they will
  answer along the outliers, so that the products with the whole weights that follow are made of better numbers.

Both add a multiple of what a plain sweep would change, so the fixed point is that of the sweeps, whatever the outliers
and slopes are; neither makes a product of a batch with a weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from assay.networks.energy_mlp.layers import Layers
from assay.networks.energy_mlp.outliers import Outliers
from assay.protocols import State
from assay.solving.deviation import largest

if TYPE_CHECKING:
    from assay.networks.energy_mlp.kernel import Sweep

STRONGEST = 0.5
"""A loop is taken to be at most this strong, so that what is added is at most the change itself once more: going on by
less than twice a step cannot diverge, even where the loop is in truth weaker than its slopes say."""


@final
class Foresight:
    """What the layers below will answer along the outliers while a nudged sweep goes down."""

    def __init__(self, layers: Layers, slopes: Sequence[Tensor], phases: int) -> None:
        assert layers.outliers is not None
        self.outliers, self.slopes, self.phases = layers.outliers, slopes, phases
        rows = [slope.mean(1, keepdim=True) for slope in slopes]
        if phases > 1:
            rows = [torch.cat([row] * phases) for row in rows]
        self.answers = [_gain(layers.outliers, layers.gamma, rows, link) * (layers.gamma * sizes.square()) * rows[link]
                        for link, sizes in enumerate(layers.outliers.sizes)]
        """Of every link, (rows, k): from z as the force above makes it to the force, along U, that comes back."""

    def add(self, layer: int, force: Tensor, change: Tensor | None) -> Tensor:
        """``force`` of a layer above the first with the change to come of the layer below added, fresh storage.

        ``change`` is how far the force takes the layer from the sweep before, whose answer it contains already; before
        the first sweep, where all is change, the slope tells it. Only a change that is zero at rest leaves it there.
        """
        if change is None:
            slope = self.slopes[layer]
            change = force * slope if self.phases == 1 else (
                torch.unflatten(force, 0, (self.phases, -1)) * slope).flatten(0, 1)
        left = self.outliers.left[layer - 1]
        return torch.addmm(force, (left @ change.mT).mT * self.answers[layer - 1], left)


class Deflated:
    """The free sweeps of ``Sweep``, each followed by the change that the outliers carry through the chain."""

    def __init__(self, sweep: Sweep) -> None:
        assert sweep.layers.outliers is not None
        self.sweep, self.outliers = sweep, sweep.layers.outliers

    def __call__(self, state: State) -> State:
        self.carry(state, self._swept(state))
        return state

    def measured(self, state: State) -> list[float]:
        """One sweep in place, and the largest change of each layer that the plain sweep made."""
        changes = self._swept(state)
        sizes = [largest(change) for change in changes]
        self.carry(state, changes)
        return sizes

    def carry(self, state: State, changes: Sequence[Tensor]) -> None:
        """Add to every layer what follows from the ``changes`` that the sweep made."""
        layers, known = self.sweep.layers, self.outliers
        slopes = [_slope(layers, layer, units) for layer, units in enumerate(state)]
        rows = [slope.mean(1, keepdim=True) for slope in slopes]
        news = [(left @ change.mT).mT for left, change in zip(known.left, changes[1:], strict=True)]
        settled = _settled(known, layers.gamma, rows, news)
        for layer, units in enumerate(state):
            force = None
            if layer > 0:
                force = (settled[layer - 1][0] * known.sizes[layer - 1]) @ known.left[layer - 1]
            if layer < layers.depth - 1:
                z = settled[layer][1] * (known.sizes[layer] * layers.gamma)
                force = z @ known.right[layer] if force is None else torch.addmm(force, z, known.right[layer])
            assert force is not None
            units.addcmul_(slopes[layer], force)
            if not layers.is_output(layer) and (bounds := layers.activation.reach) is not None:
                units.clamp_(*bounds)

    def _swept(self, state: State) -> list[Tensor]:
        """How far one plain sweep in place moves every layer."""
        changes = []
        for layer, units in enumerate(state):
            before = units.clone()
            self.sweep.update(layer, state)
            changes.append(torch.sub(units, before, out=before))
        return changes


def _settled(
    known: Outliers, gamma: float, rows: Sequence[Tensor], news: Sequence[Tensor]
) -> list[tuple[Tensor, Tensor]]:
    """(y, z) of every link once the ``news`` of the z have gone down the chain and up again, themselves included."""
    gains = [_gain(known, gamma, rows, link) for link in range(len(news))]
    zs = [gains[-1] * news[-1]]
    for link, overlap in reversed(list(enumerate(known.overlaps))):
        heard = zs[0] @ (overlap * (gamma * known.sizes[link + 1]).unsqueeze(1))
        zs.insert(0, gains[link] * torch.addcmul(news[link], heard, rows[link + 1]))
    ys = [z * sizes * (gamma * row) for z, sizes, row in zip(zs, known.sizes, rows, strict=False)]
    for link, overlap in enumerate(known.overlaps):
        extra = ys[link] @ (overlap * known.sizes[link]).mT * (rows[link + 1] * gains[link + 1])
        ys[link + 1] += extra
        zs[link + 1] = torch.addcmul(zs[link + 1], extra * known.sizes[link + 1], rows[link + 2])
    return list(zip(ys, zs, strict=True))


def _gain(known: Outliers, gamma: float, rows: Sequence[Tensor], link: int) -> Tensor:
    """1 / (1 - loop) of a link alone, for each row and direction; a loop is limited to STRONGEST."""
    loop = (gamma * known.sizes[link].square()) * (rows[link] * rows[link + 1])
    return loop.clamp_max_(STRONGEST).neg_().add_(1).reciprocal_()


def _slope(layers: Layers, layer: int, units: Tensor) -> Tensor:
    """ds/da of a layer."""
    return torch.ones_like(units) if layers.is_output(layer) else layers.activation.slope(units)
