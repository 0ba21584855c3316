"""Rotations, rigid motions, Lorentz transformations and changes of scale."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.audits.symmetry.groups import matrices
from assay.audits.symmetry.groups.base import Draw, Group
from assay.audits.symmetry.groups.elements import Elements, translation_of
from assay.errors import expected


def SO(dimension: int, space: int | None = None, *, name: str = "linear") -> Group:  # noqa: N802  (the mathematical name)
    """Rotations of ``dimension``-dimensional space, Haar distributed; ``SO(1, 3)`` are Lorentz transformations.

    ``name`` tells two of a kind apart: ``SO(3) * SO(3, name="spin")`` with ``vector(of="spin")``.
    """
    return Rotations(dimension, reflections=False, part=name) if space is None else _minkowski(dimension, space, False)


def O(dimension: int, space: int | None = None, *, name: str = "linear") -> Group:  # noqa: N802, E743
    """Rotations and reflections; ``O(1, 3)`` are Lorentz transformations with space inversion and time reversal."""
    return Rotations(dimension, reflections=True, part=name) if space is None else _minkowski(dimension, space, True)


def SE(dimension: int, *, reach: float = 5.0, name: str = "linear") -> Group:  # noqa: N802
    """Rotations and translations; translations are Gaussian with standard deviation ``reach``."""
    return Euclidean(dimension, reflections=False, reach=reach, part=name)


def E(dimension: int, *, reach: float = 5.0, name: str = "linear") -> Group:  # noqa: N802
    """Rotations, reflections and translations."""
    return Euclidean(dimension, reflections=True, reach=reach, part=name)


def _minkowski(time: int, space: int, inversions: bool) -> Group:
    if (time, space) != (1, 3):
        raise expected("O(1, 3) or SO(1, 3), time first", given=f"({time}, {space})", do="see sym.matrix_group")
    return Lorentz(inversions=inversions)


def _named(what: str, part: str) -> str:
    """The name of a generator or a group whose part has a name of its own."""
    return what if part == "linear" else f"{what} of {part}"


class Rotations(Group):
    """SO(d) or O(d); the part ``linear``, or the one named, holds the matrix."""

    def __init__(self, dimension: int, *, reflections: bool, part: str = "linear") -> None:
        if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 2:
            raise expected("a dimension of at least 2", given=repr(dimension))
        self.dimension, self.reflections, self.part = dimension, reflections, part
        self.name = _named(f"{'O' if reflections else 'SO'}({dimension})", part)

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.part,)

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        draw = matrices.orthogonal if self.reflections else matrices.rotation
        return self._of(draw(n, self.dimension, generator))

    def identity(self, n: int = 1) -> Elements:
        return self._of(torch.eye(self.dimension, dtype=torch.float64).repeat(n, 1, 1))

    def compose(self, first: Elements, second: Elements) -> Elements:
        return self._of(first.parts[self.part] @ second.parts[self.part])

    def inverse(self, elements: Elements) -> Elements:
        return self._of(elements.parts[self.part].mT)

    def generators(self) -> dict[str, Draw]:
        found: dict[str, Draw] = {
            _named("rotation", self.part): lambda n, g: self._of(matrices.rotation(n, self.dimension, g))
        }
        if self.reflections:
            mirrored = _named("reflection", self.part)
            found[mirrored] = lambda n, g: self._of(matrices.reflection(n, self.dimension, g))
        return found

    def special(self) -> dict[str, Elements]:
        def turn(angle: float) -> Elements:
            return self._of(matrices.turned(torch.tensor([angle], dtype=torch.float64), self.dimension))

        found = {"identity": self.identity(), "90 degrees": turn(math.pi / 2), "180 degrees": turn(math.pi)}
        found["near identity"] = turn(1e-3)
        if self.reflections:
            found["-1"] = self._of(-self.identity().parts[self.part])
        return found

    def turned(self, angles: Tensor) -> Elements | None:
        return self._of(matrices.turned(angles, self.dimension))

    def _of(self, matrix: Tensor) -> Elements:
        return Elements({self.part: matrix})


class Euclidean(Group):
    """SE(d) or E(d); the parts ``linear`` and ``translation``: x -> linear x + translation."""

    def __init__(self, dimension: int, *, reflections: bool, reach: float, part: str = "linear") -> None:
        self._rotations = Rotations(dimension, reflections=reflections, part=part)
        self.dimension, self.reach, self._moved = dimension, reach, translation_of(part)
        self.name = _named(f"{'E' if reflections else 'SE'}({dimension})", part)

    @property
    def parts(self) -> tuple[str, ...]:
        return (*self._rotations.parts, self._moved)

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        return self._rotations.sample(n, generator) | self._translation(n, generator)

    def identity(self, n: int = 1) -> Elements:
        return self._still(self._rotations.identity(n))

    def compose(self, first: Elements, second: Elements) -> Elements:
        matrix, second_shift = first.parts[self._rotations.part], second.parts[self._moved]
        moved = (matrix @ second_shift.unsqueeze(-1)).squeeze(-1)
        return self._rotations.compose(first, second) | Elements({self._moved: moved + first.parts[self._moved]})

    def inverse(self, elements: Elements) -> Elements:
        back = self._rotations.inverse(elements)
        matrix, shift = back.parts[self._rotations.part], elements.parts[self._moved]
        return back | Elements({self._moved: -(matrix @ shift.unsqueeze(-1)).squeeze(-1)})

    def generators(self) -> dict[str, Draw]:
        found: dict[str, Draw] = {}
        for name, draw in self._rotations.generators().items():
            found[name] = self._without_translation(draw)
        moves = _named("translation", self._rotations.part)
        found[moves] = lambda n, g: self.identity(n) | self._translation(n, g)
        return found

    def special(self) -> dict[str, Elements]:
        found = {name: self._still(element) for name, element in self._rotations.special().items()}
        far = torch.full((1, self.dimension), 20 * self.reach, dtype=torch.float64)
        return {**found, "large translation": self.identity() | Elements({self._moved: far})}

    def turned(self, angles: Tensor) -> Elements | None:
        turned = self._rotations.turned(angles)
        return None if turned is None else self._still(turned)

    def _translation(self, n: int, generator: torch.Generator) -> Elements:
        drawn = torch.randn(n, self.dimension, dtype=torch.float64, generator=generator)
        return Elements({self._moved: self.reach * drawn})

    def _still(self, rotation: Elements) -> Elements:
        return rotation | Elements({self._moved: torch.zeros(rotation.count, self.dimension, dtype=torch.float64)})

    def _without_translation(self, draw: Draw) -> Draw:
        return lambda n, generator: self._still(draw(n, generator))


class Lorentz(Group):
    """Lorentz transformations (time first, metric +---): a boost of bounded rapidity after a rotation.

    Proper ones, and with ``inversions`` space inversion and time reversal too: O(1, 3). The group is not compact, so
    there is no Haar probability: ``rapidity`` bounds what is tested.
    """

    def __init__(self, rapidity: float = 1.0, *, inversions: bool = False) -> None:
        if not 0 < rapidity < 10:
            raise expected("0 < rapidity < 10", given=repr(rapidity), do="cosh(10) = 11000 drowns in float32 rounding")
        self.rapidity, self.inversions, self.name = rapidity, inversions, "O(1, 3)" if inversions else "Lorentz"

    @property
    def parts(self) -> tuple[str, ...]:
        return ("linear",)

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        matrix = matrices.boost(n, self.rapidity, generator) @ matrices.space_rotation(n, generator)
        if self.inversions:
            signs = 1.0 - 2.0 * torch.randint(2, (n, 2), generator=generator).to(torch.float64)
            matrix = matrix * signs[:, [0, 1, 1, 1]].unsqueeze(-2)
        return Elements({"linear": matrix})

    def identity(self, n: int = 1) -> Elements:
        return Elements({"linear": torch.eye(4, dtype=torch.float64).repeat(n, 1, 1)})

    def compose(self, first: Elements, second: Elements) -> Elements:
        return Elements({"linear": first.parts["linear"] @ second.parts["linear"]})

    def inverse(self, elements: Elements) -> Elements:
        return Elements({"linear": _METRIC @ elements.parts["linear"].mT @ _METRIC})

    def generators(self) -> dict[str, Draw]:
        found: dict[str, Draw] = {
            "rotation": lambda n, g: Elements({"linear": matrices.space_rotation(n, g)}),
            "boost": lambda n, g: Elements({"linear": matrices.boost(n, self.rapidity, g)}),
        }
        if self.inversions:
            found["space inversion"] = lambda n, g: Elements({"linear": _METRIC.unsqueeze(0)})
            found["time reversal"] = lambda n, g: Elements({"linear": -_METRIC.unsqueeze(0)})
        return found

    def special(self) -> dict[str, Elements]:
        along = matrices.boost_along(
            torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64), torch.tensor([self.rapidity], dtype=torch.float64)
        )
        return {"identity": self.identity(), "largest boost": Elements({"linear": along})}


_METRIC = torch.diag(torch.tensor([1.0, -1.0, -1.0, -1.0], dtype=torch.float64))


class Scale(Group):
    """Multiplication by a positive number, log-uniform between 1/factor and factor."""

    def __init__(self, factor: float = 10.0, *, name: str = "scale") -> None:
        if factor <= 1:
            raise expected("a factor > 1", given=repr(factor))
        self.factor, self.name = factor, name

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.name,)

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        exponent = 2 * torch.rand(n, dtype=torch.float64, generator=generator) - 1
        return Elements({self.name: torch.exp(exponent * math.log(self.factor))})

    def identity(self, n: int = 1) -> Elements:
        return Elements({self.name: torch.ones(n, dtype=torch.float64)})

    def compose(self, first: Elements, second: Elements) -> Elements:
        return Elements({self.name: first.parts[self.name] * second.parts[self.name]})

    def inverse(self, elements: Elements) -> Elements:
        return Elements({self.name: 1 / elements.parts[self.name]})

    def special(self) -> dict[str, Elements]:
        return {
            "identity": self.identity(),
            "doubling": Elements({self.name: torch.tensor([2.0], dtype=torch.float64)}),
        }
