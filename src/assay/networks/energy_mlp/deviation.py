"""The nudged phase of a layered network in deviation coordinates, written out: small numbers from end to end.

The nudged state is s_l + gamma^(K-l) u_l, with s the free one and K the top layer, so that every u_l is of order beta.
One sweep, from the top down:

    force     e_K = beta (onehot - softmax(W_o (s_K + u_K) + b_o)) W_o + gamma W_K u_{K-1}
              e_l = W_{l+1}^T u_{l+1} + gamma W_l u_{l-1}
    response  u_l = [ sigma(a_l + gamma^(K-l) e_l) - sigma(a_l) ] / gamma^(K-l)

The bracket has a form without cancellation for every unit (``solving.responses``), so float32 keeps its seven digits
at any depth, any gamma and any beta. The first sweep finds u = 0 everywhere and is a single pass down. The gradient is

    dL/dW_l = -sum_k c_k mean_rows [ u_l s_{l-1}^T + gamma s_l u_{l-1}^T + gamma^(K-l+1) u_l u_{l-1}^T ].

One more axis in front of everything makes it many networks side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assay.networks.energy_mlp.deflation import Foresight
from assay.networks.energy_mlp.gradient import Gradients
from assay.networks.energy_mlp.layers import Layers, Pull, multiply, multiply_add
from assay.networks.energy_mlp.overrelaxation import Rates
from assay.networks.energy_mlp.projection import Projection
from assay.protocols import State
from assay.solving.activations import activation
from assay.solving.deviation import Units, largest, relative_change, relax_deviations
from assay.solving.responses import Response, Sigmoidal, response
from assay.solving.solution import Solution

LINEAR_UNIT = activation("identity")


def deviate_layers(
    layers: Layers, drive: Tensor, free: State, target: Tensor, *, beta: Tensor, sweeps: int, tolerance: float | None
) -> Solution:
    """u of every layer after ``sweeps`` sweeps; ``beta`` and ``target`` have one entry per row of each phase."""
    sweep = DeviationSweep(layers, drive, free, target, beta=beta)
    if layers.depth == 1 and layers.readout is not None:
        return _relax_lone_layer(sweep, sweeps=sweeps, tolerance=tolerance)
    found = relax_deviations(sweep, layers.depth, sweeps=sweeps, tolerance=tolerance, like=sweep.like)
    if sweep.projection is not None:
        sweep.projection.scale(found.value)
    return found


class DeviationSweep:
    """One sweep from the top down, with everything that stays the same computed beforehand."""

    def __init__(self, layers: Layers, drive: Tensor, free: State, target: Tensor, *, beta: Tensor) -> None:
        self.real = layers
        self.layers = _as_complex(layers, beta.dtype) if beta.is_complex() else layers
        self.pull = Pull.towards(target, beta, layers.classes)
        solver = "sweeps" if beta.is_complex() else layers.solver
        self.projection = Projection(layers.gamma, layers.depth) if solver in ("projected", "deflated") else None
        self.rates = Rates(layers.gamma) if solver == "overrelaxed" else None
        phases = len(beta) // free[0].shape[-2]
        self.like = free[-1].to(beta.dtype)
        self.strongest = largest(beta)
        self.responses = [
            self._response(layer, free, drive, phases=phases) for layer in range(layers.depth)
        ]
        self.foresight = None
        if solver == "deflated" and layers.depth > 1:
            self.foresight = Foresight(layers, [self._slope(layer, free) for layer in range(layers.depth)], phases)
        if layers.readout is not None:
            logits = multiply_add(layers.readout[1].mT, layers.readout[0], free[-1].mT)
            self.logits = torch.cat([logits] * phases, -1).to(beta.dtype) if phases > 1 else logits.to(beta.dtype)
        else:
            output = torch.cat([free[-1]] * phases, -2) if phases > 1 else free[-1]
            self.want = torch.addcmul(self.pull.wanted.mT, output, beta.unsqueeze(-1), value=-1)

    def __call__(self, units: Units, measure: bool) -> list[float]:
        changes = [0.0] * self.layers.depth if measure else []
        for layer in reversed(range(self.layers.depth)):
            new = self._settled(layer, units)
            if measure:
                changes[layer] = relative_change(units[layer], new)
            units[layer] = self._beyond(units[layer], new)
        if self.rates is not None:
            self.rates.next_sweep()
        return changes

    def _beyond(self, before: Tensor | None, new: Tensor) -> Tensor:
        """``new``, or further along the step to it."""
        if self.rates is None or before is None:
            return new
        step = new - before
        self.rates.note(step)
        assert self.rates.beyond is not None
        return new.addcmul_(step, self.rates.beyond)

    def _settled(self, layer: int, units: Units) -> Tensor:
        """The answer of a layer to its force; a projection is told both parts of the force."""
        if self.projection is None:
            return self.responses[layer](self._force(layer, units))
        above = self._from_above(layer, units)
        fed = layer > 0 and units[layer - 1] is not None
        force = self._from_below(layer, units, above.clone()) if fed else above
        if self.foresight is not None and layer > 0:
            before = units[layer]
            change = None if before is None else self._answer(layer, force).sub_(before)
            force = self.foresight.add(layer, force, change)
        new = self._answer(layer, force)
        self.projection.note(layer, new, above=above, force=force)
        return new

    def _answer(self, layer: int, force: Tensor) -> Tensor:
        """Where a force takes a layer; fresh storage."""
        return self.responses[layer](self._shared_by_output(layer, force))

    def error(self, top: Tensor | None) -> Tensor:
        """beta (onehot - softmax(logits)) at the deviation ``top`` of the top layer: (..., classes, rows)."""
        assert self.layers.readout is not None
        return self.pull.error(
            self.logits if top is None else multiply_add(self.logits, self.layers.readout[0], top.mT)
        )

    def _response(self, layer: int, free: State, drive: Tensor, *, phases: int) -> Response:
        layers = self.real
        unit = LINEAR_UNIT if layers.is_output(layer) else layers.activation
        excess = None if unit.smooth else _drive(layers, layer, free, drive).sub_(free[layer])
        scale = layers.gamma ** (layers.depth - 1 - layer)
        return response(unit, free[layer], scale=scale, phases=phases, strongest=self.strongest, excess=excess)

    def _slope(self, layer: int, free: State) -> Tensor:
        """The slope of every unit at the free state."""
        known = self.responses[layer]
        if isinstance(known, Sigmoidal):
            return known.slope
        return torch.ones_like(free[layer]) if self.real.is_output(layer) else self.real.activation.slope(free[layer])

    def _force(self, layer: int, units: Units) -> Tensor:
        return self._shared_by_output(layer, self._from_below(layer, units, self._from_above(layer, units)))

    def _from_above(self, layer: int, units: Units) -> Tensor:
        """The force of the layer above or, at the top, of the loss; fresh storage."""
        layers = self.layers
        if layer < layers.depth - 1:
            above = units[layer + 1]
            assert above is not None
            return above @ layers.weights[layer + 1]
        if layers.readout is not None:
            return self.error(units[layer]).mT @ layers.readout[0]
        return self.want.clone()

    def _from_below(self, layer: int, units: Units, force: Tensor) -> Tensor:
        """``force`` with that of the layer below added, in place."""
        below = units[layer - 1] if layer > 0 else None
        if below is not None:
            multiply_add(force, below, self.layers.weights[layer].mT, alpha=self.layers.gamma, out=force)
        return force

    def _shared_by_output(self, layer: int, force: Tensor) -> Tensor:
        """Linear output units pull themselves: u = force - beta u."""
        return force / (1 + self.pull.beta.unsqueeze(-1)) if self.layers.is_output(layer) else force


def deviation_gradient(
    layers: Layers, x: Tensor, free: State, deviation: State, *, coefficients: Sequence[complex]
) -> Gradients:
    """The gradient above, of every layer; ``coefficients`` are those of the phases, over the number of rows."""
    if deviation[0].is_complex():
        return _complex_gradient(layers, x, free, deviation, coefficients=coefficients)
    gradients, below_sum = [], None
    factors = [-complex(c).real for c in coefficients]
    for layer, units in enumerate(deviation):
        weighted, factor = (units, factors[0]) if len(factors) == 1 else (_weighted(units, factors), 1.0)
        total = _sum_of_phases(weighted, len(factors))
        if layer == 0:
            product = multiply(factor, total.mT, x)
        else:
            # u_l (s_{l-1} + d_{l-1})^T over all phases at once, then the part in which the layer below moves alone.
            scale = layers.gamma ** (layers.depth - layer)
            resting = torch.cat([free[layer - 1]] * len(factors), -2) if len(factors) > 1 else free[layer - 1]
            product = multiply(factor, weighted.mT, torch.add(resting, deviation[layer - 1], alpha=scale))
            assert below_sum is not None
            multiply_add(product, free[layer].mT, below_sum, alpha=layers.gamma * factor, out=product)
        below_sum = total
        gradients.append((product, total.sum(-2).mul_(factor)))
    return gradients


def _complex_gradient(
    layers: Layers, x: Tensor, free: State, deviation: State, *, coefficients: Sequence[complex]
) -> Gradients:
    """The real part of the same sums, phase by phase."""
    gradients: Gradients = []
    phases = [torch.unflatten(units, -2, (len(coefficients), -1)).unbind(-3) for units in deviation]
    for layer, parts in enumerate(phases):
        scale = layers.gamma ** (layers.depth - layer)
        weight = torch.zeros_like(layers.weights[layer])
        for phase, (coefficient, units) in enumerate(zip(coefficients, parts, strict=True)):
            if layer == 0:
                weight -= (coefficient * units).real.mT @ x
                continue
            below = phases[layer - 1][phase]
            product = units.mT @ (free[layer - 1] + scale * below)
            product += layers.gamma * (below.mT @ free[layer].to(below)).mT
            weight -= (coefficient * product).real
        bias = -sum(((c * units).real.sum(-2) for c, units in zip(coefficients, parts, strict=True)), torch.zeros(()))
        gradients.append((weight, bias))
    return gradients


def _weighted(units: Tensor, factors: Sequence[float]) -> Tensor:
    """Every phase times its factor."""
    shape = (len(factors), 1, 1)
    scales = torch.tensor(factors, dtype=units.dtype, device=units.device).view(shape)
    return (torch.unflatten(units, -2, (len(factors), -1)) * scales).flatten(-3, -2)


def _sum_of_phases(units: Tensor, phases: int) -> Tensor:
    return units if phases == 1 else torch.unflatten(units, -2, (phases, -1)).sum(-3)


def _relax_lone_layer(sweep: DeviationSweep, *, sweeps: int, tolerance: float | None) -> Solution:
    """A single hidden layer depends on the narrow output error alone: sweeps that cannot change it are left out.

    One sweep multiplies a difference of that error, row by row, by at most 1/2 beta |W_o|^2 (see ``lone_layer``).
    """
    from assay.networks.energy_mlp.lone_layer import longest_column, shrinkage
    from assay.solving.relaxation import ROUNDING, end_status

    assert sweep.layers.readout is not None
    weight = sweep.layers.readout[0]
    rate = shrinkage(weight, sweep.strongest)
    limit = max(ROUNDING * torch.finfo(weight.dtype).eps, tolerance or 0.0)
    error, units = sweep.error(None), None
    residuals: list[float] = []
    for number in range(1, sweeps + 1):
        units = sweep.responses[0](error.mT @ weight)
        # From zero the first sweep is a change of 1; what the next would change at most need not be measured.
        bound = rate * (residuals[-1] if residuals else 1.0)
        if bound <= limit or number == sweeps:
            residuals.append(bound)
            break
        previous, error = error, sweep.error(units)
        size = longest_column(error)
        residuals.append(longest_column(error - previous) / size if size > 0 else 0.0)
        if not residuals[-1] > limit:
            break
    status = end_status(residuals, limit=limit, with_tolerance=tolerance is not None)
    assert units is not None
    return Solution((units,), status, tuple(residuals), len(residuals), (residuals[-1],))


def _drive(layers: Layers, layer: int, free: State, drive: Tensor) -> Tensor:
    """What a unit receives at the free state, fresh storage."""
    below = free[layer - 1] if layer > 0 else free[0]
    total = drive.clone() if layer == 0 else multiply_add(layers.biases[layer], below, layers.weights[layer].mT)
    if layer + 1 < layers.depth:
        multiply_add(total, free[layer + 1], layers.weights[layer + 1], alpha=layers.gamma, out=total)
    return total


def _as_complex(layers: Layers, dtype: torch.dtype) -> Layers:
    readout = None if layers.readout is None else (layers.readout[0].to(dtype), layers.readout[1].to(dtype))
    return replace(layers, weights=[w.to(dtype) for w in layers.weights], readout=readout)
