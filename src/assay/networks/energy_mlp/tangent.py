"""The response of a layered network to an infinitesimal nudge, in place: a linear relaxation with no activation in it.

    v_l = sigma'_l * (W_l v_{l-1} + gamma W_{l+1}^T v_{l+1}),        at the top plus the pull of the loss

The pull is constant (at beta = 0 the loss does not feel the response), so one relaxation of B rows replaces the two
signs of a finite difference, and the first sweep, which finds nothing below it yet, is a single top-down pass.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from assay.networks.energy_mlp.layers import Layers, multiply_add
from assay.protocols import State
from assay.solving.relaxation import largest_change, relax
from assay.solving.solution import Solution, Status


def relax_tangent(
    layers: Layers, state: State, target: Tensor, *, sweeps: int, tolerance: float | None = None
) -> Solution:
    """d state / d beta at the free ``state``, by ``sweeps`` sweeps from the top down."""
    top = layers.depth - 1
    force = pull_of_the_loss(layers, state[-1], target)
    slopes = [torch.ones_like(s) if layers.is_output(i) else layers.activation.slope(s) for i, s in enumerate(state)]
    response = tuple(torch.empty_like(units) for units in state)
    torch.mul(force, slopes[top], out=response[top])
    for layer in reversed(range(top)):
        torch.matmul(response[layer + 1], layers.weights[layer + 1], out=response[layer])
        response[layer].mul_(slopes[layer]).mul_(layers.gamma)
    if top == 0:
        return Solution(response, Status.CONVERGED, (0.0,), 1)

    def sweep(v: State) -> State:
        for layer in reversed(range(layers.depth)):
            if layer == top:
                multiply_add(force, v[layer - 1], layers.weights[layer].mT, out=v[layer])
            else:
                torch.matmul(v[layer + 1], layers.weights[layer + 1], out=v[layer]).mul_(layers.gamma)
                if layer > 0:
                    multiply_add(v[layer], v[layer - 1], layers.weights[layer].mT, out=v[layer])
            v[layer].mul_(slopes[layer])
        return v

    if sweeps == 1:
        moved = largest_change(tuple(torch.zeros_like(v) for v in response), response)
        return Solution(response, Status.TRUNCATED if moved < float("inf") else Status.DIVERGED, (moved,), 1)
    found = relax(sweep, response, sweeps=sweeps - 1, tolerance=tolerance, in_place=True)
    return Solution(found.value, found.status, found.residuals, found.steps + 1)


def pull_of_the_loss(layers: Layers, top: Tensor, target: Tensor) -> Tensor:
    """Minus the gradient of the loss of each row with respect to the top layer."""
    wanted = functional.one_hot(target, layers.classes)
    if layers.readout is None:
        return wanted - top
    return (wanted - torch.softmax(layers.logits(top), -1)) @ layers.readout[0]
