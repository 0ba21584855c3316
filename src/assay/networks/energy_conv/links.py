"""The links of a convolutional energy network: convolution and pooling, their transpose, their slope in the weights.

Under a maximum a link is linear at its winners. An average of a convolution is itself a convolution, with stride 2 and
a kernel one wider. Rows may be several phases of the winners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Pooled:
    """What a layer receives from below: its drive and, under a maximum, the entries that won."""

    drive: Tensor
    winners: Tensor | None


@dataclass(frozen=True)
class Links:
    """The kernels of every layer as used for a batch, and their biases; ``pooling`` is by 2."""

    kernels: Sequence[Tensor]
    biases: Sequence[Tensor]
    padding: int
    by_maximum: Sequence[bool]

    def pooled(self, layer: int, below: Tensor) -> Pooled:
        """P(w * s + b)."""
        kernel, bias = self.kernels[layer].to(below.dtype), self.biases[layer].to(below.dtype)
        if not self.by_maximum[layer]:
            return Pooled(functional.conv2d(below, kernel, bias, stride=2, padding=self.padding), None)
        maps = functional.conv2d(below, kernel, bias, padding=self.padding)
        drive, winners = functional.max_pool2d(maps, 2, return_indices=True)
        return Pooled(drive, winners)

    def bare(self, layer: int, below: Tensor, winners: Tensor | None) -> Tensor:
        """P(w * d) at fixed winners: what a deviation of the maps below does to the drive."""
        kernel = self.kernels[layer].to(below.dtype)
        if winners is None:
            return functional.conv2d(below, kernel, stride=2, padding=self.padding)
        maps, places = functional.conv2d(below, kernel, padding=self.padding), for_phases(winners, below)
        return maps.flatten(2).gather(2, places.flatten(2)).view(places.shape)

    def feedback(self, layer: int, above: Tensor, winners: Tensor | None) -> Tensor:
        """w^T P^T s: what the maps below ``layer`` receive from it."""
        kernel = self.kernels[layer].to(above.dtype)
        if winners is None:
            return functional.conv_transpose2d(above, kernel, stride=2, padding=self.padding)
        return functional.conv_transpose2d(spread(above, winners), kernel, padding=self.padding)

    def slope(self, layer: int, above: Tensor, below: Tensor, winners: Tensor | None) -> Tensor:
        """The derivative of <above, P(w * below)> with respect to the weights of a layer."""
        if winners is not None:
            return self._of_kernel(layer, spread(above, winners), below, stride=1)
        wide = self._of_kernel(layer, above, below, stride=2)
        # The transpose of taking the mean of four shifts: take it again and keep the middle.
        return functional.avg_pool2d(functional.pad(wide, (1, 1, 1, 1)), 2, stride=1)[..., 1:-1, 1:-1]

    def _of_kernel(self, layer: int, maps: Tensor, below: Tensor, *, stride: int) -> Tensor:
        _, found, _ = torch.ops.aten.convolution_backward(
            maps, below, self.kernels[layer], None, [stride] * 2, [self.padding] * 2, [1, 1], False, [0, 0], 1,
            [False, True, False],
        )
        return cast(Tensor, found)


def spread(above: Tensor, winners: Tensor) -> Tensor:
    """P^T s: every entry back at the place that won."""
    return functional.max_unpool2d(above, for_phases(winners, above), [2, 2])


def for_phases(winners: Tensor, maps: Tensor) -> Tensor:
    """The winners of the rows, once for each phase of them."""
    return winners if len(winners) == len(maps) else torch.cat([winners] * (len(maps) // len(winners)))


def channels_last(maps: Tensor) -> Tensor:
    """The same numbers with the channels innermost in memory: pooling and transposed convolutions are faster so.

    Not ``contiguous``: with one channel it leaves the strides of the other order, and torch takes its slow road.
    """
    return maps.to(memory_format=torch.channels_last)
