"""The few directions in which trained weights are strong, followed from batch to batch.

A trained weight is a bulk of the size it was drawn with and some ten outliers, about one for each class, that grow.
What feeds back is gamma sigma^2, so it is the outliers alone that make sweeps slow. ``Outliers`` holds the leading
singular triples of the weights between layers, W_l ~ U_l sigma_l V_l^T, and follows them by half a step of block power
iteration a batch, for one weight after the other: a product of that weight with RANK columns. Solvers that use them
have the same fixed point whatever these directions are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.seeding import torch_generator

RANK = 12
"""Directions kept of every weight."""
FIRST_STEPS = 8
"""Whole steps of the iteration that new weights are given; a bulk has no leading directions worth waiting for."""
EVERY = 4
"""A weight is given half a step every so many batches; longer chains, one weight a batch, wait for their turn."""


class Outliers:
    """The leading singular triples of the weights of a chain of layers; directions are rows, (k, width)."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.left: list[Tensor] = []
        self.sizes: list[Tensor] = []
        self.right: list[Tensor] = []
        for weight in weights:
            count, generator = min(RANK, *weight.shape), torch_generator(0, "outliers")
            random = torch.randn(weight.shape[1], count, generator=generator, dtype=torch.float64).to(weight)
            self.right.append(torch.linalg.qr(random)[0].mT.contiguous())
            self.left.append(weight.new_zeros(count, weight.shape[0]))
            self.sizes.append(weight.new_zeros(count))
        self.overlaps = [right @ left.mT for left, right in zip(self.left, self.right[1:], strict=False)]
        """V_{l+1}^T U_l: how what one weight writes is read by the next."""
        self._turn = self._batches = 0
        for _ in range(2 * FIRST_STEPS * len(weights)):
            self.follow(weights)

    def fit(self, weights: Sequence[Tensor]) -> bool:
        """Whether these are directions for weights of these shapes, number format and place."""
        return [((left.shape[1], right.shape[1]), left.dtype, left.device)
                for left, right in zip(self.left, self.right, strict=True)] == [
                    (tuple(weight.shape), weight.dtype, weight.device) for weight in weights]

    def next_batch(self, weights: Sequence[Tensor]) -> None:
        """Half a step for one weight, or none: a chain of few weights would follow each more often than it moves."""
        self._batches += len(weights)
        if self._batches >= EVERY:
            self._batches = 0
            self.follow(weights)

    def follow(self, weights: Sequence[Tensor]) -> None:
        """Half a step for one weight, each in its turn; then W V = U sigma or W^T U = V sigma, in turn, to rounding."""
        halves, number = divmod(self._turn, len(weights))
        self._turn += 1
        weight, from_right = weights[number], halves % 2 == 0
        held, matrix = (self.right[number], weight.mT) if from_right else (self.left[number], weight)
        image = held @ matrix
        squares, turn = torch.linalg.eigh(image @ image.mT)
        # A direction that the weight annuls keeps an image of zero: it takes no part in anything.
        self.sizes[number] = sizes = squares.clamp_min(torch.finfo(weight.dtype).tiny).sqrt()
        image, held = (turn / sizes).mT @ image, turn.mT @ held
        self.left[number], self.right[number] = (image, held) if from_right else (held, image)
        for link in (number - 1, number):
            if 0 <= link < len(weights) - 1:
                self.overlaps[link] = self.right[link + 1] @ self.left[link].mT


def followed(outliers: Outliers | None, weights: Sequence[Tensor]) -> Outliers:
    """The outliers of ``weights`` for the next batch: those known, moved on, or new ones if none are known that fit."""
    if outliers is None or not outliers.fit(weights):
        return Outliers(weights)
    outliers.next_batch(weights)
    return outliers
