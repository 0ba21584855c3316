"""How far outputs moved that should not have, and whether rounding explains it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.audits.dependence.changes import MOST_PLACES, Change, along, changed, replaced, timed
from assay.audits.dependence.declarations import Positional
from assay.probe import tree
from assay.probe.containment import attempt
from assay.probe.rounding import VANISHES, perturbed_floor
from assay.probe.subject import Leaves, Precision, Probe
from assay.probe.values import difference, exact, exact_spread, is_continuous
from assay.seeding import torch_generator

ESTIMATE_SAFETY = 8.0
"""Without float64 rounding is an estimate from perturbed copies of the model: a leak is called only this far above."""


@dataclass(frozen=True)
class Movement:
    """The largest movement of one output where it must not move, under one change."""

    label: str
    output: str
    largest: float
    relative: float
    """Divided by the spread of the output."""
    allowed: float
    leaks: bool
    why: str
    index: tuple[int, ...] = ()


@dataclass(frozen=True)
class Influence:
    """Who sees whom: the movement of output place ``outputs[i]`` when input place ``places[j]`` changes."""

    outputs: tuple[int, ...]
    places: tuple[int, ...]
    grid: tuple[tuple[float, ...], ...]

    def seen(self, output: int, place: int) -> float:
        """How far one output place moved with one input place."""
        return self.grid[self.outputs.index(output)][self.places.index(place)]


class Passes:
    """Runs of a probe, each pair of inputs and precision once."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self._known: dict[tuple[int, Precision], tuple[Leaves, list[Tensor]]] = {}

    def __call__(self, leaves: Leaves, precision: Precision) -> list[Tensor]:
        if leaves is self.probe.cases[0]:
            return self.probe.base(0, precision)
        key = (id(leaves), precision)
        if key not in self._known:
            self._known[key] = (leaves, self.probe.values(leaves, precision))
        return self._known[key][1]


def movements(passes: Passes, change: Change) -> list[Movement]:
    """One movement per output of which the change claims something."""
    before, after = passes(change.base, "low"), passes(change.leaves, "low")
    found = []
    for index, name in enumerate(passes.probe.output_names):
        here, there = change.here(before[index]), change.there(after[index])
        if here.shape != there.shape:
            found.append(Movement(change.label, name, math.inf, math.inf, 0.0, True,
                                  f"its shape went from {tuple(here.shape)} to {tuple(there.shape)}"))  # fmt: skip
            continue
        kept = change.keep(index, here)
        if kept is None or not bool(kept.any()):
            continue
        found.append(_movement(passes, change, index=index, here=here, there=there, kept=kept))
    return found


def _movement(passes: Passes, change: Change, *, index: int, here: Tensor, there: Tensor, kept: Tensor) -> Movement:
    name, gap = passes.probe.output_names[index], _gap(here, there, kept)
    largest, place = _largest(gap)
    spread = exact_spread(here) if is_continuous(here) else 1.0
    if largest == 0:
        return Movement(change.label, name, 0.0, 0.0, 0.0, False, "did not move by a single bit")
    if not math.isfinite(largest):
        return Movement(change.label, name, largest, math.inf, 0.0, True, "became NaN or infinite", place)
    if not is_continuous(here):
        return Movement(change.label, name, largest, largest, 0.0, True, "a discrete output changed", place)
    if passes.probe.high is None:
        floor = max(float(f.max()) for f in perturbed_floor(passes.probe, 0, rows=False))
        allowed = ESTIMATE_SAFETY * floor
        why = f"moved by {largest:.2g}; an estimate of rounding allows {allowed:.2g} (no float64 run)"
        return Movement(change.label, name, largest, largest / spread, allowed, largest > allowed, why, place)
    high_here = change.here(passes(change.base, "high")[index])
    high_there = change.there(passes(change.leaves, "high")[index])
    exactly, place = _largest(_gap(high_here, high_there, kept))
    rounding = _largest(_gap(here, high_here, kept))[0] + _largest(_gap(there, high_there, kept))[0]
    allowed = allowance(passes.probe, rounding, same_shape=change.same_shape)
    leaks = decided(passes.probe, exactly, rounding, same_shape=change.same_shape)
    why = f"moved by {exactly:.2g} in float64; rounding explains {allowed:.2g}"
    return Movement(change.label, name, max(exactly, largest if leaks else 0.0), exactly / spread, allowed, leaks, why,
                    place)  # fmt: skip


def allowance(probe: Probe, rounding: float, *, same_shape: bool) -> float:
    """How far an output may move in float64, given what rounding of the low precision did to both runs.

    The same computation on the same shapes rounds alike: what stays in float64 is a dependence even below float32
    rounding. Other shapes sum in another order: only what exceeds the rounding of both runs is one.
    """
    finer = torch.finfo(torch.float64).eps / torch.finfo(probe.low_dtype).eps
    return rounding * (math.sqrt(finer) if same_shape else 1.0)


def decided(probe: Probe, moved: float, rounding: float, *, same_shape: bool) -> bool:
    """Whether a movement is a leak."""
    return not moved <= allowance(probe, rounding, same_shape=same_shape)


def _gap(a: Tensor, b: Tensor, kept: Tensor) -> Tensor:
    gap = difference(a, b).abs()
    # Equal infinities (a masked score) are no movement; a NaN that was there before is none either.
    same = (a == b) | (torch.isnan(a) & torch.isnan(b)) if is_continuous(a) else a == b
    return torch.where(kept & ~same, gap, torch.zeros_like(gap))


def _largest(gap: Tensor) -> tuple[float, tuple[int, ...]]:
    if not gap.numel():
        return 0.0, ()
    flat = torch.where(torch.isnan(gap), torch.full_like(gap, math.inf), gap).flatten()
    at = int(flat.argmax())
    return float(flat[at]), tuple(int(i) for i in torch.unravel_index(torch.tensor(at), gap.shape))


def one_place_at_a_time(probe: Probe, depends: Positional) -> Change | None:
    """The first row many times over, in each copy another place changed: the whole matrix of influence in one pass."""
    numbers, length = timed(probe, depends.inputs, depends.inputs_dim)
    leaves = probe.cases[0]
    rows = probe.first_axis(leaves)
    if depends.inputs_dim == 0 or depends.outputs_dim == 0:
        return None
    places = shown_places(length)
    many = len(places)
    base = [leaf[:1].repeat(many, *[1] * (leaf.ndim - 1))
            if isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == rows else leaf for leaf in leaves]  # fmt: skip
    forbidden = torch.zeros(many, length, dtype=torch.bool)
    forbidden[torch.arange(many), torch.tensor(places)] = True
    generator = torch_generator(probe.seed, "influence")
    where = {n: along(base[n], depends.inputs_dim, forbidden) for n in numbers}
    new = {n: changed(base[n], where[n], "by much", generator) for n in numbers}
    kept = torch.tensor([[not depends.allows(t, s) for t in range(length)] for s in places])

    def keep(index: int, y: Tensor) -> Tensor | None:
        if y.ndim <= depends.outputs_dim or y.shape[depends.outputs_dim] != length or len(y) != many:
            return None
        return along(y, depends.outputs_dim, kept)

    return Change("one place at a time", base, replaced(base, new), keep, where)


def shown_places(length: int) -> list[int]:
    """All places of a short sequence; of a long one some, with both ends and their neighbours."""
    if length <= MOST_PLACES:
        return list(range(length))
    middle = [round(1 + i * (length - 3) / (MOST_PLACES - 3)) for i in range(MOST_PLACES - 2)]
    return sorted({0, *middle, length - 2, length - 1})


def influence(passes: Passes, change: Change, depends: Positional) -> Influence | None:
    """The matrix of influence, over all outputs that have places; relative to the spread of each output."""
    _, length = timed(passes.probe, depends.inputs, depends.inputs_dim)
    precision = passes.probe.precisions[-1] if (id(change.leaves), "high") in passes._known else "low"
    before, after = passes(change.base, precision), passes(change.leaves, precision)
    places = shown_places(length)
    total = torch.zeros(length, len(places), dtype=torch.float64)
    seen = False
    for a, b in zip(before, after, strict=True):
        if change.keep(0, a) is None or a.shape != b.shape:
            continue
        seen = True
        every = torch.ones_like(a, dtype=torch.bool)
        gap = _gap(a, b, every)
        gap = gap.movedim(depends.outputs_dim, 1).flatten(2) if a.ndim > 2 else gap.unsqueeze(-1)
        scale = exact_spread(a) if is_continuous(a) else 1.0
        total = torch.maximum(total, gap.amax(-1).T.double() / scale)
    if not seen:
        return None
    rows = tuple(tuple(float(v) for v in total[t]) for t in places)
    return Influence(tuple(places), tuple(places), rows)


def gradient_leak(probe: Probe, change: Change) -> tuple[float, str] | None:
    """Largest share of the gradient that reaches forbidden inputs, with the name of the input; None if not asked.

    The cotangent lives on outputs that must not depend on them: every derivative there has to vanish.
    """
    numbers = [n for n in change.forbidden if is_continuous(change.base[n])]
    if not numbers or not change.same_shape:
        return None
    precision: Precision = probe.precisions[-1]
    model, dtype = probe.twin(precision), probe.dtype(precision)
    fed = probe.fed(change.base, model, dtype, grad=True)
    outputs = tree.tensors(probe.result(fed, model, grad=True))
    generator = torch_generator(probe.seed, "cotangent")
    terms = []
    for index, y in enumerate(outputs):
        kept = change.keep(index, y.detach())
        if kept is not None and y.requires_grad and is_continuous(y):
            u = torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y)
            terms.append((torch.where(kept.to(y.device), u, torch.zeros_like(u)) * y).sum().real)
    if not terms:
        return None
    sources = [fed[n] for n in numbers]
    found: Sequence[Tensor | None] = torch.autograd.grad(torch.stack(terms).sum(), sources, allow_unused=True)
    worst = (0.0, "")
    for n, gradient in zip(numbers, found, strict=True):
        if gradient is None:
            continue
        value = exact(gradient).abs()
        scale = max(float(value.max()), 1e-300)
        share = float(value[change.forbidden[n]].max()) / scale if bool(change.forbidden[n].any()) else 0.0
        if bool(change.forbidden[n].all()):
            share = 1.0 if float(value.max()) > 0 else 0.0
        worst = max(worst, (share, probe.input_names[n] or "the input"))
    return worst


def negligible_share(probe: Probe) -> float:
    """A share of the gradient that rounding explains."""
    return VANISHES if probe.high is not None else 64 * torch.finfo(probe.low_dtype).eps


def reacts(passes: Passes, forbidden: set[int]) -> str:
    """ "" if some output moves when every allowed input changes, else why not (or why it could not be asked)."""
    probe = passes.probe
    leaves = probe.cases[0]
    generator = torch_generator(probe.seed, "sensitivity")
    new = {}
    for n, leaf in enumerate(leaves):
        if n in forbidden or not isinstance(leaf, Tensor) or _structural(probe.input_names[n], leaf):
            continue
        new[n] = changed(leaf, torch.ones_like(leaf, dtype=torch.bool), "by much", generator)
    if not new:
        return ""
    tried = attempt(lambda: passes(replaced(leaves, new), "low"))
    if tried.value is None:
        return ""
    pairs = zip(passes(leaves, "low"), tried.value, strict=True)
    moved = any(a.shape != b.shape or not torch.equal(a, b) for a, b in pairs)
    names = ", ".join(probe.input_names[n] or "the input" for n in new)
    return "" if moved else f"no output reacts to {names}"


def _structural(name: str, leaf: Tensor) -> bool:
    return not is_continuous(leaf) and (leaf.dtype == torch.bool or "mask" in name or "edge" in name or "batch" in name)
