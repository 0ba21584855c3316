"""Attacks on a Lipschitz bound: how much can one step stretch a small difference between two states?

At a state s the answer is the largest singular value of the Jacobian of the step, found by power iteration on J^T J
without ever writing J down; rows of the batch are independent, so all of them are attacked at once. The worst state is
searched for: where the relaxation passes, where random states lie, and uphill from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.audits.equilibrium.step_maps import StepMap
from assay.protocols import State
from assay.seeding import torch_generator

Step = Callable[[State], State]


@dataclass(frozen=True)
class Attack:
    """The largest stretch found for each row, and where: ``at_rest`` at the relaxation's end, ``worst`` anywhere."""

    at_rest: tuple[float, ...]
    worst: tuple[float, ...]

    @property
    def lower(self) -> float:
        """A lower bound of the Lipschitz constant over the batch."""
        return max(self.worst)


@dataclass(frozen=True)
class Trace:
    """The largest change of any unit per sweep and row: (sweeps, rows); the states passed, and the end."""

    changes: Tensor
    states: tuple[State, ...]

    @property
    def finite(self) -> bool:
        return bool(torch.isfinite(self.changes).all())

    def settled(self, tolerance: float) -> float:
        """The share of rows that no longer move by more than the tolerance."""
        return float((self.changes[-1] <= tolerance).double().mean())

    def rate(self, floor: float) -> float | None:
        """The factor by which the change shrinks per sweep, of the slowest row; None if it is at rest too soon to tell.

        The geometric mean over the second half of the sweeps that still change a unit by more than ``floor``.
        """
        slowest = None
        for row in self.changes.t():
            moving = (
                int((row > floor).long().sum()) if bool((row > floor).all()) else int((row <= floor).long().argmax())
            )
            half = moving // 2
            if moving - half < 3:
                continue
            ratio = (float(row[moving - 1]) / float(row[half])) ** (1 / (moving - 1 - half))
            slowest = ratio if slowest is None else max(slowest, ratio)
        return slowest


@torch.no_grad()
def trace(subject: StepMap, sweeps: int) -> Trace:
    """The relaxation followed for ``sweeps`` steps; it stops early only where a number is no longer finite."""
    state, changes = subject.start, []
    kept, wanted = [state], {sweeps // 8, sweeps // 2}
    for number in range(sweeps):
        before, state = state, subject.step(state)
        moved = [(new - old).abs().flatten(1).amax(1) for old, new in zip(before, state, strict=True)]
        changes.append(torch.stack(moved).amax(0))
        if not bool(torch.isfinite(changes[-1]).all()):
            break
        if number in wanted:
            kept.append(state)
    return Trace(torch.stack(changes), (*kept, state))


def attack(
    subject: StepMap, path: Trace, *, seed: int, rounds: int = 20, climbs: int = 8, random_states: int = 3
) -> Attack:
    """The largest stretch found from the states of ``path``, from random ones in the box, and uphill from the best."""
    generator = torch_generator(seed, "audit", "stability")
    states = list(path.states) + [_random(subject, path, generator) for _ in range(random_states)]
    drawn = (torch.randn(s.shape, generator=generator, dtype=s.dtype).to(s.device) for s in subject.start)
    direction = _unit(tuple(drawn))
    best = subject.start[0].new_zeros(len(subject.start[0]))
    best_state, best_direction, at_rest = states[0], direction, best
    for number, state in enumerate(states):
        found, turned = _power(subject.step, state, direction, rounds)
        if number == len(path.states) - 1:
            at_rest = found
        better = found > best
        best = torch.where(better, found, best)
        best_state, best_direction = _choose(better, state, best_state), _choose(better, turned, best_direction)
    best = torch.maximum(best, _climb(subject, path, best_state, best_direction, rounds=rounds // 3, climbs=climbs))
    return Attack(tuple(map(float, at_rest)), tuple(map(float, best)))


def _power(step: Step, state: State, direction: State, rounds: int) -> tuple[Tensor, State]:
    """|J u| for the u that power iteration on J^T J turns to, row by row: never more than the true largest value."""
    leaves, after, dual, back = _transposed(step, state)
    stretched = torch.zeros(0)
    for number in range(rounds + 1):
        moved = torch.autograd.grad(back, dual, direction, retain_graph=True, materialize_grads=True)
        stretched = _norms(moved)
        if number < rounds:
            direction = _unit(torch.autograd.grad(after, leaves, moved, retain_graph=True, materialize_grads=True))
    return stretched.detach(), direction


def _transposed(step: Step, state: State) -> tuple[State, State, State, State]:
    """State, step, v and J^T v. The last is linear in v, so its derivative along u is J u: one graph serves both."""
    with torch.enable_grad():
        leaves = tuple(layer.detach().requires_grad_() for layer in state)
        after = step(leaves)
        dual = tuple(torch.zeros_like(layer, requires_grad=True) for layer in after)
        back = torch.autograd.grad(after, leaves, dual, create_graph=True, materialize_grads=True)
    return leaves, after, dual, back


def _stretched(step: Step, state: State, direction: State) -> tuple[State, Tensor]:
    """The state as leaves and |J u| of each row, differentiable in them."""
    leaves, _, dual, back = _transposed(step, state)
    with torch.enable_grad():
        moved = torch.autograd.grad(back, dual, direction, create_graph=True, materialize_grads=True)
        return leaves, _norms(moved)


def _climb(subject: StepMap, path: Trace, state: State, direction: State, *, rounds: int, climbs: int) -> Tensor:
    """Steps uphill in the state, each unit moved by a shrinking share of its range, the direction following."""
    best = _stretched(subject.step, state, direction)[1].detach()
    for number in range(climbs):
        share = 0.5 * 0.7**number
        leaves, stretch = _stretched(subject.step, state, direction)
        if not stretch.requires_grad:  # a linear step stretches the same everywhere
            break
        slopes = torch.autograd.grad(stretch.sum(), leaves, materialize_grads=True)
        moved = tuple(
            (s + share * (high - low) * g.sign()).clamp(low, high)
            for s, g, (low, high) in zip(state, slopes, _ranges(subject, path), strict=True)
        )
        found, turned = _power(subject.step, moved, direction, rounds)
        better = found > best
        best = torch.where(better, found, best)
        state, direction = _choose(better, moved, state), _choose(better, turned, direction)
    return best


def _ranges(subject: StepMap, path: Trace) -> list[tuple[float, float]]:
    """The box of each layer; where it is unknown, the range the relaxation went through."""
    ranges = []
    for layer, box in enumerate(subject.box):
        seen = torch.cat([s[layer].flatten() for s in path.states])
        ranges.append(box if box is not None else (float(seen.min()), float(seen.max())))
    return ranges


def _random(subject: StepMap, path: Trace, generator: torch.Generator) -> State:
    return tuple(
        low + (high - low) * torch.rand(s.shape, generator=generator, dtype=s.dtype).to(s.device)
        for s, (low, high) in zip(subject.start, _ranges(subject, path), strict=True)
    )


def _norms(state: State) -> Tensor:
    squares = torch.stack([layer.square().flatten(1).sum(1) for layer in state]).sum(0)
    return squares.clamp_min(math.ulp(0.0)).sqrt()


def _unit(state: State) -> State:
    norms = _norms(state)
    return tuple(layer / norms.view(-1, *[1] * (layer.dim() - 1)) for layer in state)


def _choose(rows: Tensor, first: State, second: State) -> State:
    return tuple(
        torch.where(rows.view(-1, *[1] * (a.dim() - 1)), a, b).detach() for a, b in zip(first, second, strict=True)
    )
