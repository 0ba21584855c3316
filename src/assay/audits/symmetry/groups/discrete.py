"""Permutations, rotations and mirror images of grids, shifts, sign flips and time reversal."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.audits.symmetry.groups import matrices
from assay.audits.symmetry.groups.base import SMALL, Draw, Group, every_one
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.groups.grids import planar_motions
from assay.errors import expected


@dataclass(frozen=True, repr=False)
class S(Group):
    """Permutations of ``size`` things; without a size, of as many as the data has along the permuted axis.

    The part called ``name`` holds index lists p with (rho(p) x)[j] = x[p[j]].
    """

    size: int | None = None
    name: str = "S"

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.name,)

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        return Elements({self.name: torch.rand(n, self._known(), generator=generator).argsort(dim=1)})

    def identity(self, n: int = 1) -> Elements:
        return Elements({self.name: torch.arange(self._known()).repeat(n, 1)})

    def compose(self, first: Elements, second: Elements) -> Elements:
        return Elements({self.name: second.parts[self.name].gather(1, first.parts[self.name])})

    def inverse(self, elements: Elements) -> Elements:
        return Elements({self.name: elements.parts[self.name].argsort(dim=1)})

    def generators(self) -> dict[str, Draw]:
        every = self.elements()
        moving = every[1:] if every is not None and every.count > 1 else None
        name = "permutation" if self.name == "S" else f"permutation of {self.name}"
        return {name: self.sample if moving is None else every_one(moving)}

    def special(self) -> dict[str, Elements]:
        swap = torch.arange(self._known())
        if len(swap) > 1:
            swap[:2] = swap[:2].flip(0)
        return {
            "identity": self.identity(),
            "first two swapped": Elements({self.name: swap.unsqueeze(0)}),
            "order reversed": Elements({self.name: torch.arange(self._known()).flip(0).unsqueeze(0)}),
        }

    def elements(self) -> Elements | None:
        if self.size is None or math.factorial(self.size) >= SMALL:
            return None
        every = torch.cartesian_prod(*[torch.arange(self.size)] * self.size).reshape(-1, self.size)
        distinct = every.sort(dim=1).values.eq(torch.arange(self.size)).all(dim=1)
        return Elements({self.name: every[distinct]})

    def bind(self, sizes: Mapping[str, tuple[int, ...]]) -> Group:
        if self.name not in sizes:
            return self if self.size is not None else dataclasses.replace(self, size=1)
        (found,) = sizes[self.name]
        if self.size not in (None, found):
            raise expected(f"{self.size} things to permute, as in S({self.size})", given=f"an axis of size {found}")
        return dataclasses.replace(self, size=found)

    def _known(self) -> int:
        if self.size is None:
            raise expected("a size", given="S() outside an audit", do="say S(n)")
        return self.size


@dataclass(frozen=True, repr=False)
class Planar(Group):
    """Rotations of the plane by 360/n degrees, with mirror images if ``mirror``: C(n) and D(n).

    Elements are R^k F^f. The part ``grid`` holds (k, f, n); ``linear`` the 2x2 matrix in the order of the image axes.
    """

    turns: int
    mirror: bool

    def __post_init__(self) -> None:
        if isinstance(self.turns, bool) or not isinstance(self.turns, int) or self.turns < 1:
            raise expected("a number of turns >= 1", given=repr(self.turns), do="C(4) is rotation by 90 degrees")

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{'D' if self.mirror else 'C'}({self.turns})"

    @property
    def parts(self) -> tuple[str, ...]:
        return ("grid", "linear")

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        turns = torch.randint(self.turns, (n,), generator=generator)
        flips = torch.randint(1 + self.mirror, (n,), generator=generator)
        return self.of(turns, flips)

    def identity(self, n: int = 1) -> Elements:
        return self.of(torch.zeros(n, dtype=torch.long), torch.zeros(n, dtype=torch.long))

    def compose(self, first: Elements, second: Elements) -> Elements:
        (k, f, _), (m, h, _) = first.parts["grid"].T, second.parts["grid"].T
        return self.of((k + torch.where(f == 1, -m, m)) % self.turns, (f + h) % 2)

    def inverse(self, elements: Elements) -> Elements:
        k, f, _ = elements.parts["grid"].T
        return self.of(torch.where(f == 1, k, -k) % self.turns, f)

    def generators(self) -> dict[str, Draw]:
        turns = torch.arange(1, max(self.turns, 2)) % self.turns
        found: dict[str, Draw] = {"rotation": every_one(self.of(turns, torch.zeros_like(turns)))}
        if self.mirror:
            every = torch.arange(self.turns)
            found["reflection"] = every_one(self.of(every, torch.ones_like(every)))
        return found

    def elements(self) -> Elements | None:
        total = self.turns * (1 + self.mirror)
        index = torch.arange(total)
        return self.of(index % self.turns, index // self.turns) if total < SMALL else None

    def special(self) -> dict[str, Elements]:
        found = {"identity": self.identity()}
        if self.turns not in (1, 2, 4):
            # On grids these turns are exact where the others are interpolated.
            exact = {"90 degrees": 4, "180 degrees": 2}
            for name, part in exact.items():
                if self.turns % part == 0:
                    found[name] = self.of(torch.tensor([self.turns // part]), torch.tensor([0]))
        return found

    def semidirect(self, other: Group) -> Group | None:
        return planar_motions(self, self.turns, other)

    def of(self, turns: Tensor, flips: Tensor) -> Elements:
        """The elements with these numbers of turns and flips."""
        matrix = matrices.turned(turns.to(torch.float64) * (2 * math.pi / self.turns), 2)
        matrix[:, :, 1] *= torch.where(flips == 1, -1.0, 1.0).unsqueeze(-1)
        grid = torch.stack([turns, flips, torch.full_like(turns, self.turns)], dim=1)
        return Elements({"grid": grid, "linear": matrix})


def C(turns: int) -> Group:  # noqa: N802
    """Rotations by 360/turns degrees; on images 1, 2 and 4 are exact."""
    return Planar(turns, mirror=False)


def D(turns: int) -> Group:  # noqa: N802
    """C(turns) with mirror images."""
    return Planar(turns, mirror=True)


@dataclass(frozen=True, repr=False)
class Shifts(Group):
    """Shifts along one or more axes of a grid.

    ``wrap=True``: circular shifts of any length, a group. ``wrap=False``: what leaves the frame is lost and zeros come
    in, shifts up to ``reach``; outputs are then compared only where neither frame's edge can be felt
    (``image(..., margin=m)``).
    """

    axes: int = 2
    wrap: bool = True
    reach: int = 4
    sizes: tuple[int, ...] | None = None

    @property
    def name(self) -> str:  # type: ignore[override]
        return "circular shifts" if self.wrap else f"shifts up to {self.reach}"

    @property
    def parts(self) -> tuple[str, ...]:
        return ("shift" if self.wrap else "crop",)

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        return self._of(torch.stack([self._draw(n, axis, generator) for axis in range(self.axes)], dim=1))

    def identity(self, n: int = 1) -> Elements:
        return self._of(torch.zeros(n, self.axes, dtype=torch.long))

    def compose(self, first: Elements, second: Elements) -> Elements:
        return self._of(first.parts[self.parts[0]] + second.parts[self.parts[0]])

    def inverse(self, elements: Elements) -> Elements:
        return self._of(-elements.parts[self.parts[0]])

    def generators(self) -> dict[str, Draw]:
        return {f"shift along image axis {axis}": self._along(axis) for axis in range(self.axes)}

    def special(self) -> dict[str, Elements]:
        return {"identity": self.identity(), "one pixel": self._of(torch.ones(1, self.axes, dtype=torch.long))}

    def bind(self, sizes: Mapping[str, tuple[int, ...]]) -> Group:
        found = sizes.get(self.parts[0])
        if found is None:
            return self
        if len(found) != self.axes:
            raise expected(f"image axes for shifts along {self.axes} axes", given=f"image of {len(found)} axes")
        return dataclasses.replace(self, sizes=found)

    def _along(self, axis: int) -> Draw:
        def draw(n: int, generator: torch.Generator) -> Elements:
            shift = torch.zeros(n, self.axes, dtype=torch.long)
            shift[:, axis] = self._draw(n, axis, generator)
            return self._of(shift)

        return draw

    def _draw(self, n: int, axis: int, generator: torch.Generator) -> Tensor:
        if not self.wrap:
            steps = torch.randint(1, self.reach + 1, (n,), generator=generator)
            return steps * (2 * torch.randint(2, (n,), generator=generator) - 1)
        size = self.sizes[axis] if self.sizes else 8
        return torch.randint(1, max(size, 2), (n,), generator=generator)

    def _of(self, shift: Tensor) -> Elements:
        if self.wrap and self.sizes:
            shift = shift % torch.tensor(self.sizes)
        return Elements({self.parts[0]: shift})


@dataclass(frozen=True, repr=False)
class Flip(Group):
    """A group of two elements, +1 and -1: change of sign, time reversal, exchange of a label."""

    name: str = "sign"

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.name,)

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        return Elements({self.name: 1.0 - 2.0 * torch.randint(2, (n,), generator=generator).to(torch.float64)})

    def identity(self, n: int = 1) -> Elements:
        return Elements({self.name: torch.ones(n, dtype=torch.float64)})

    def compose(self, first: Elements, second: Elements) -> Elements:
        return Elements({self.name: first.parts[self.name] * second.parts[self.name]})

    def inverse(self, elements: Elements) -> Elements:
        return elements

    def generators(self) -> dict[str, Draw]:
        return {self.name: lambda n, g: Elements({self.name: -torch.ones(1, dtype=torch.float64)})}

    def elements(self) -> Elements | None:
        return Elements({self.name: torch.tensor([1.0, -1.0], dtype=torch.float64)})


def sign() -> Group:
    """Change of sign: two elements, +1 and -1."""
    return Flip("sign")


def time_reversal() -> Group:
    """Time run backwards: ``backwards(axis)`` reverses a time axis, ``odd(of="time")`` flips velocities."""
    return Flip("time")
