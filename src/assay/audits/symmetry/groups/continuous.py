"""Rotations, rigid motions, Lorentz transformations and changes of scale."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.audits.symmetry.groups import matrices
from assay.audits.symmetry.groups.base import Draw, Group
from assay.audits.symmetry.groups.elements import Elements
from assay.errors import expected


def SO(dimension: int) -> Group:  # noqa: N802  (the mathematical name)
    """Rotations of ``dimension``-dimensional space, Haar distributed."""
    return Rotations(dimension, reflections=False)


def O(dimension: int) -> Group:  # noqa: N802, E743
    """Rotations and reflections of ``dimension``-dimensional space."""
    return Rotations(dimension, reflections=True)


def SE(dimension: int, *, reach: float = 5.0) -> Group:  # noqa: N802
    """Rotations and translations; translations are Gaussian with standard deviation ``reach``."""
    return Euclidean(dimension, reflections=False, reach=reach)


def E(dimension: int, *, reach: float = 5.0) -> Group:  # noqa: N802
    """Rotations, reflections and translations."""
    return Euclidean(dimension, reflections=True, reach=reach)


class Rotations(Group):
    """SO(d) or O(d); the part ``linear`` holds the matrix."""

    def __init__(self, dimension: int, *, reflections: bool) -> None:
        if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 2:
            raise expected("a dimension of at least 2", given=repr(dimension))
        self.dimension, self.reflections = dimension, reflections
        self.name = f"{'O' if reflections else 'SO'}({dimension})"

    @property
    def parts(self) -> tuple[str, ...]:
        return ("linear",)

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        draw = matrices.orthogonal if self.reflections else matrices.rotation
        return Elements({"linear": draw(n, self.dimension, generator)})

    def identity(self, n: int = 1) -> Elements:
        return Elements({"linear": torch.eye(self.dimension, dtype=torch.float64).repeat(n, 1, 1)})

    def compose(self, first: Elements, second: Elements) -> Elements:
        return Elements({"linear": first.parts["linear"] @ second.parts["linear"]})

    def inverse(self, elements: Elements) -> Elements:
        return Elements({"linear": elements.parts["linear"].mT})

    def generators(self) -> dict[str, Draw]:
        found: dict[str, Draw] = {
            "rotation": lambda n, g: Elements({"linear": matrices.rotation(n, self.dimension, g)})
        }
        if self.reflections:
            found["reflection"] = lambda n, g: Elements({"linear": matrices.reflection(n, self.dimension, g)})
        return found

    def special(self) -> dict[str, Elements]:
        def turn(angle: float) -> Elements:
            return Elements({"linear": matrices.turned(torch.tensor([angle]), self.dimension)})

        found = {"identity": self.identity(), "90 degrees": turn(math.pi / 2), "180 degrees": turn(math.pi)}
        found["near identity"] = turn(1e-3)
        if self.reflections:
            found["-1"] = Elements({"linear": -self.identity().parts["linear"]})
        return found

    def turned(self, angles: Tensor) -> Elements | None:
        return Elements({"linear": matrices.turned(angles, self.dimension)})


class Euclidean(Group):
    """SE(d) or E(d); the parts ``linear`` and ``translation``: x -> linear x + translation."""

    def __init__(self, dimension: int, *, reflections: bool, reach: float) -> None:
        self._rotations = Rotations(dimension, reflections=reflections)
        self.dimension, self.reach = dimension, reach
        self.name = f"{'E' if reflections else 'SE'}({dimension})"

    @property
    def parts(self) -> tuple[str, ...]:
        return ("linear", "translation")

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        return self._rotations.sample(n, generator) | self._translation(n, generator)

    def identity(self, n: int = 1) -> Elements:
        return self._still(self._rotations.identity(n))

    def compose(self, first: Elements, second: Elements) -> Elements:
        moved = (first.parts["linear"] @ second.parts["translation"].unsqueeze(-1)).squeeze(-1)
        translation = Elements({"translation": moved + first.parts["translation"]})
        return self._rotations.compose(first, second) | translation

    def inverse(self, elements: Elements) -> Elements:
        back = self._rotations.inverse(elements)
        translation = -(back.parts["linear"] @ elements.parts["translation"].unsqueeze(-1)).squeeze(-1)
        return back | Elements({"translation": translation})

    def generators(self) -> dict[str, Draw]:
        found: dict[str, Draw] = {}
        for name, draw in self._rotations.generators().items():
            found[name] = self._without_translation(draw)
        found["translation"] = lambda n, g: self.identity(n) | self._translation(n, g)
        return found

    def special(self) -> dict[str, Elements]:
        found = {name: self._still(element) for name, element in self._rotations.special().items()}
        far = torch.full((1, self.dimension), 20 * self.reach, dtype=torch.float64)
        return {**found, "large translation": self.identity() | Elements({"translation": far})}

    def turned(self, angles: Tensor) -> Elements | None:
        return self._still(Elements({"linear": matrices.turned(angles, self.dimension)}))

    def _translation(self, n: int, generator: torch.Generator) -> Elements:
        drawn = torch.randn(n, self.dimension, dtype=torch.float64, generator=generator)
        return Elements({"translation": self.reach * drawn})

    def _still(self, rotation: Elements) -> Elements:
        return rotation | Elements({"translation": torch.zeros(rotation.count, self.dimension, dtype=torch.float64)})

    def _without_translation(self, draw: Draw) -> Draw:
        return lambda n, generator: self._still(draw(n, generator))


class Lorentz(Group):
    """Proper Lorentz transformations (time first, metric +---): a boost of bounded rapidity after a rotation.

    The group is not compact, so there is no Haar probability: ``rapidity`` bounds what is tested.
    """

    def __init__(self, rapidity: float = 1.0) -> None:
        if not 0 < rapidity < 10:
            raise expected("0 < rapidity < 10", given=repr(rapidity), do="cosh(10) = 11000 drowns in float32 rounding")
        self.rapidity, self.name = rapidity, "Lorentz"

    @property
    def parts(self) -> tuple[str, ...]:
        return ("linear",)

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        rotation = matrices.space_rotation(n, generator)
        return Elements({"linear": matrices.boost(n, self.rapidity, generator) @ rotation})

    def identity(self, n: int = 1) -> Elements:
        return Elements({"linear": torch.eye(4, dtype=torch.float64).repeat(n, 1, 1)})

    def compose(self, first: Elements, second: Elements) -> Elements:
        return Elements({"linear": first.parts["linear"] @ second.parts["linear"]})

    def inverse(self, elements: Elements) -> Elements:
        metric = torch.diag(torch.tensor([1.0, -1.0, -1.0, -1.0], dtype=torch.float64))
        return Elements({"linear": metric @ elements.parts["linear"].mT @ metric})

    def generators(self) -> dict[str, Draw]:
        return {
            "rotation": lambda n, g: Elements({"linear": matrices.space_rotation(n, g)}),
            "boost": lambda n, g: Elements({"linear": matrices.boost(n, self.rapidity, g)}),
        }

    def special(self) -> dict[str, Elements]:
        along = matrices.boost_along(
            torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64), torch.tensor([self.rapidity], dtype=torch.float64)
        )
        return {"identity": self.identity(), "largest boost": Elements({"linear": along})}


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
