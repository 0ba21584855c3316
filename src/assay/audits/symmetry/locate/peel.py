"""Peels a broken model: mends the first guilty module in a copy of the pass, goes on, and names the next one.

Mending a module means that at gx its output (or what it was given) is replaced by rho(g) times what it was at x. What
is broken behind it then shows by itself, and the final error falls by the share the module owns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.audits.symmetry.explain.candidates import Reshaped, candidates
from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.locate.derived import patched, plain_outputs
from assay.audits.symmetry.locate.localise import EventFit, Location, by_input, test_event
from assay.audits.symmetry.measure.rounding import acted
from assay.audits.symmetry.representations.base import Representation
from assay.audits.symmetry.subject import Subject
from assay.probe.hooks import watching
from assay.probe.rounding import VANISHES
from assay.probe.subject import Leaves, Precision
from assay.probe.trace import Event, Pass, record
from assay.probe.values import difference

MOST = 6
"""Mends at most: a model with more defects than that is reviewed by other means."""
TRIED = 4
"""Representations tried per module: a broken output may lie nearer to a wrong kind than to its own."""
EXPLAINED = 1e-3
"""Share of the first error below which everything is mended, if rounding does not say so before."""
Key = tuple[str, str, int]
Mends = dict[Key, list[Representation]]


@dataclass(frozen=True)
class Peel:
    """A guilty module, and the share of the final error that went away when it was mended."""

    module: str
    where: str
    share: float


def peel(subject: Subject, location: Location, leaves: Leaves, *, element: Elements, group: Group) -> list[Peel]:
    """The guilty modules in order; only the first if mending does not explain the whole error."""
    if location.first is None:
        return []
    work = _Work(subject, location, leaves, element=element, group=group)
    place: EventFit | None = location.first
    mends: Mends = {}
    before = first = work.error(work.passes({}))
    found: list[Peel] = []
    while place is not None and len(mends) < MOST and before > work.rounding:
        reps, after, following = work.mended(place, mends)
        mends = {**mends, place.event.key: reps}
        share = (before - after) / first
        if found and found[-1].module == place.blamed:  # its own code hands the same defect to several modules
            found[-1] = Peel(found[-1].module, found[-1].where, found[-1].share + share)
        else:
            found.append(Peel(place.blamed, _where(place), share))
        before, place = after, following
    whole = before <= max(work.rounding, EXPLAINED * first)
    return found if whole else found[:1]


class _Work:
    def __init__(
        self, subject: Subject, location: Location, leaves: Leaves, *, element: Elements, group: Group
    ) -> None:
        self.subject, self.element, self.group = subject, element, group
        self.moved = [m if m is x else m[0] for m, x in zip(subject.transformed(leaves, element), leaves, strict=True)]
        self.best: Precision = subject.precisions[-1]
        self.here = {p: record(subject, leaves, subject.twin(p), subject.dtype(p)) for p in subject.precisions}
        self.batch = subject.rows_of(leaves)
        self.modules = dict(subject.twin(self.best).named_modules())
        self.excused = {place.event.key for place in location.places if place.consistent and not place.fits}
        self.counted = plain_outputs(subject, leaves)
        self.close = 64 * torch.finfo(subject.low_dtype).eps if self.best == "low" else 0.0
        self.rounding = self._rounding()

    def passes(self, mends: Mends) -> dict[Precision, Pass]:
        """The model at gx with some modules mended, in every precision."""
        found: dict[Precision, Pass] = {}
        for precision in self.subject.precisions:
            twin, dtype = self.subject.twin(precision), self.subject.dtype(precision)
            values = {key: self._carried(precision, key, reps) for key, reps in mends.items()}
            with _replacing(twin, values):
                found[precision] = record(self.subject, self.moved, twin, dtype)
        return found

    def mended(self, place: EventFit, mends: Mends) -> tuple[list[Representation], float, EventFit | None]:
        """The kind of feature under which mending this place gets furthest, the error left, what is next to blame."""
        best: tuple[tuple[bool, int, float], list[Representation], float, EventFit | None] | None = None
        for reps in self._options(place.event):
            there = self.passes({**mends, place.event.key: reps})
            error = self.error(there)
            done = error <= self.rounding
            position, following = (len(self.here[self.best].events), None) if done else self._next(there, place)
            score = (done, position, -error)
            if best is None or score > best[0]:
                best = (score, reps, error, following)
            if done:
                break
        assert best is not None
        return best[1], best[2], best[3]

    def error(self, there: dict[Precision, Pass]) -> float:
        """|f(gx) - rho(g) f(x)| over all declared outputs, in the best precision."""
        total = 0.0
        for index in self.counted:
            carried = acted(self.subject.output(index), self.element, self.here[self.best].outputs[index])[0]
            total += float(difference(there[self.best].outputs[index], carried).abs().double().square().sum())
        return float(total**0.5)

    def _rounding(self) -> float:
        """Ten roundings of the low precision at x: a mended model is not exact, it mixes values of two passes."""
        low, high = self.here["low"], self.here[self.best]
        gaps = [difference(low.outputs[i], high.outputs[i]).abs().double() for i in self.counted]
        if self.best == "low":
            eps = torch.finfo(self.subject.low_dtype).eps
            gaps = [64 * eps * high.outputs[i].abs().double() for i in self.counted]
        return 10 * float(sum(float(gap.square().sum()) for gap in gaps) ** 0.5)

    def _next(self, there: dict[Precision, Pass], place: EventFit) -> tuple[int, EventFit | None]:
        events, others = self.here[self.best].events, there[self.best].events
        start = next((i for i, event in enumerate(events) if event.key == place.event.key), 0) + 1
        lows = [{event.key: event for event in run["low"].events} for run in (self.here, there)]
        for position in range(start, min(len(events), len(others))):
            event, other = events[position], others[position]
            if event.key != other.key or event.key in self.excused:
                continue
            rough: list[Event | None] = [one.get(event.key) for one in lows] if self.best == "high" else [None, None]
            module = self.modules.get(event.module)
            found = test_event(
                event, [other], lows=rough, elements=self.element, group=self.group, module=module, batch=self.batch
            )
            if found is not None and not found.consistent:
                return position, found
        return len(events), None

    def _options(self, event: Event) -> list[list[Representation]]:
        """Kinds a feature may have: those of what went into the module, then the best fits of what came out.

        Several tensors take their n-th best together.
        """
        there = self.passes({})[self.best].events
        ranked = self._ranked(event.key, there)
        count = min(TRIED, max(len(one) for one in ranked))
        found = [[one[min(number, len(one) - 1)] for one in ranked] for number in range(count)]
        if event.kind == "exit":
            into = self._ranked(("enter", event.module, event.call), there)
            shapes = [tuple(x.shape) for _, x in self._event(self.best, ("enter", event.module, event.call)).tensors]
            kinds = {shape: one[0] for shape, one in zip(shapes, into, strict=True) if len(one) == 1}
            wanted = [tuple(x.shape) for _, x in self._event(self.best, event.key).tensors]
            if all(shape in kinds for shape in wanted):
                found.insert(0, [kinds[shape] for shape in wanted])
        return found

    def _ranked(self, key: Key, events: list[Event]) -> list[list[Representation]]:
        """For each tensor of an event the kinds it may be of, the best fit first; that one alone if it is whole."""
        here, there = self._event(self.best, key), next(event for event in events if event.key == key)
        ranked: list[list[Representation]] = []
        for (_, a), (_, b) in zip(here.tensors, there.tensors, strict=True):
            shape, module = tuple(by_input(a, self.batch).shape), self.modules.get(key[1])
            kinds = [Reshaped(r, shape, plain=True) for r in candidates(shape, self.element, self.group, module=module)]
            gaps = [float((self._act(kind, a) - b).abs().double().norm().nan_to_num(nan=1e300)) for kind in kinds]
            order = sorted(range(len(kinds)), key=lambda i: gaps[i])
            # What is whole has one kind: mended as another, the transformation itself would be undone.
            whole = gaps[order[0]] <= max(VANISHES, self.close) * float(b.abs().double().norm())
            ranked.append([kinds[i] for i in (order[:1] if whole else order)])
        return ranked

    def _carried(self, precision: Precision, key: Key, reps: list[Representation]) -> list[Tensor]:
        tensors = [tensor for _, tensor in self._event(precision, key).tensors]
        return [self._act(rep, tensor) for rep, tensor in zip(reps, tensors, strict=True)]

    def _act(self, rep: Representation, x: Tensor) -> Tensor:
        return rep.act(self.element, x.unsqueeze(0))[0]

    def _event(self, precision: Precision, key: Key) -> Event:
        return next(event for event in self.here[precision].events if event.key == key)


@contextlib.contextmanager
def _replacing(model: nn.Module, values: dict[Key, list[Tensor]]) -> Iterator[None]:
    """Hooks that put other tensors into chosen calls for the length of the block."""
    counts: dict[tuple[str, str], int] = {}

    def turn(kind: str, name: str) -> list[Tensor] | None:
        number = counts.get((kind, name), 0)
        counts[kind, name] = number + 1
        return values.get((kind, name, number))

    def enter(name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
            new = turn("enter", name)
            return None if new is None else patched((args, kwargs), new)

        return hook

    def leave(name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            new = turn("exit", name)
            return None if new is None else patched(output, new)

        return hook

    with watching(model, enter, leave):
        yield


def _where(place: EventFit) -> str:
    event = place.event
    if event.kind == "enter" and event.module:
        return f"{event.parent or '(model)'} (its own code, before it calls {event.label})"
    return event.label
