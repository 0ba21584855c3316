"""What the guilty module does at chosen elements, to fit the cause by exact patterns instead of guessing it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.locate.localise import Location, by_input, test_event
from assay.audits.symmetry.representations.base import Representation
from assay.audits.symmetry.subject import Subject
from assay.probe.rounding import VANISHES
from assay.probe.subject import Leaves, Precision
from assay.probe.trace import Event, Pass, record

PLACES = 6
"""Places of a list that are exchanged with each other: the first, the last and some between."""


LOOSE = 1e-3
"""How near a pattern has to be met where the low precision is all there is."""


@dataclass(frozen=True)
class Fits:
    """Which fits hold at the first guilty module; each is exact or it is not there."""

    about: str = ""
    """The coordinate axis about which rotations hold."""
    components: bool = False
    """It commutes with an exchange of the axes: components are treated alike, one by one."""
    parity: bool = False
    """What is left under reflections is one feature of the other parity."""
    swaps: str = ""
    """What exchanging two places of a list does: one of SWAPS."""
    half_turn: bool = False
    """Half turns hold where quarter turns do not."""
    gain: bool = False
    """h(gx) is rho h(x) times factors that do not depend on the input."""
    stride: int = 0
    """Shifts hold if they are multiples of this."""
    linear: bool = False
    """The module is linear in its input: it is its weights that the group does not exchange."""
    displaced: str = ""
    """How the error grows with a translation: one of DISPLACED."""


DISPLACED = ("added", "weighed", "curved")
SWAPS = ("own", "between", "neighbours", "first", "last", "one")


def fit(subject: Subject, location: Location, leaves: Leaves, group: Group) -> Fits:
    """All fits that apply to the parts of the group that move."""
    if location.first is None:
        return Fits()
    work = _Probing(subject, location, leaves, group)
    elements, parts = location.elements, location.elements.parts
    moving = {name for name, part in parts.items() if bool((part != group.identity(elements.count).parts[name]).any())}
    found: dict[str, object] = {}
    if "linear" in moving and parts["linear"].shape[-1] == 3 and not moving & {"grid", "cube"}:
        found |= work.rotations(elements)
    for part in moving:
        if part.startswith("translation") and not found.get("displaced"):
            found["displaced"] = work.displaced(part, elements)
        if parts[part].ndim == 2 and part not in ("shift", "crop", "grid") and not part.startswith("translation"):
            found["swaps"] = work.swaps(part)
    if "grid" in moving:
        found |= {"half_turn": work.half_turns(elements), "gain": work.gain(elements)}
        found["linear"] = work.linear()
    if "cube" in moving:
        found |= {"gain": work.gain(elements), "linear": work.linear()}
    if "shift" in moving:
        found["stride"] = work.stride(elements)
    return Fits(**found)  # type: ignore[arg-type]


class _Probing:
    def __init__(self, subject: Subject, location: Location, leaves: Leaves, group: Group) -> None:
        assert location.first is not None
        self.subject, self.leaves, self.group, self.place = subject, leaves, group, location.first
        self.batch = subject.rows_of(leaves)
        self.here = self._passes(leaves)
        # Not get_submodule, which TorchScript does not have.
        self.module = dict(subject.twin(subject.precisions[-1]).named_modules()).get(self.place.event.module)

    def holds(self, elements: Elements) -> bool:
        """Whether the guilty place is consistent at these elements, all of which move something."""
        return all(self._holds(elements[number]) for number in range(elements.count))

    def half_turns(self, elements: Elements) -> bool:
        """Whether each element twice holds, where that is not the identity: a mirror image twice says nothing."""
        twice = self.group.compose(elements, elements)
        neutral = self.group.identity(twice.count).parts["grid"]
        moving = (twice.parts["grid"] != neutral).any(dim=1)
        return bool(moving.any()) and self.holds(twice[moving])

    def rotations(self, elements: Elements) -> dict[str, object]:
        """Turns about each axis, an exchange of the three axes, and for reflections what changes sign."""
        cycle = torch.tensor([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]], dtype=torch.float64)
        about = [name for axis, name in enumerate("xyz") if self._holds(self._turned(_about(axis, 0.7)))]
        found: dict[str, object] = {"about": about[0] if len(about) == 1 else ""}
        found["components"] = not about and self._holds(self._turned(cycle))
        if bool((torch.linalg.det(elements.parts["linear"]) < 0).all()):
            found["parity"] = self._one_odd_feature(elements)
        return found

    def swaps(self, part: str) -> str:
        """Exchanges of two places: which of them break, and which places of the output they disturb."""
        size = self.group.identity().parts[part].shape[-1]
        chosen = sorted({0, 1, 2, size // 2, size - 2, size - 1} & set(range(size)))[:PLACES]
        pairs = [(i, j) for i in chosen for j in chosen if i < j]
        disturbed = {pair: self._disturbed(self._swapped(part, *pair), size) for pair in pairs}
        breaking = {pair for pair, places in disturbed.items() if places is None or places}
        for place in chosen:
            if breaking and len(chosen) > 2 and breaking == {pair for pair in pairs if place in pair}:
                return "first" if place == 0 else "last" if place == size - 1 else "one"
        seen = [(pair, places) for pair, places in disturbed.items() if places]
        if not seen or any(places is None for places in disturbed.values()):
            return ""
        if all(places <= set(pair) for pair, places in seen):
            return "own"
        if all(places <= set(range(pair[0], pair[1] + 1)) for pair, places in seen):
            return "between"
        near = [{(p + step) % size for p in pair for step in (-1, 0, 1)} for pair, _ in seen]
        return "neighbours" if all(places <= around for (_, places), around in zip(seen, near, strict=True)) else ""

    def displaced(self, part: str, elements: Elements) -> str:
        """Whether twice the translation makes twice the error, and whether the error is the same for every input."""
        step = elements.parts[part][:1]
        pairs = []
        for factor in (1, 2):
            element = self.group.identity() | Elements({part: factor * step})
            here, there = self._pair(element)
            if here is None or there is None:
                return ""
            pairs.append((self._act(element, here), there))
        (carried, _), (once, twice) = pairs[0], [there - moved for moved, there in pairs]
        close = VANISHES if self.subject.high is not None else LOOSE
        size = float(twice.abs().max())
        if not size > close * float(carried.abs().max()):
            return ""
        if float((twice - 2 * once).abs().max()) > close * size:
            return "curved"
        return "added" if float((once - once[:1]).abs().max()) <= close * size else "weighed"

    def gain(self, elements: Elements) -> bool:
        """Whether h(gx) / rho(g) h(x) is the same for every input."""
        if self.batch < 2:
            return False
        for number in range(elements.count):
            here, there = self._pair(elements[number])
            if here is None or there is None:
                return False
            carried = self._act(elements[number], here)
            usable = (carried.abs() > VANISHES * carried.abs().max()).all(dim=0)
            ratio = there / torch.where(carried == 0, 1.0, carried)
            spread = (ratio - ratio[:1]).abs().amax(dim=0)
            if not bool(usable.any()) or float(spread[usable].max()) > VANISHES:
                return False
        return True

    def linear(self) -> bool:
        """Whether m(a + b) = m(a) + m(b) - m(0), for the module alone."""
        name, number = self.place.event.module, self.place.event.call
        if self.place.event.kind == "enter" or not name:
            return False
        twin, dtype = self.subject.twin("low"), self.subject.dtype("low")
        if self.subject.high is not None:
            twin, dtype = self.subject.twin("high"), torch.float64
        call = record(self.subject, self.leaves, twin, dtype, keep_calls=True).calls[name, number]
        if len(call.args) != 1 or call.kwargs or not isinstance(call.args[0], Tensor):
            return False
        module, x = dict(twin.named_modules())[name], call.args[0]
        with torch.no_grad():
            values = [module(v) for v in (x + x.roll(1, 0), x, x.roll(1, 0), torch.zeros_like(x))]
        if not all(isinstance(v, Tensor) for v in values) or len(x) < 2:
            return False
        a, b, c, zero = values
        return float((a - b - c + zero).abs().max()) <= VANISHES * float(a.abs().max())

    def stride(self, elements: Elements) -> int:
        """The smallest k >= 2 whose multiples hold, where other shifts do not."""
        shift = elements.parts["shift"]
        sizes = [size for rep, leaf in self._tensors() for size in rep.sizes(tuple(leaf.shape)).get("shift", ())]
        for k in (2, 3, 4, 8):
            if any(k % size == 0 for size in sizes):
                break  # once around is no shift at all
            steps = torch.full_like(shift[:1], k)
            if self._holds(self.group.identity() | Elements({"shift": steps})):
                return k
        return 0

    def _one_odd_feature(self, elements: Elements) -> bool:
        odd = []
        for number in range(elements.count):
            element = elements[number]
            here, there = self._pair(element)
            if here is None or there is None:
                return False
            odd.append(here - self._act(self.group.inverse(element), there))
        size = max(float(one.abs().max()) for one in odd)
        same = max((float((one - odd[0]).abs().max()) for one in odd[1:]), default=0.0)
        return len(odd) > 1 and size > 0 and same <= VANISHES * size

    def _disturbed(self, element: Elements, size: int) -> set[int] | None:
        """Places of the output that differ from rho(g) h(x); None if it has no axis of places."""
        here, there = self._pair(element)
        if here is None or there is None:
            return None
        axes = [axis for axis in range(1, here.ndim) if here.shape[axis] == size]
        gap = (there - self._act(element, here)).abs()
        limit = VANISHES * float(here.abs().max())
        if not axes:
            return None if float(gap.max()) > limit else set()
        worst = gap.movedim(axes[0], 0).reshape(size, -1).amax(dim=1)
        return {int(place) for place in (worst > limit).nonzero().flatten()}

    def _holds(self, element: Elements) -> bool:
        there = self._passes(self._moved(element))
        events = [_find(run, self.place.event.key) for run in (self._best(self.here), self._best(there))]
        if events[0] is None or events[1] is None:
            return False
        rough: list[Event | None] = [None, None]
        if self.subject.high is not None:
            rough = [_find(run["low"], self.place.event.key) for run in (self.here, there)]
        found = test_event(
            events[0], [events[1]], lows=rough, elements=element, group=self.group, module=self.module, batch=self.batch
        )
        return found is not None and found.fits

    def _pair(self, element: Elements) -> tuple[Tensor | None, Tensor | None]:
        """The worst tensor of the guilty place at x and at gx, [inputs, ...]."""
        there = self._passes(self._moved(element))
        events = [_find(run, self.place.event.key) for run in (self._best(self.here), self._best(there))]
        index = self.place.index
        tensors = [None if e is None or len(e.tensors) <= index else by_input(e.tensors[index][1], self.batch)
                   for e in events]
        if tensors[0] is None or tensors[1] is None or tensors[0].shape != tensors[1].shape:
            return None, None
        return tensors[0], tensors[1]

    def _act(self, element: Elements, x: Tensor) -> Tensor:
        """rho(g) x with the kind that fits the healthy part: the one the place was tested with."""
        rep: Representation | None = self.place.representation
        return x if rep is None else rep.act(element, x.unsqueeze(0))[0]

    def _tensors(self) -> list[tuple[Representation, Tensor]]:
        pairs = zip(self.subject.inputs, self.leaves, strict=True)
        return [(rep, leaf) for rep, leaf in pairs if isinstance(leaf, Tensor)]

    def _passes(self, leaves: Leaves) -> dict[Precision, Pass]:
        subject = self.subject
        return {p: record(subject, leaves, subject.twin(p), subject.dtype(p)) for p in subject.precisions}

    def _best(self, run: dict[Precision, Pass]) -> Pass:
        return run[self.subject.precisions[-1]]

    def _moved(self, element: Elements) -> Leaves:
        moved = self.subject.transformed(self.leaves, element)
        return [m if m is x else m[0] for m, x in zip(moved, self.leaves, strict=True)]

    def _turned(self, matrix: Tensor) -> Elements:
        return self.group.identity() | Elements({"linear": matrix.unsqueeze(0)})

    def _swapped(self, part: str, i: int, j: int) -> Elements:
        order = self.group.identity().parts[part].clone()
        order[0, [i, j]] = order[0, [j, i]]
        return self.group.identity() | Elements({part: order})


def _about(axis: int, angle: float) -> Tensor:
    turn = torch.eye(3, dtype=torch.float64)
    a, b = [i for i in range(3) if i != axis]
    turn[a, a] = turn[b, b] = math.cos(angle)
    turn[a, b], turn[b, a] = -math.sin(angle), math.sin(angle)
    return turn


def _find(run: Pass, key: tuple[str, str, int]) -> Event | None:
    return next((event for event in run.events if event.key == key), None)
