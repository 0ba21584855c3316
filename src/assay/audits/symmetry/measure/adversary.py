"""A search for a worse input and a worse element than random ones: random steps from the worst pair found so far."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from assay.audits.symmetry.facts import EVERYTHING, Facts, Test
from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.measure.endtoend import measure
from assay.audits.symmetry.measure.tolerance import judge
from assay.probe.subject import Leaves
from assay.probe.values import exact_spread
from assay.seeding import torch_generator

PROPOSALS = 16


def attack(facts: Facts) -> list[Test]:
    """The worst test after ``adversarial`` rounds: noise of shrinking width on the input, fresh elements each round.

    Until something breaks every round starts from the given inputs, so that it stays among inputs of their kind.
    It finds breaks that few inputs show; finding none proves nothing more than that none was found.
    """
    subject, rounds = facts.subject, facts.options.adversarial
    generator = torch_generator(facts.options.seed, "adversary")
    leaves, best = list(subject.cases[0]), -1.0
    worst: dict[str, Test] = {}
    for number in range(rounds):
        width = 0.5 ** (number % 8)
        start = leaves if best > 1 else subject.cases[0]
        proposal = start if number == 0 else _nudged(start, width, generator)
        trial = dataclasses.replace(subject, cases=[proposal], _base={})

        def draw(group: Group, n: int = number) -> Elements:
            return group.sample(PROPOSALS, torch_generator(facts.options.seed, "adversary", n))

        try:
            errors = measure(trial, draw, spreads=dict(facts.guards.spreads))
        except RuntimeError:
            continue
        judged = [judge(one, low_dtype=subject.low_dtype, budget=facts.options.budget) for one in errors]
        score = max(one.excess for one in judged)
        if score > best:
            best, leaves = score, proposal
        for one, verdict in zip(errors, judged, strict=True):
            kept = worst.get(one.output)
            if kept is None or verdict.excess > kept.judgement.excess:
                worst[one.output] = Test(f"adversary ({rounds} rounds, {EVERYTHING})", one, verdict)
    return list(worst.values())


def _nudged(leaves: Leaves, width: float, generator: torch.Generator) -> Leaves:
    return [
        (x + width * exact_spread(x) * torch.randn(x.shape, generator=generator, dtype=torch.float64)).to(x.dtype)
        if isinstance(x, Tensor) and x.is_floating_point()
        else x
        for x in leaves
    ]
