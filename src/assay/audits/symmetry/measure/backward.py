"""Which module has a backward pass that is not the derivative of its forward pass: each one alone, in float64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from assay.audits.symmetry.measure.gradients import inner
from assay.audits.symmetry.measure.quotients import quotient
from assay.audits.symmetry.subject import Subject
from assay.probe import tree
from assay.probe.noise import normal
from assay.probe.subject import Leaves
from assay.probe.trace import Call, record
from assay.probe.values import is_continuous
from assay.seeding import torch_generator

DIRECTIONS = 3
"""A kink of a ReLU spoils a difference quotient now and then: two of three directions must disagree."""
MOST_MODULES = 200


def wrong_backwards(subject: Subject, leaves: Leaves) -> tuple[str, ...]:
    """The innermost modules whose vector-Jacobian product disagrees with finite differences, in order of their calls.

    A module is fed what it saw in the model. One that holds such a module disagrees too and is not named; one whose own
    code detaches something is. Modules that cannot be run alone, and models without a float64 run, are left out.
    """
    if subject.high is None:
        return ()
    model = subject.high
    calls = record(subject, leaves, model, torch.float64, keep_calls=True).calls
    guilty, modules = [], dict(model.named_modules())
    for (name, number), call in list(calls.items())[:MOST_MODULES]:
        if number == 0 and _disagrees(modules[name], call, subject.seed):
            guilty.append(name)
    return tuple(name for name in guilty if not any(other != name and _holds(name, other) for other in guilty))


def _disagrees(module: nn.Module, call: Call, seed: int) -> bool:
    try:
        draws = [torch_generator(seed, "backward", call.module, number) for number in range(DIRECTIONS)]
        return 2 * sum(_differs(module, call, random) for random in draws) > DIRECTIONS
    except Exception:  # a module that does not run alone (it relies on state of the pass): nothing is said of it
        return False


def _differs(module: nn.Module, call: Call, random: torch.Generator) -> bool:
    """One random direction in the space of inputs and parameters, against one random cotangent."""
    given = (call.args, call.kwargs)
    weights = {name: value.detach() for name, value in module.named_parameters() if is_continuous(value)}
    moving = [leaf for leaf in tree.tensors(given) if is_continuous(leaf)] + list(weights.values())
    directions = [normal(x, random) * x.abs().mean() for x in moving]

    def outputs(values: list[Tensor]) -> list[Tensor]:
        queue = iter(values)
        args, kwargs = tree.map_tensors(given, lambda x: next(queue) if is_continuous(x) else x)
        found: Any = functional_call(module, dict(zip(weights, queue, strict=True)), args, kwargs)
        return [y for y in tree.tensors(found) if is_continuous(y)]

    with torch.enable_grad():
        sources = [x.clone().requires_grad_(True) for x in moving]
        there = outputs([x * 1 for x in sources])  # not leaves: a module may write into its inputs
        cotangents = [normal(y, random) for y in there]
        total = torch.stack([inner(u, y) for u, y in zip(cotangents, there, strict=True)]).sum()
        if not total.requires_grad:
            return False
        gradients = torch.autograd.grad(total, sources, allow_unused=True)
    analytic = sum(float(inner(g, d)) for g, d in zip(gradients, directions, strict=True) if g is not None)

    def value(step: float) -> float:
        with torch.enable_grad():  # a forward pass may take derivatives of its own
            moved = outputs([x + step * d for x, d in zip(moving, directions, strict=True)])
        return sum(float(inner(u, y.detach())) for u, y in zip(cotangents, moved, strict=True))

    return quotient(analytic, value, 1.0).differs


def _holds(module: str, other: str) -> bool:
    return other.startswith(f"{module}." if module else "")
