"""The largest singular value of a matrix: a warm-started power iteration, certified by a Cholesky factor.

The power iteration on G = W W^T only ever finds *a* singular value. That no larger one exists is shown by a Cholesky
factorisation of (1 + SLACK) lambda I - G, which succeeds only if that matrix is positive definite. Where it fails, and
in float64, where audits measure, the decomposition itself is taken. From one batch to the next weights move little, so
a few products with G are enough; a full decomposition of a 512 x 784 matrix takes some twenty times as long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.errors import expected

SLACK = 1e-4
"""The certified norm is at most sqrt(1 + SLACK), half of a hundredth of a percent, above the one returned."""
RESIDUAL = 1e-5
"""A direction v with |G v - lambda v| below this share of lambda is taken for a singular vector."""
MOST = 200
PASSES = 2
"""Of the power iteration at each step of an optimiser: once on the leading direction, the norm is exact to 1e-3."""


@dataclass(frozen=True)
class SpectralNorm:
    """The largest singular value with its two vectors, which are also its derivative: d sigma = left . dW right."""

    left: Tensor
    right: Tensor
    certified: bool
    """By a factorisation; False for a decomposition, which needs none."""

    def of(self, weight: Tensor) -> Tensor:
        """The norm as a differentiable function of the weight it was taken of."""
        return self.left @ (weight @ self.right)


@torch.no_grad()
def spectral_norm(weight: Tensor, guess: Tensor | None = None) -> SpectralNorm:
    """The largest singular value of ``weight``; ``guess`` is the left vector of a matrix close to it."""
    if weight.dtype == torch.float64:
        return _decomposed(weight)
    gram = weight @ weight.t()
    vector = torch.ones_like(gram[0]) if guess is None or not bool(guess.any()) else guess.to(gram)
    vector = vector / torch.linalg.vector_norm(vector)
    value = vector.new_zeros(())
    for _ in range(MOST):
        image = gram @ vector
        value = vector @ image
        rest = torch.linalg.vector_norm(image - value * vector)
        size = torch.linalg.vector_norm(image)
        if not bool(size > 0):
            return _decomposed(weight)
        vector = image / size
        if bool(rest <= RESIDUAL * value):
            break
    shifted = (-gram).diagonal_scatter((1 + SLACK) * value - gram.diagonal())
    if int(torch.linalg.cholesky_ex(shifted).info) != 0:
        return _decomposed(weight)
    right = vector @ weight
    return SpectralNorm(vector, right / torch.linalg.vector_norm(right), True)


def keep_bounded(
    optimiser: torch.optim.Optimizer, weights: Iterable[nn.Parameter], *, bound: float
) -> torch.optim.Optimizer:
    """``optimiser``, which from now on scales each of ``weights`` back to a spectral norm of ``bound`` after a step.

    What feeds back in an energy network is gamma |W|^2: bounded weights keep a short schedule of sweeps good for the
    whole of training, where free ones grow. The norm is followed from step to step by a power iteration, a lower
    estimate without certificate (a direction that appears at once, as in Adam's first steps, is caught within some
    ten); matrices with more than two axes are taken as (first, all others).

    >>> layer = torch.nn.Linear(8, 8)
    >>> optimiser = keep_bounded(torch.optim.SGD(layer.parameters(), lr=0.1), [layer.weight], bound=0.5)
    >>> bool(torch.linalg.matrix_norm(layer.weight, 2) <= 0.5001)
    True
    """
    if not bound > 0:
        raise expected("bound > 0", given=f"bound={bound}")
    held = [(weight, _first_direction(weight)) for weight in weights]

    @torch.no_grad()
    def scale_back(*called_with: object) -> None:
        for weight, direction in held:
            matrix = weight.flatten(1)
            for _ in range(PASSES):
                image = torch.mv(matrix, direction)
                torch.mv(matrix.mT, image / torch.linalg.vector_norm(image), out=direction)
                norm = torch.linalg.vector_norm(direction)
                direction /= norm
            if norm > bound:
                weight.mul_(bound / norm)

    scale_back()
    optimiser.register_step_post_hook(scale_back)
    return optimiser


@torch.no_grad()
def _first_direction(weight: Tensor) -> Tensor:
    """The leading right singular vector of a matrix, from which the iteration starts."""
    right: Tensor = torch.linalg.svd(weight.flatten(1), full_matrices=False)[2]
    return right[0].clone()


def _decomposed(weight: Tensor) -> SpectralNorm:
    left, _, right = torch.linalg.svd(weight, full_matrices=False)
    return SpectralNorm(left[:, 0], right[0], False)
