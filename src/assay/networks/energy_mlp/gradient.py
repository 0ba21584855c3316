"""Parameter derivatives of a layered network at fixed states, written out: no automatic differentiation.

    dE/dW_l = -gamma^l s_l s_{l-1}^T,    dE/db_l = -gamma^l s_l

and of the softmax readout, which is a linear classifier of the free state. One more axis in front of everything makes
it many networks side by side.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.networks.energy_mlp.layers import Layers, multiply_add
from assay.protocols import State

Gradients = list[tuple[Tensor, Tensor]]
"""(weight, bias) of each layer, shaped like the parameters of ``nn.Linear``."""


def energy_gradient(layers: Layers, x: Tensor, state: State, weights: Tensor) -> Gradients:
    """The sum over rows of ``weights`` times the row's energy derivative; its real part if the state is complex.

    The rows of the state may be several phases of the rows of ``x``.
    """
    gradients = []
    for layer, units in enumerate(state):
        scales = (-(layers.gamma ** (layer + 1)) * weights).unsqueeze(-1)
        if layer == 0:
            # All phases share the input: their weighted states add up before one product with x.
            weighted, below = _real(_sum_of_phases(units, scales, x.shape[-2])), x
        else:
            weighted, below = scales * units, state[layer - 1]
        gradients.append((_real(weighted.mT @ below), _real(weighted.sum(-2))))
    return gradients


def tangent_gradient(layers: Layers, x: Tensor, state: State, direction: State, *, weight: float) -> Gradients:
    """``weight`` times the change of the energy's parameter derivative as the state moves along ``direction``."""
    gradients = []
    for layer, (units, change) in enumerate(zip(state, direction, strict=True)):
        scale = -(layers.gamma ** (layer + 1)) * weight
        product = change.mT @ (x if layer == 0 else state[layer - 1])
        if layer > 0:
            product += units.mT @ direction[layer - 1]
        gradients.append((product.mul_(scale), change.sum(-2).mul_(scale)))
    return gradients


def readout_gradient(
    readout: tuple[Tensor, Tensor] | None, top: Tensor, target: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """The mean loss over rows at the free state, and the gradient of the readout (None if it is part of the state)."""
    if readout is None:
        # |s - onehot|^2 = |s|^2 - 2 s_y + 1
        losses = 0.5 * (top.square().sum(-1) + 1) - top.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return losses.mean(-1), None
    # Transposed, (..., classes, rows): the narrow side first is the faster product.
    weight, bias = readout
    chosen, rows = target.unsqueeze(-2), target.shape[-1]
    log_probabilities = torch.log_softmax(multiply_add(bias.mT, weight, top.mT), -2)
    picked = log_probabilities.gather(-2, chosen)
    error = log_probabilities.exp_().div_(rows)
    error.scatter_add_(-2, chosen, torch.full_like(picked, -1 / rows))
    return -picked.mean((-2, -1)), (error @ top, error.sum(-1))


def _sum_of_phases(units: Tensor, scales: Tensor, rows: int) -> Tensor:
    """The phases of each row, weighted and added up: (..., rows, width)."""
    (first, *others), (scale, *scales_of_others) = torch.split(units, rows, -2), torch.split(scales, rows, -2)
    total = first * scale
    for phase, factor in zip(others, scales_of_others, strict=True):
        total.addcmul_(phase, factor)
    return total


def _real(tensor: Tensor) -> Tensor:
    return tensor.real if tensor.is_complex() else tensor
