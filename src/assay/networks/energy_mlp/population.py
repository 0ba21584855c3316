"""Many networks of one shape as one batched program: the same kernels with one more axis in front.

Narrow networks spend their time calling into the library, not multiplying. Stacking the parameters of S seeds into
(S, width, width below) turns S small products into one batched product; each network keeps its own rows, so it computes
what it would compute alone: to the last bit where the library's batched kernels add in the same order as its single
ones (``assay.learning.stacked.same_bits`` looks), up to rounding elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.errors import expected
from assay.networks.energy_mlp.deviation import DeviationSweep, deviate_layers, deviation_gradient
from assay.networks.energy_mlp.gradient import readout_gradient, tangent_gradient
from assay.networks.energy_mlp.kernel import Sweep, drive_of, relax_layers, start
from assay.networks.energy_mlp.layers import Layers
from assay.networks.energy_mlp.tangent import relax_tangent
from assay.protocols import State
from assay.solving.deviation import Units, relative_change
from assay.solving.relaxation import ROUNDING, end_status
from assay.solving.solution import Solution, Status

WIDEST = 128
"""The widest hidden layer that is stacked unasked. CPU time of whole training steps, one by one over stacked, for a
64-width-width-10 network at batch 32 and 3, 5 and 10 seeds: 2.9, 4.5, 5.9 at width 32; 2.2, 2.4, 3.3 at 128; 1.7, 2.0,
1.7 at 256, where more seeds gain nothing because one product already fills the caches (at batch 128 the gain at 128 is
1.6 to 1.8). ``python benchmarks/equilibrium.py population`` prints the gain of the gradient alone, by width."""


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
    """The losses (S,), the gradients of every parameter with the networks in front, and how both phases ended.

    ``residuals`` and ``statuses`` are those of each network, the worse of its two phases, where sweeps are fixed; with
    a tolerance or a lone layer all networks wait for the slowest, and its residual is everybody's.
    """

    losses: Tensor
    gradients: Sequence[tuple[Tensor, Tensor]]
    free: Solution
    nudged: Solution
    residuals: tuple[float, ...]
    statuses: tuple[Status, ...]


@torch.no_grad()
def population_gradient(
    layers: Layers, x: Tensor, y: Tensor, *, sweeps: tuple[int, int], betas: Sequence[float] = (),
    coefficients: Sequence[float] = (), tolerance: float | None = None,
) -> PopulationStep:
    """EP gradients of S networks on S batches, ``x`` (S, rows, inputs) and ``y`` (S, rows).

    ``betas`` and ``coefficients`` are a stencil for the derivative at beta = 0 (see ``assay.rules.estimators``);
    without them the tangent is used. Nudged in deviation coordinates. The residuals of ``free`` and ``nudged`` are the
    largest over all networks.
    """
    drive = drive_of(layers, x)
    free, ends = _relax(layers, drive, sweeps=sweeps[0], tolerance=tolerance)
    losses, of_readout = readout_gradient(layers.readout, free.value[-1], y)
    rows = y.shape[-1]
    if betas:
        phases = len(betas)
        beta = torch.tensor(betas, dtype=x.dtype, device=x.device).repeat_interleave(rows)
        nudged, nudged_ends = _deviate(
            layers, drive, free=free.value, target=y.repeat(1, phases), beta=beta, sweeps=sweeps[1], tolerance=tolerance
        )
        each = [coefficient / rows for coefficient in coefficients]
        gradients = deviation_gradient(layers, x, free.value, nudged.value, coefficients=each)
    else:
        nudged = relax_tangent(layers, free.value, y, sweeps=sweeps[1], tolerance=tolerance)
        nudged_ends = [(nudged.residual, nudged.status)] * len(y)
        weight = 1 / (rows * layers.gamma**layers.depth)
        gradients = tangent_gradient(layers, x, free.value, nudged.value, weight=weight)
    order = list(Status)
    ended = [max(pair, key=lambda end: end[0]) for pair in zip(ends, nudged_ends, strict=True)]
    worst = [max(pair, key=lambda end: order.index(end[1]))[1] for pair in zip(ends, nudged_ends, strict=True)]
    return PopulationStep(
        losses, gradients + ([of_readout] if of_readout is not None else []), free, nudged,
        residuals=tuple(residual for residual, _ in ended), statuses=tuple(worst),
    )


End = tuple[float, Status]
"""How far the last sweep moved any unit of a network, and what that is called."""


def _relax(layers: Layers, drive: Tensor, *, sweeps: int, tolerance: float | None) -> tuple[Solution, list[End]]:
    """All networks settled free, and the end of each: its own where sweeps are fixed, the slowest one's elsewhere."""
    if tolerance is not None or _is_lone(layers):
        found = relax_layers(layers, drive, None, pull=None, sweeps=sweeps, tolerance=tolerance)
        return found, [(found.residual, found.status)] * len(drive)
    sweep = Sweep(layers, drive, None)
    units = start(layers, drive)
    for _ in range(sweeps - 1):
        sweep(units)
    before = tuple(layer.clone() for layer in units)
    sweep(units)
    changes = torch.stack([(new - old).abs().amax((-2, -1)) for old, new in zip(before, units, strict=True)])
    limit = ROUNDING * torch.finfo(drive.dtype).eps
    each = [(change, end_status([change], limit=limit, with_tolerance=False))
            for change in changes.amax(0).tolist()]
    worst = _worst(each)
    return Solution(units, worst[1], (worst[0],), sweeps), each


def _deviate(
    layers: Layers, drive: Tensor, *, free: State, target: Tensor, beta: Tensor, sweeps: int, tolerance: float | None
) -> tuple[Solution, list[End]]:
    """The deviations of all networks, and the end of each."""
    if tolerance is not None or _is_lone(layers):
        found = deviate_layers(layers, drive, free, target, beta=beta, sweeps=sweeps, tolerance=tolerance)
        return found, [(found.residual, found.status)] * len(drive)
    sweep = DeviationSweep(layers, drive, free, target, beta=beta)
    units: Units = [None] * layers.depth
    for _ in range(sweeps - 1):
        sweep(units, False)
    before = list(units)
    sweep(units, False)
    moved = tuple(layer for layer in units if layer is not None)
    limit = ROUNDING * torch.finfo(drive.dtype).eps
    each: list[End] = []
    for network in range(len(drive)):
        change = max(relative_change(None if old is None else old[network], new[network])
                     for old, new in zip(before, moved, strict=True))
        each.append((change, end_status([change], limit=limit, with_tolerance=False)))
    worst = _worst(each)
    return Solution(moved, worst[1], (worst[0],), sweeps), each


def _is_lone(layers: Layers) -> bool:
    return layers.depth == 1 and layers.readout is not None


def _worst(each: list[End]) -> End:
    return max(each, key=lambda end: (not math.isfinite(end[0]), end[0]))
