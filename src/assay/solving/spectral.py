"""The largest singular value of a matrix: a warm-started iteration of a small block, certified by a Cholesky factor.

The block is multiplied by G = W W^T and solved exactly inside (Rayleigh and Ritz). One vector would find the norm as
well, but not its direction where two singular values nearly meet, as they do under a norm that training leans on; and
the direction is the derivative of the norm. That no larger value exists is shown by a Cholesky factorisation of
(1 + SLACK) lambda I - G, which succeeds only if that matrix is positive definite. Where it fails, and in float64,
where audits measure, the decomposition itself is taken. From one batch to the next weights move little, so a few
products with G are enough; a full decomposition of a 512 x 784 matrix takes some twenty times as long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.errors import expected

SLACK = 1e-4
"""The certified norm is at most sqrt(1 + SLACK), half of a hundredth of a percent, above the one returned."""
RESIDUAL, OF_THE_GAP, ROUNDING = 1e-5, 1e-3, 1e-6
"""A direction v is taken for a singular vector when |G v - lambda v| is below this share of lambda *and* of the gap to
the next value, which bounds the error of v; below ``ROUNDING`` of lambda float32 cannot see, whatever the gap."""
BLOCK = 8
MOST = 100
PASSES = 2
"""Of the power iteration at each step of an optimiser: once on the leading direction, the norm is exact to 1e-3."""


@dataclass(frozen=True)
class SpectralNorm:
    """The largest singular value with its two vectors, which are also its derivative: d sigma = left . dW right."""

    left: Tensor
    right: Tensor
    block: Tensor
    """Where the iteration ended: the guess for a matrix close to this one."""
    certified: bool
    """By a factorisation; False for a decomposition, which needs none."""

    def of(self, weight: Tensor) -> Tensor:
        """The norm as a differentiable function of the weight it was taken of."""
        return self.left @ (weight @ self.right)


@torch.no_grad()
def spectral_norm(weight: Tensor, guess: Tensor | None = None) -> SpectralNorm:
    """The largest singular value of ``weight``; ``guess`` is the ``block`` of a matrix close to it."""
    if weight.dtype == torch.float64 or min(weight.shape) <= BLOCK:
        return _decomposed(weight)
    gram = weight @ weight.t()
    known = guess is not None and bool(guess.any())
    block: Tensor = torch.linalg.qr(guess.to(gram) if guess is not None and known else _first_block(gram))[0]
    for _ in range(MOST):
        image = gram @ block
        values, turn = torch.linalg.eigh(block.t() @ image)
        vector, value = block @ turn[:, -1], values[-1]
        rest = torch.linalg.vector_norm(image @ turn[:, -1] - value * vector)
        enough = torch.minimum(RESIDUAL * value, OF_THE_GAP * (value - values[-2])).clamp_min(ROUNDING * value)
        if not bool(torch.isfinite(rest)) or not bool(value > 0):
            return _decomposed(weight)
        if bool(rest <= enough):
            break
        block = torch.linalg.qr(image)[0]
    else:
        return _decomposed(weight)
    shifted = (-gram).diagonal_scatter((1 + SLACK) * value - gram.diagonal())
    if int(torch.linalg.cholesky_ex(shifted).info) != 0:
        return _decomposed(weight)
    right = vector @ weight
    return SpectralNorm(vector, right / torch.linalg.vector_norm(right), block, True)


def _first_block(gram: Tensor) -> Tensor:
    """Waves of different lengths: a start that no sparse or constant matrix is likely to be blind to."""
    place = torch.arange(len(gram), dtype=gram.dtype, device=gram.device)
    return torch.cos(torch.outer(place, place[:BLOCK] * 0.7 + 0.1)) + torch.outer(1 / (1 + place), 1 + place[:BLOCK])


def keep_bounded(
    optimiser: torch.optim.Optimizer, weights: Iterable[nn.Parameter], *, bound: float, each: bool = False
) -> torch.optim.Optimizer:
    """``optimiser``, which from now on scales each of ``weights`` back to a spectral norm of ``bound`` after a step.

    What feeds back in an energy network is gamma |W|^2: bounded weights keep a short schedule of sweeps good for the
    whole of training, where free ones grow. The norm is followed from step to step by a power iteration, a lower
    estimate without certificate (a direction that appears at once, as in Adam's first steps, is caught within some
    ten); matrices with more than two axes are taken as (first, all others). With ``each``, every singular value above
    the bound is brought down to it and the others are left alone, by a decomposition of the smaller Gram matrix: the
    nearest weight within the bound, where scaling shrinks what is far below it as well.

    >>> layer = torch.nn.Linear(8, 8)
    >>> optimiser = keep_bounded(torch.optim.SGD(layer.parameters(), lr=0.1), [layer.weight], bound=0.5)
    >>> bool(torch.linalg.matrix_norm(layer.weight, 2) <= 0.5001)
    True
    """
    if not bound > 0:
        raise expected("bound > 0", given=f"bound={bound}")
    if each:
        return _keep_each_bounded(optimiser, list(weights), bound)
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


def _keep_each_bounded(
    optimiser: torch.optim.Optimizer, weights: list[nn.Parameter], bound: float
) -> torch.optim.Optimizer:
    @torch.no_grad()
    def bring_down(*called_with: object) -> None:
        for weight in weights:
            matrix = weight.flatten(1)
            wide = matrix.shape[0] <= matrix.shape[1]
            squares, vectors = torch.linalg.eigh(matrix @ matrix.mT if wide else matrix.mT @ matrix)
            if squares[-1] > bound**2:
                factors = bound / squares.clamp_min(bound**2).sqrt() - 1
                change = (vectors * factors) @ vectors.mT
                weight.add_((change @ matrix if wide else matrix @ change).view_as(weight))

    bring_down()
    optimiser.register_step_post_hook(bring_down)
    return optimiser


@torch.no_grad()
def _first_direction(weight: Tensor) -> Tensor:
    """The leading right singular vector of a matrix, from which the iteration starts."""
    right: Tensor = torch.linalg.svd(weight.flatten(1), full_matrices=False)[2]
    return right[0].clone()


def _decomposed(weight: Tensor) -> SpectralNorm:
    left, _, right = torch.linalg.svd(weight, full_matrices=False)
    return SpectralNorm(left[:, 0], right[0], left[:, :BLOCK], False)
