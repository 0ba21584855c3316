"""Twins of the reference models: one planted mistake each, in a module that is known; and healthy rewritings."""

from __future__ import annotations

import copy
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from planted_families import FAMILIES, normal, reference, sample
from planted_mistakes import OF_ENERGIES, OF_GRADIENTS, PLANTS, WHOLE
from planted_rewritings import COMPILED, REWRITINGS, STEPS, WRONG_STEPS, Stepping, absent, unclaimed
from torch import nn

from assay.audits.same.conditions import nudge_weights, nudged_leaves
from assay.audits.same.judge import SAFETY, Truth
from assay.audits.same.quantities import Inquiry, Kind
from assay.probe import tree
from assay.probe.copies import duplicate
from assay.seeding import numpy_generator

LEVELS = (10.0, 100.0)


@dataclass(frozen=True)
class Twin:
    """A candidate beside its reference; ``module`` is where the mistake is (None: healthy, "*": anywhere)."""

    name: str
    family: str
    reference: nn.Module
    candidate: Any
    sample: Any
    module: str | None
    contract: dict[str, Any] = field(default_factory=dict)
    """What the candidate does not claim, as arguments of the audit."""


def planted(seed: int, *, draws: int = 1, families: tuple[str, ...] = tuple(FAMILIES)) -> Iterator[Twin]:
    """Every mistake in every family it fits, at a module drawn by the seed; and weights moved by a known amount."""
    for draw in range(draws):
        root = seed * 1000 + draw
        for family in families:
            model, x = reference(family, root), sample(family, root)
            yield from _in_modules(family, model, x, root)
            for name, spoil in WHOLE.items():
                twin = copy.deepcopy(model)
                spoil(twin, x)
                yield Twin(f"{family}/{name}/{root}", family, model, twin, x, "*")
        for name, (kind, how) in WRONG_STEPS.items():
            yield _stepped(name, root, Stepping(_net(root), kind, **how), "*")


def _in_modules(family: str, model: nn.Module, x: Any, root: int) -> Iterator[Twin]:
    random = numpy_generator(root, "plants", family)
    for name, fits, plant in [*PLANTS, *(OF_ENERGIES if family in ("energy", "forces") else ())]:
        places = [n for n, m in model.named_modules() if n and fits(m)]
        if not places:
            continue
        place = str(random.choice(places))
        twin = copy.deepcopy(model)
        plant(twin.get_submodule(place))
        # Forces are made by a backward pass inside the model: its result is an output of the whole model.
        inside = family == "forces" and name in OF_GRADIENTS
        expected = "*" if name in ("stale weights", "curvature") or inside else place
        yield Twin(f"{family}/{name}/{root}", family, model, twin, x, expected)
    weights = [n for n, p in model.named_parameters() if p.numel() > 1]
    for level in LEVELS:
        weight = str(random.choice(weights))
        moved = perturbed(model, x, weight, level, root)
        if moved is not None:
            owner = weight.rpartition(".")[0] or "(model)"
            yield Twin(f"{family}/weight x{level:g}/{root}", family, model, moved, x, owner)


def healthy(
    seed: int, *, draws: int = 1, families: tuple[str, ...] = tuple(FAMILIES), compiled: bool = False,
    known: Container[str] = (),
) -> Iterator[Twin]:  # fmt: skip
    """The same computation in another way; those that take a compiler or an exporter once per seed, if asked for.

    Twins whose names are ``known`` are not made again.
    """
    for draw in range(draws):
        root = seed * 1000 + draw
        slow = {n: make for n, make in COMPILED.items() if compiled and draw == 0 and n not in absent()}
        for family in families:
            model, x = reference(family, root), sample(family, root)
            for name, make in {**REWRITINGS, **slow}.items():
                candidate = None if f"{family}/{name}/{root}" in known else make(model, x, family)
                if candidate is not None:
                    contract = unclaimed(name)
                    yield Twin(f"{family}/{name}/{root}", family, model, candidate, x, None, contract)
        for name, how in STEPS.items():
            yield _stepped(name, root, Stepping(_net(root), torch.optim.AdamW, **how), None)


def _net(root: int) -> nn.Module:
    return reference("mlp", root)


def _stepped(name: str, root: int, twin: nn.Module, module: str | None) -> Twin:
    plain = Stepping(_net(root), torch.optim.AdamW, foreach=False)
    x = normal(root, 9, 8)
    return Twin(f"optimiser/{name}/{root}", "optimiser", plain, twin, x, module, {"gradients": False})


def perturbed(model: nn.Module, x: Any, weight: str, level: float, seed: int) -> nn.Module | None:
    """A copy with one weight moved so that the outputs are off by ``level`` allowances; None if they do not react."""
    leaves = [leaf for _, leaf in tree.leaves(x)]
    question = Inquiry(x, tuple(str(i) for i in range(len(leaves))), None, seed, 0)
    wide, nudged = duplicate(model, dtype=torch.float64), duplicate(model, dtype=torch.float64)
    nudge_weights(nudged, torch.float32, seed)
    truth = Truth(question.ask(wide, leaves, torch.float64), question.ask(model, leaves, None),
                  question.ask(nudged, nudged_leaves(leaves, torch.float32, seed), torch.float64))  # fmt: skip
    names = [n for n, y in truth.exact.items() if n.kind is Kind.OUTPUT and y.is_floating_point()]
    allowed = {n: SAFETY * float(truth.scale(n).norm()) for n in names}
    size = 1e-4
    for _ in range(4):
        other = duplicate(model, dtype=torch.float64)
        _move(other, weight, size)
        moved = question.ask(other, leaves, torch.float64)
        shares = [float((moved[n] - truth.exact[n]).norm()) / allowed[n] for n in names if allowed[n]]
        if not shares or not max(shares) > 0:
            return None
        size *= level / max(shares)
    twin = copy.deepcopy(model)
    _move(twin, weight, size)
    return twin


def _move(model: nn.Module, weight: str, size: float) -> None:
    with torch.no_grad():
        flat = dict(model.named_parameters())[weight].view(-1)
        flat[flat.numel() // 2] += size
