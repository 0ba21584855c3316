"""Many networks of one shape as one batched program: the same kernels with one more axis in front.

Narrow networks spend their time calling into the library, not multiplying. Stacking the parameters of S seeds into
(S, width, width below) turns S small products into one batched product; each network keeps its own rows, so it computes
what it would compute alone, up to the rounding of another summation order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.errors import expected
from assay.solvers.layered import Layers, Pull, drive_of, relax_layers, start
from assay.solvers.layered_gradient import energy_gradient, readout_gradient, tangent_gradient
from assay.solvers.layered_tangent import relax_tangent
from assay.solvers.solution import Solution

WIDEST = 128
"""Above this hidden width one product already fills the machine and stacking gains nothing
(``benchmarks/equilibrium.py`` prints the measured gain by width)."""


def pays(widths: Sequence[int], networks: int) -> bool:
    """Whether ``networks`` networks of these ``widths`` are faster side by side than one by one."""
    return networks > 1 and max(widths[1:-1], default=0) <= WIDEST


def stack(networks: Sequence[Layers]) -> Layers:
    """Networks of one shape side by side; the parameters are copied."""
    first = networks[0]
    for other in networks[1:]:
        shapes = [[weight.shape for weight in layers.weights] for layers in (first, other)]
        if shapes[0] != shapes[1] or (first.gamma, first.activation) != (other.gamma, other.activation):
            raise expected("networks of one shape, gamma and activation", given=f"layers {shapes[0]} and {shapes[1]}")
    readout = None
    if first.readout is not None:
        pairs = [layers.readout for layers in networks if layers.readout is not None]
        readout = (torch.stack([w for w, _ in pairs]), torch.stack([b for _, b in pairs]))
    depth = range(first.depth)
    return replace(
        first,
        weights=[torch.stack([layers.weights[i] for layers in networks]) for i in depth],
        biases=[torch.stack([layers.biases[i] for layers in networks]) for i in depth],
        readout=readout,
    )


@dataclass(frozen=True)
class PopulationStep:
    """The losses (S,), the gradients of every parameter with the networks in front, and how both phases ended."""

    losses: Tensor
    gradients: list[tuple[Tensor, Tensor]]
    free: Solution
    nudged: Solution


@torch.no_grad()
def population_gradient(
    layers: Layers, x: Tensor, y: Tensor, *, sweeps: tuple[int, int], betas: Sequence[float] = (),
    coefficients: Sequence[float] = (), tolerance: float | None = None,
) -> PopulationStep:
    """EP gradients of S networks on S batches, ``x`` (S, rows, inputs) and ``y`` (S, rows).

    ``betas`` and ``coefficients`` are a stencil for the derivative at beta = 0 (see ``assay.rules.estimators``);
    without them the tangent is used. Residuals are the largest over all networks.
    """
    drive = drive_of(layers, x)
    free = relax_layers(layers, drive, start(layers, drive), pull=None, sweeps=sweeps[0], tolerance=tolerance)
    losses, of_readout = readout_gradient(layers, free.value[-1], y)
    per_row = 1 / (y.shape[-1] * layers.gamma**layers.depth)
    if betas:
        phases, rows = len(betas), y.shape[-1]
        state = tuple(units.repeat(1, phases, 1) for units in free.value)
        beta = torch.tensor(betas, dtype=x.dtype, device=x.device).repeat_interleave(rows)
        pull = Pull.towards(y.repeat(1, phases), beta, layers.classes)
        nudged = relax_layers(
            layers, drive.repeat(1, phases, 1), state, pull=pull, sweeps=sweeps[1], tolerance=tolerance
        )
        weights = per_row * torch.tensor(coefficients, dtype=x.dtype, device=x.device).repeat_interleave(rows)
        gradients = energy_gradient(layers, x, nudged.value, weights)
    else:
        nudged = relax_tangent(layers, free.value, y, sweeps=sweeps[1], tolerance=tolerance)
        gradients = tangent_gradient(layers, x, free.value, nudged.value, per_row)
    return PopulationStep(losses, gradients + ([of_readout] if of_readout is not None else []), free, nudged)
