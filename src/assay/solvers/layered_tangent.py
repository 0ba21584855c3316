"""The response of a layered network to an infinitesimal nudge, in place: a linear relaxation with no activation in it.

    v_l = sigma'_l * (W_l v_{l-1} + gamma W_{l+1}^T v_{l+1}),        at the top plus the pull of the loss

The pull is constant (at beta = 0 the loss does not feel the response), so one relaxation of B rows replaces the two
signs of a finite difference, and the first sweep, which finds nothing below it yet, is a single top-down pass.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.protocols import State
from assay.solvers.layered import Layers
from assay.solvers.relaxation import relax
from assay.solvers.solution import Solution, Status


def relax_tangent(
    layers: Layers, state: State, target: Tensor, *, classes: int, sweeps: int, tolerance: float | None
) -> Solution:
    """d state / d beta at the free ``state``, by ``sweeps`` sweeps from the top down."""
    force = pull_of_the_loss(layers, state[-1], target, classes=classes)
    slopes = [torch.ones_like(s) if layers.is_output(i) else layers.activation.slope(s) for i, s in enumerate(state)]
    top = layers.depth - 1
    response = tuple(torch.empty_like(units) for units in state)
    torch.mul(force, slopes[top], out=response[top])
    for layer in reversed(range(top)):
        torch.mm(response[layer + 1], layers.weights[layer + 1], out=response[layer])
        response[layer].mul_(slopes[layer]).mul_(layers.gamma)
    if top == 0:
        return Solution(response, Status.CONVERGED, (0.0,), 1)

    def sweep(v: State) -> State:
        for layer in reversed(range(layers.depth)):
            z = force if layer == top else None
            if layer > 0:
                up = layers.weights[layer].t()
                z = torch.mm(v[layer - 1], up, out=v[layer]) if z is None else torch.addmm(
                    z, v[layer - 1], up, out=v[layer])
            if layer < top:
                down, out = layers.weights[layer + 1], v[layer]
                z = torch.mm(v[layer + 1], down, out=out).mul_(layers.gamma) if z is None else torch.addmm(
                    z, v[layer + 1], down, alpha=layers.gamma, out=out)
            v[layer].mul_(slopes[layer])
        return v

    if sweeps == 1:
        moved = max(float(v.abs().max()) for v in response)
        return Solution(response, Status.TRUNCATED if moved < float("inf") else Status.DIVERGED, (moved,), 1)
    found = relax(sweep, response, sweeps=sweeps - 1, tolerance=tolerance, in_place=True)
    return Solution(found.value, found.status, found.residuals, found.steps + 1)


def pull_of_the_loss(layers: Layers, top: Tensor, target: Tensor, *, classes: int) -> Tensor:
    """Minus the gradient of the loss of each row with respect to the top layer."""
    if layers.readout is None:
        wanted = -top
        return wanted.scatter_add_(1, target.unsqueeze(1), torch.ones_like(top[:, :1]))
    weight, bias = layers.readout
    error = torch.softmax(torch.addmm(bias, top, weight.t()), 1).neg_()
    error.scatter_add_(1, target.unsqueeze(1), torch.ones_like(error[:, :1]))
    return error @ weight
