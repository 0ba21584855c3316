"""The same audit for models at rest: their layers of units are the stream, their adjoint state is the true gradient.

At the fixed point s* = Phi(s*) the loss answers to a push on layer l of the units by a_l, where a = dl/ds +
(dPhi/ds)^T a. A rule such as equilibrium propagation sends no tensor down a stream; its credit is read off the
gradients it gives to the parameters of each layer.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from assay.audits.credit.alignment import DepthAlignment
from assay.audits.credit.stream import Stream, in_precision
from assay.audits.true_gradient import AT_REST, MOST_SWEEPS, settle, true_gradient
from assay.errors import expected
from assay.protocols import EquilibriumModel, Rule
from assay.rules.feedback_discovery import Blocks
from assay.solvers.relaxation import largest_change

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
    """The layers of units at rest and the gradient of each sample's loss there; ``dtype`` None is the model's own."""
    twin, inputs = in_precision(model, x, dtype)
    if not isinstance(twin, EquilibriumModel):
        raise expected("an equilibrium model", given=type(model).__name__)
    floor = AT_REST if dtype is torch.float64 else 10 * torch.finfo(inputs.dtype).eps
    state, residual, _ = settle(twin, inputs)
    if not math.isfinite(residual):
        raise expected(
            "a model whose units come to rest on this input",
            given=f"a last change of {residual}",
            do="audit_stability tells why it does not",
        )
    with torch.enable_grad():
        leaves = tuple(layer.detach().requires_grad_() for layer in state)
        swept = twin.sweep(twin.clamp(inputs), leaves)
        losses = twin.row_losses(twin.logits(leaves), y)
        pull = _gradients(losses.sum(), leaves)
        adjoint, moved, steps = pull, math.inf, 0
        while moved > floor and steps < MOST_SWEEPS:
            back = torch.autograd.grad(swept, leaves, adjoint, retain_graph=True, allow_unused=True)
            before = adjoint
            adjoint = tuple(p if b is None else p + b for p, b in zip(pull, back, strict=True))
            moved, steps = largest_change(before, adjoint), steps + 1
    return Stream(
        tuple(s.detach().flatten(1) for s in state), tuple(a.detach().flatten(1) for a in adjoint), losses.detach()
    )


def parameter_alignment(rule: Rule, model: nn.Module, x: Tensor, y: Tensor) -> dict[str, DepthAlignment]:
    """Per module: the cosine of the gradient a rule gives its parameters with the true one.

    The null is a random direction, whose cosine in d dimensions has standard deviation 1 / sqrt(d).
    """
    truth = true_gradient(model, x, y)
    twin, inputs = in_precision(model, x, torch.float64)
    with torch.random.fork_rng(devices=[]):
        copy.deepcopy(rule).backward(twin, inputs, y)
    groups: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for name, parameter in twin.named_parameters():
        if name in truth.gradients:
            given = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            groups.setdefault(name.rpartition(".")[0] or name, []).append(
                (given.detach().flatten(), truth.gradients[name].flatten())
            )
    return {name: _alignment(pairs) for name, pairs in groups.items()}


def _alignment(pairs: list[tuple[Tensor, Tensor]]) -> DepthAlignment:
    given, true = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    sizes = float(given.norm()), float(true.norm())
    cosine = float(given @ true) / (sizes[0] * sizes[1]) if min(sizes) > 0 else math.nan
    ratio = sizes[0] / sizes[1] if sizes[1] > 0 else math.nan
    return DepthAlignment(cosine, math.nan, ratio, 0.0, len(given) ** -0.5, MANY)


def _gradients(value: Tensor, leaves: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    found = torch.autograd.grad(value, leaves, retain_graph=True, allow_unused=True)
    return tuple(torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True))
