"""Where the symmetry breaks, in any model: methods A (candidate representations) and B (Gram matrices).

Every module is watched while the model sees x and gx. A tensor is consistent if some candidate representation carries
its value at x to its value at gx within rounding (A), or if the inner products between inputs are kept (B), which needs
no representation at all but holds only for orthogonal ones. The first inconsistent event names the module.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.audits.symmetry.explain.candidates import Conjugate, candidates, moving_parts
from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.measure.rounding import is_constant
from assay.audits.symmetry.representations.base import Linear, Representation
from assay.audits.symmetry.subject import Subject
from assay.errors import InputError
from assay.probe.rounding import VANISHES
from assay.probe.subject import Leaves, Precision
from assay.probe.trace import Event, Pass, record
from assay.probe.values import jittered
from assay.seeding import torch_generator

CLOSE = 0.01
"""A candidate that is off by less than this is the representation, broken a little: inner products, in which small
errors drown, may then not overrule it."""
MARGINAL, CONSTANT = 10.0, 1e-3
"""A place off by no more than this many rounding bounds, and by less than this share of what comes behind it, holds a
constant in low precision (the basis of a steerable layer): it is not what breaks the output."""
WEIGHED = 6
"""Candidates weighed in full: those that come nearest at one element and one input."""
VARIANTS = 4
"""Inputs a model without a batch axis is traced at: the worst one and noisy copies of it, for the Gram test."""


@dataclass(frozen=True)
class EventFit:
    """How one event fares: the best candidate, its error over its rounding bound, and the Gram test."""

    event: Event
    representation: Representation | None
    excess: float
    """Float64 error of the best candidate over the rounding bound of the low precision; above 1 it is inconsistent."""
    relative: float
    floor: float
    gram_excess: float | None
    centred: bool = False
    """Inner products were taken after centring (translations): a constant that should not be there passes too."""
    added: bool = False
    """Under ``representation`` the error is the same for every input: a constant was added that does not follow."""
    index: int = 0
    """Which tensor of the event this is about: the worst."""

    @property
    def consistent(self) -> bool:
        """Some candidate fits, or none comes close and every inner product is kept.

        A bias on vectors of centred points keeps them, so what is a representation plus a constant is not excused.
        """
        kept = self.gram_excess is not None and self.gram_excess <= 1.0 and not self.centred
        return self.fits or (kept and self.relative > CLOSE and not self.added)

    @property
    def blamed(self) -> str:
        """The module to blame: of an inconsistent input, the one whose code made it."""
        return self.event.parent if self.event.kind == "enter" else self.event.module

    @property
    def fits(self) -> bool:
        """Some candidate representation fits within rounding."""
        return self.excess <= 1.0


@dataclass(frozen=True)
class Location:
    """The first inconsistent module of one generator, by A and B together, and the whole profile."""

    generator: str
    places: tuple[EventFit, ...]
    first: EventFit | None
    first_unexpected: EventFit | None
    elements: Elements
    here: Traced
    there: Sequence[Traced]
    group: Group
    """The group with the sizes of the case that was traced."""

    @property
    def module(self) -> str | None:
        """Name of the module to blame: the first that fits no representation, else the first of an unusual one."""
        place = self.first or self.first_unexpected
        return None if place is None else place.blamed

    @property
    def where(self) -> str:
        """A phrase for people."""
        if self.first is None:
            return "no single module"
        event = self.first.event
        if event.kind == "enter" and event.module:
            return f"{event.parent or '(model)'} (its own code, before it calls {event.label})"
        return event.label


@dataclass(frozen=True)
class Traced:
    """Passes in both precisions at one input or transformed input, every tensor [inputs, ...]."""

    high: Sequence[Event]
    low: Mapping[tuple[str, str, int], Event]
    passes: Sequence[Pass]


def locate(subject: Subject, generator: str, case: int, *, rows: list[int], elements: Elements) -> Location:
    """Traces the model at some rows of a case and at their transforms by a few elements, and tests every tensor."""
    inputs, whole = _inputs(subject, case, rows), elements
    group = subject.group(case)
    here = _traced(subject, inputs)
    there = []
    for number in range(elements.count):
        moved = [_moved(subject, leaves, elements[number]) for leaves in inputs]
        there.append(_traced(subject, moved))
    modules = dict(subject.twin(subject.precisions[-1]).named_modules())
    batch = len(rows) if subject.rows else len(inputs)
    places: list[EventFit] = []
    known: dict[tuple[int, ...], EventFit] = {}
    every = there
    picture = False
    for position, event in enumerate(here.high):
        if not picture and any(not place.consistent and place.excess > MARGINAL for place in places):
            # Behind the first guilty module the profile is a picture: one element draws it.
            picture, elements, there = True, elements[0], there[:1]
        others = [traced.high[position] if position < len(traced.high) else None for traced in there]
        if any(other is None or other.key != event.key or not _same_shapes(event, other) for other in others):
            continue
        lows = [here.low.get(event.key), *[traced.low.get(event.key) for traced in there]]
        found = [other for other in others if other is not None]
        same = tuple(id(tensor) for _, tensor in event.tensors)
        if same in known:
            places.append(dataclasses.replace(known[same], event=event))
            continue
        place = test_event(
            event, found, lows=lows, elements=elements, group=group, module=modules.get(event.module), batch=batch,
            picture=picture,
        )
        if place is not None:
            places.append(place)
            known[same] = place
    first = _first([place for place in places if not place.consistent])
    first = first or next((place for place in places if not place.fits), None)
    unexpected = next((place for place in places if not place.fits or _unusual(place.representation)), None)
    return Location(generator, tuple(places), first, unexpected, whole, here, every, group)


def _first(broken: list[EventFit]) -> EventFit | None:
    """The first that is not a constant in low precision before something a thousand times as large."""
    worst = max((place.relative for place in broken), default=0.0)
    return next((one for one in broken if one.excess > MARGINAL or one.relative >= CONSTANT * worst), None)


def _inputs(subject: Subject, case: int, rows: list[int]) -> list[Leaves]:
    leaves = subject.cases[case]
    if subject.rows:
        size = subject.batch(case)
        return [[x[rows] if isinstance(x, Tensor) and x.ndim and len(x) == size else x for x in leaves]]
    generator = torch_generator(subject.seed, "variants")
    count = 2 if subject.large else VARIANTS
    return [leaves, *[jittered(leaves, generator) for _ in range(count - 1)]]


def _moved(subject: Subject, leaves: Leaves, element: Elements) -> Leaves:
    moved = subject.transformed(leaves, element)
    return [m if m is x else m[0] for m, x in zip(moved, leaves, strict=True)]


def _traced(subject: Subject, inputs: list[Leaves]) -> Traced:
    """Events with the inputs stacked along a new first axis if the model has no batch axis."""
    by_precision: dict[Precision, list[Pass]] = {}
    for precision in subject.precisions:
        twin, dtype = subject.twin(precision), subject.dtype(precision)
        by_precision[precision] = [record(subject, leaves, twin, dtype) for leaves in inputs]
    high = _stacked(by_precision[subject.precisions[-1]], subject.rows)
    # Without float64 there is nothing to measure the rounding of the low precision with.
    rough = _stacked(by_precision["low"], subject.rows) if subject.high is not None else []
    low = {event.key: event for event in rough}
    return Traced(high, low, by_precision[subject.precisions[-1]])


def _stacked(passes: list[Pass], rows: bool) -> list[Event]:
    if rows:
        return passes[0].events
    stacked = []
    for position, event in enumerate(passes[0].events):
        # Noisy copies may take another path (a neighbour more or less): they are left out from there on.
        twins = [p.events[position] for p in passes if position < len(p.events) and p.events[position].key == event.key]
        twins = [twin for twin in twins if _same_shapes(event, twin)]
        if len(twins) < len(passes):
            twins = [event]
        tensors = tuple(
            (name, torch.stack([twin.tensors[i][1] for twin in twins])) for i, (name, _) in enumerate(event.tensors)
        )
        stacked.append(Event(event.kind, event.module, event.call, event.parent, tensors))
    return stacked


def _same_shapes(a: Event, b: Event) -> bool:
    return [t.shape for _, t in a.tensors] == [t.shape for _, t in b.tensors]


def test_event(
    event: Event,
    there: list[Event],
    *,
    lows: list[Event | None],
    elements: Elements,
    group: Group,
    module: torch.nn.Module | None,
    batch: int,
    picture: bool = False,
) -> EventFit | None:
    """The worst tensor of an event; for a ``picture`` a constant is looked for only where it decides the verdict."""
    worst: EventFit | None = None
    for index, (_, here) in enumerate(event.tensors):
        if here.ndim == 0 or not all(torch.isfinite(other.tensors[index][1]).all() for other in there):
            continue
        here_view = by_input(here, batch)
        shape = tuple(here_view.shape)
        moved = torch.stack([other.tensors[index][1].reshape(shape) for other in there])
        low = None
        if all(one is not None and _same_shapes(one, event) for one in lows):
            low = [one.tensors[index][1].reshape(shape) for one in lows if one is not None]
        place = _best(event, here_view, there=moved, low=low, elements=elements, group=group, module=module,
                      picture=picture)
        if worst is None or place.excess > worst.excess:
            worst = dataclasses.replace(place, index=index)
    return worst


def _unusual(rep: Representation | None) -> bool:
    """A representation few layers have on purpose: what changes sign under reflections."""
    return isinstance(rep, Conjugate) or (isinstance(rep, Linear) and rep.pseudo)


def by_input(h: Tensor, batch: int) -> Tensor:
    """h as [inputs, ...]: nodes merged with the batch are taken apart; what has no batch axis is one input."""
    if not h.ndim or len(h) % batch:
        return h.unsqueeze(0)
    return h.reshape(batch, -1, *h.shape[1:]) if len(h) > batch else h


def _best(
    event: Event,
    here: Tensor,
    *,
    there: Tensor,
    low: list[Tensor] | None,
    elements: Elements,
    group: Group,
    module: torch.nn.Module | None,
    picture: bool,
) -> EventFit:
    tried = candidates(tuple(here.shape), elements, group, module=module)
    if here.shape[0] > 1:
        # Another convention (the inverse element) is a valid representation too.
        tried += [Conjugate(rep, group) for rep in tried[1:4]]
    scores: dict[int, tuple[float, float, float]] = {}
    for i in _nearest_first(tried, elements, here, there):
        scores[i] = _excess(tried[i], elements, here, there=there, low=low)
        if scores[i][0] <= 1 or len(scores) == WEIGHED:
            break
    best = min(scores, key=lambda i: scores[i][0])
    gram = _gram_excess(elements, group, here, there=there, low=low) if scores[best][0] > 1 else None
    centred = "translation" in moving_parts(elements, group)
    place = EventFit(event, tried[best], *scores[best], gram, centred)
    if place.fits or (picture and not place.consistent):
        return place
    # A large constant makes a wrong representation fit best; an error that is the same for every input gives it away.
    plus = _constants(tried, elements, here, there)
    if not plus:
        return place
    if plus[0] not in scores:
        scores[plus[0]] = _excess(tried[plus[0]], elements, here, there=there, low=low)
    excess = scores[plus[0]]
    return EventFit(event, tried[plus[0]], *excess, gram if excess[0] > 1 else None, centred, added=True)


def _nearest_first(tried: list[Representation], elements: Elements, here: Tensor, there: Tensor) -> Iterator[int]:
    """The candidates in the order of their error at one element and one input, which is a fraction of the work.

    One without any error is not to be beaten: the others are looked at only if it is not enough.
    """
    gaps: list[float] = []
    for i, rep in enumerate(tried):
        gap = _gap(rep, elements[0], here[:1], there[:1, :1])
        gaps.append(math.inf if gap is None else float(_norm(gap).nan_to_num(nan=math.inf)))
        if not gaps[-1]:
            yield i
    yield from sorted((i for i, gap in enumerate(gaps) if gap), key=lambda i: gaps[i])


def _constants(tried: list[Representation], elements: Elements, here: Tensor, there: Tensor) -> list[int]:
    """The first candidate under which h(gx) - rho(g) h(x) is there and the same for every input, where h is not.

    Entries that are the same for every input (the norm of a normalised vector) tell nothing about rho.
    """
    varies = (there - there.mean(dim=1, keepdim=True)).abs() > VANISHES * there.abs().max()
    told = varies.any(dim=1, keepdim=True)
    for i, rep in enumerate(tried):
        first = _gap(rep, elements[0], here, there[:1])
        if first is None or not (is_constant(first * told[:1]) or not bool((first * told[:1]).any())):
            continue  # not at the first element, so not at all of them
        gap = _gap(rep, elements, here, there)
        if gap is not None and is_constant(gap * told):
            return [i]
    return []


def _gap(rep: Representation, elements: Elements, here: Tensor, there: Tensor) -> Tensor | None:
    """h(gx) - rho(g) h(x), where the group has something to say; None for a guess that does not even fit the shape."""
    expanded = here.expand(elements.count, *here.shape)
    try:
        gap, mask = there - rep.act(elements, expanded), rep.mask(elements, expanded)
    except (InputError, RuntimeError, IndexError):
        return None
    return gap if mask is None else gap * mask


def _excess(
    rep: Representation, elements: Elements, here: Tensor, *, there: Tensor, low: list[Tensor] | None
) -> tuple[float, float, float]:
    """Error over rounding bound, error and bound relative to the size of the tensor; the worst element counts."""
    expanded = here.expand(elements.count, *here.shape)
    try:
        carried = rep.act(elements, expanded)
        mask = rep.mask(elements, expanded)
    except (InputError, RuntimeError, IndexError):  # a guess that does not even fit the shape
        return math.inf, math.inf, 0.0
    keep: Callable[[Tensor], Tensor] = (lambda t: t) if mask is None else (lambda t: t * mask)
    error = _norm(keep(there - carried))
    size = float(_norm(keep(there)).max()) or 1.0
    if low is None:
        bound = torch.full_like(error, 64 * torch.finfo(torch.float32).eps * size)
    else:
        bound = _norm(keep(torch.stack(low[1:]) - there))
        bound = bound + _norm(keep(rep.act(elements, low[0].expand_as(expanded)) - carried))
    ratio = torch.where(error == 0, torch.zeros_like(error), error / bound).max()
    excess = float(ratio) if not bool(torch.isnan(error).any()) else math.inf
    return excess, float(error.max()) / size, float(bound.max()) / size


def _gram_excess(
    elements: Elements, group: Group, here: Tensor, *, there: Tensor, low: list[Tensor] | None
) -> float | None:
    """B: |<h(x_i), h(x_j)> - <h(g x_i), h(g x_j)>| over its rounding bound, or None where B does not apply."""
    moving = moving_parts(elements, group)
    if len(here) < 2 or low is None or not _orthogonal(elements, moving):
        return None
    centre = "translation" in moving
    gram, moved = _gram(here.unsqueeze(0), centre), _gram(there, centre)
    bound = _norm(_gram(low[0].unsqueeze(0), centre) - gram) + _norm(_gram(torch.stack(low[1:]), centre) - moved)
    error = _norm(moved - gram)
    return float(torch.where(error == 0, torch.zeros_like(error), error / bound).max())


def _gram(h: Tensor, centre: bool) -> Tensor:
    flat = h.reshape(*h.shape[:2], -1)
    if centre:
        flat = flat - flat.mean(dim=1, keepdim=True)
    return flat @ flat.mH


def _orthogonal(elements: Elements, moving: list[str]) -> bool:
    for part in moving:
        value = elements.parts[part]
        if part in ("scale", "crop"):
            return False
        if value.ndim >= 3:
            gap = value @ value.mH - torch.eye(value.shape[-1], dtype=value.dtype)
            if float(gap.abs().max()) > 1e-9:
                return False
    return True


def _norm(x: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(x.reshape(len(x), -1), dim=-1)
    return norms
