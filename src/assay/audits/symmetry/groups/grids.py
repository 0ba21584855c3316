"""Motions of grids: rotations of a cube of voxels, and turns together with shifts (a semidirect product)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations, product

import torch
from torch import Tensor

from assay.audits.symmetry.groups.base import Draw, Group, every_one
from assay.audits.symmetry.groups.elements import Elements
from assay.errors import expected


@dataclass(frozen=True, repr=False)
class Cube(Group):
    """The 24 rotations of a cube, or all 48 symmetries with ``mirror``; exact on voxels.

    The part ``cube`` holds signed permutation matrices of the three axes, ``linear`` the same in float64.
    """

    mirror: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return "cube with mirror images" if self.mirror else "rotations of the cube"

    @property
    def parts(self) -> tuple[str, ...]:
        return ("cube", "linear")

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        every = self.elements()
        return every[torch.randint(every.count, (n,), generator=generator)]

    def identity(self, n: int = 1) -> Elements:
        return _cube(torch.eye(3, dtype=torch.long).repeat(n, 1, 1))

    def compose(self, first: Elements, second: Elements) -> Elements:
        return _cube(first.parts["cube"] @ second.parts["cube"])

    def inverse(self, elements: Elements) -> Elements:
        return _cube(elements.parts["cube"].mT)

    def generators(self) -> dict[str, Draw]:
        every = self.elements()
        positive = torch.linalg.det(every.parts["linear"]) > 0
        moving = (every.parts["cube"] != torch.eye(3, dtype=torch.long)).any(dim=(-2, -1))
        found: dict[str, Draw] = {"rotation": every_one(every[positive & moving])}
        if self.mirror:
            found["reflection"] = every_one(every[~positive])
        return found

    def elements(self) -> Elements:
        signed = []
        for order, signs in product(permutations(range(3)), product((1, -1), repeat=3)):
            matrix = torch.zeros(3, 3, dtype=torch.long)
            matrix[torch.arange(3), torch.tensor(order)] = torch.tensor(signs)
            signed.append(matrix)
        every = _cube(torch.stack(signed))
        return every if self.mirror else every[torch.linalg.det(every.parts["linear"]) > 0]

    def special(self) -> dict[str, Elements]:
        found = {"identity": self.identity()}
        return {**found, "-1": _cube(-torch.eye(3, dtype=torch.long).unsqueeze(0))} if self.mirror else found

    def semidirect(self, other: Group) -> Group | None:
        return Motions(self, other) if _shifts_along(other) == 3 else None


def _cube(matrix: Tensor) -> Elements:
    return Elements({"cube": matrix, "linear": matrix.to(torch.float64)})


@dataclass(frozen=True, repr=False)
class Motions(Group):
    """Turns of a grid, then shifts: (t, g)(u, h) = (t + g u, g h), since a turn also turns the shift made before it."""

    turns: Group
    shifts: Group

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.shifts.name} with {self.turns.name}"

    @property
    def parts(self) -> tuple[str, ...]:
        return (*self.turns.parts, *self.shifts.parts)

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        return self.turns.sample(n, generator) | self.shifts.sample(n, generator)

    def identity(self, n: int = 1) -> Elements:
        return self.turns.identity(n) | self.shifts.identity(n)

    def compose(self, first: Elements, second: Elements) -> Elements:
        here, turned = first.only(self.shifts.parts), self._turned(first, second)
        return self.turns.compose(first.only(self.turns.parts), second.only(self.turns.parts)) | self.shifts.compose(
            here, turned
        )

    def inverse(self, elements: Elements) -> Elements:
        back = self.turns.inverse(elements.only(self.turns.parts))
        undone = self.shifts.inverse(elements.only(self.shifts.parts))
        return back | self._turned(back, undone)

    def generators(self) -> dict[str, Draw]:
        found: dict[str, Draw] = {}
        for group in (self.turns, self.shifts):
            for name, draw in group.generators().items():
                found[name] = self._lifted(draw)
        return found

    def special(self) -> dict[str, Elements]:
        groups = (self.turns, self.shifts)
        return {name: self.identity() | one for group in groups for name, one in group.special().items()}

    def bind(self, sizes: Mapping[str, tuple[int, ...]]) -> Group:
        bound = dataclasses.replace(self, turns=self.turns.bind(sizes), shifts=self.shifts.bind(sizes))
        found = sizes.get(self.shifts.parts[0], (1,))
        if len(set(found)) > 1:
            raise expected(
                f"a grid with axes of one size for {self.name}",
                given=f"sizes {' x '.join(map(str, found))}",
                do="crop the input to a square, or audit the shifts alone",
            )
        return bound

    def _turned(self, turn: Elements, shift: Elements) -> Elements:
        (part,) = self.shifts.parts
        moved = turn.parts["linear"] @ shift.parts[part].to(torch.float64).unsqueeze(-1)
        whole = Elements({part: moved.squeeze(-1).round().long()})
        # Composed with nothing, a shift is reduced to the size of the grid.
        return self.shifts.compose(whole, self.shifts.identity(whole.count))

    def _lifted(self, draw: Draw) -> Draw:
        def lifted(n: int, generator: torch.Generator) -> Elements:
            drawn = draw(n, generator)
            return self.identity(drawn.count) | drawn

        return lifted


def planar_motions(turns: Group, count: int, other: Group) -> Group | None:
    """C(n) or D(n) with shifts of two axes; None if the other group is something else."""
    if _shifts_along(other) != 2:
        return None
    if count not in (1, 2, 4):
        raise expected(
            "C(1), C(2), C(4) or D of them together with shifts",
            given=f"rotations by 360/{count} degrees, which turn a shift by whole pixels into one by fractions",
            do="audit the two groups one after the other",
        )
    return Motions(turns, other)


def _shifts_along(group: Group) -> int:
    """How many axes a group of shifts has; 0 for another group."""
    return int(getattr(group, "axes", 0)) if group.parts in (("shift",), ("crop",)) else 0
