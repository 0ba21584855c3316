"""The same audit for models at rest: their layers of units are the stream.

The credit of layer l is -ds_l/dbeta, how far its units move when the output is nudged: couplings are symmetric, so this
is also how the loss answers to a force on those units (both are the inverse Hessian of the energy times dl/ds). The
derivative of a sweep would not do, since a sweep may overwrite a layer before anything reads it. A rule such as
equilibrium propagation sends no tensor down a stream; its own credit is read off the gradients it gives to parameters.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from assay.audits.credit.alignment import DepthAlignment, in_its_precision
from assay.audits.credit.stream import Stream, in_precision
from assay.audits.equilibrium.true_gradient import AT_REST, MOST_SWEEPS, settle, true_gradient
from assay.errors import expected
from assay.probe.blocks import Blocks
from assay.protocols import EquilibriumModel, Rule

MANY = 10_000
"""A null known in closed form counts as this many redraws."""


def layers_at_rest(model: nn.Module) -> Blocks:
    """The weight layers of an equilibrium model between the first and the last: what freezing and training compare."""
    names = [
        name for name, module in model.named_modules() if any(p.ndim > 1 for p in module.parameters(recurse=False))
    ]
    if len(names) < 3:
        raise expected(
            "an equilibrium model with at least three weight layers",
            given=f"{len(names)}",
            do="a layer must lie between the first and the last for depth to matter",
        )
    return Blocks(
        tuple(names[1:-1]), "direct", None, "weight layers of a model at rest, without the first and the last"
    )


def stream_at_rest(model: nn.Module, x: Tensor, y: Tensor, dtype: torch.dtype | None) -> Stream:
    """The layers of units at rest and each sample's credit there, -ds/dbeta; ``dtype`` None is the model's own."""
    twin, inputs = in_precision(model, x, dtype)
    if not isinstance(twin, EquilibriumModel):
        raise expected("an equilibrium model", given=type(model).__name__)
    state, residual, _ = settle(twin, inputs)
    if not math.isfinite(residual):
        raise expected(
            "a model whose units come to rest on this input",
            given=f"a last change of {residual}",
            do="audit_stability tells why it does not",
        )
    if len(state) < 2 or not twin.symmetric:
        raise expected(
            "an equilibrium model with an energy and at least two layers of units",
            given=f"{len(state)} layer(s), {'an' if twin.symmetric else 'no'} energy",
            do="audit_gradient compares its gradient with the true one",
        )
    floor = AT_REST if dtype is torch.float64 else 10 * torch.finfo(state[0].dtype).eps
    with torch.no_grad():
        losses = twin.row_losses(twin.logits(state), y)
        free = tuple(layer.clone() for layer in state)
        moved = twin.tangent(twin.clamp(inputs), free, y, sweeps=MOST_SWEEPS, tolerance=floor).value
    return Stream(tuple(s.flatten(1) for s in state), tuple(-m.flatten(1) for m in moved), losses)


def parameter_alignment(rule: Rule, model: nn.Module, x: Tensor, y: Tensor) -> dict[str, DepthAlignment]:
    """Per module: the cosine of the gradient a rule gives its parameters with the true one.

    The null is a random direction, whose cosine in d dimensions has standard deviation 1 / sqrt(d).
    """
    truth = true_gradient(model, x, y)
    twin = in_its_precision(rule, lambda dtype: _after(rule, model, x, y, dtype=dtype))
    groups: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for name, parameter in twin.named_parameters():
        if name in truth.gradients:
            given = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            groups.setdefault(name.rpartition(".")[0] or name, []).append(
                (given.detach().double().flatten(), truth.gradients[name].flatten())
            )
    # A module without a gradient that is given none is right, and has no direction to speak of.
    moved = {name: pairs for name, pairs in groups.items() if any(bool(part.any()) for pair in pairs for part in pair)}
    return {name: _alignment(pairs, places=len(moved)) for name, pairs in moved.items()}


def _after(rule: Rule, model: nn.Module, x: Tensor, y: Tensor, *, dtype: torch.dtype | None) -> nn.Module:
    """A copy of the model with the gradients the rule gives it."""
    twin, inputs = in_precision(model, x, dtype)
    with torch.random.fork_rng(devices=[]):
        copy.deepcopy(rule).backward(twin, inputs, y)
    return twin


def _alignment(pairs: list[tuple[Tensor, Tensor]], *, places: int) -> DepthAlignment:
    given, true = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    sizes = float(given.norm()), float(true.norm())
    cosine = float(given @ true) / (sizes[0] * sizes[1]) if min(sizes) > 0 else math.nan
    ratio = sizes[0] / sizes[1] if sizes[1] > 0 else math.nan
    return DepthAlignment(cosine, math.nan, ratio, 0.0, len(given) ** -0.5, MANY, places)
