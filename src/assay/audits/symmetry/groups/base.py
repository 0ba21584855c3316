"""What a group is here: it draws elements, composes and inverts them, and names its generators and special cases.

``*`` makes direct products. A group of your own takes a few lines: see ``matrix_group`` or subclass ``Group``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from assay.audits.symmetry.groups.elements import Elements
from assay.errors import expected

Draw = Callable[[int, torch.Generator], Elements]
"""(n, generator) -> n elements, or all of them if the family has fewer than n."""

SMALL = 50
"""A group with fewer elements than this is enumerated instead of sampled."""


class Group(ABC):
    """A set of transformations with composition, inverse and identity.

    ``compose(a, b)`` is "a after b": representations satisfy rho(compose(a, b)) = rho(a) rho(b).
    """

    name: str

    @property
    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """Names of the parts its elements have; representations find what they need by these names."""

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator) -> Elements:
        """n independent elements from the Haar measure (a bounded part of it where the group is not compact)."""

    @abstractmethod
    def identity(self, n: int = 1) -> Elements:
        """n copies of the neutral element."""

    @abstractmethod
    def compose(self, first: Elements, second: Elements) -> Elements:
        """``first`` after ``second``, pair by pair."""

    @abstractmethod
    def inverse(self, elements: Elements) -> Elements:
        """The inverse of each element."""

    def generators(self) -> dict[str, Draw]:
        """Families of elements that together generate the group; an audit reports each separately."""
        return {self.name: self.sample}

    def special(self) -> dict[str, Elements]:
        """Elements where implementations break most often: each holds one element."""
        return {"identity": self.identity()}

    def elements(self) -> Elements | None:
        """All elements if there are fewer than 50, else None."""
        return None

    def bind(self, sizes: Mapping[str, tuple[int, ...]]) -> Group:
        """This group with the sizes it left open (points of S(), pixels of shifts()) taken from the data."""
        return self

    def turned(self, angles: Tensor) -> Elements | None:
        """Rotations by the given angles about one fixed axis, or None if the group has none."""
        return None

    def semidirect(self, other: Group) -> Group | None:
        """The product in which this group moves the other one (turns move shifts), or None if they do not meet."""
        return None

    def __mul__(self, other: Group) -> Group:
        return product_of((*_factors(self), *_factors(other)))

    def __repr__(self) -> str:
        return self.name


def every_one(elements: Elements) -> Draw:
    """Draws every element of a small family in turn: it is covered completely, whatever the seed."""
    return lambda n, generator: elements[: max(1, min(n, elements.count))]


class Product(Group):
    """The direct product of groups whose parts have different names."""

    def __init__(self, factors: tuple[Group, ...]) -> None:
        names = [part for factor in factors for part in factor.parts]
        clash = next((name for name in names if names.count(name) > 1), None)
        if clash is not None:
            raise expected(
                "groups whose parts have different names in a product",
                given=f"two groups with a part {clash!r} in {' x '.join(f.name for f in factors)}",
                do="name one: S(name='edges') with permuted(1, of='edges'), SO(3, name='spin') with vector(of='spin')",
            )
        self.factors = factors
        self.name = " x ".join(factor.name for factor in factors)

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(part for factor in self.factors for part in factor.parts)

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        return self._merge(lambda factor: factor.sample(n, generator))

    def identity(self, n: int = 1) -> Elements:
        return self._merge(lambda factor: factor.identity(n))

    def compose(self, first: Elements, second: Elements) -> Elements:
        return self._merge(lambda factor: factor.compose(first.only(factor.parts), second.only(factor.parts)))

    def inverse(self, elements: Elements) -> Elements:
        return self._merge(lambda factor: factor.inverse(elements.only(factor.parts)))

    def generators(self) -> dict[str, Draw]:
        found: dict[str, Draw] = {}
        for factor in self.factors:
            for name, draw in factor.generators().items():
                found[name if name not in found else f"{name} of {factor.name}"] = self._lift(draw)
        return found

    def special(self) -> dict[str, Elements]:
        found = {}
        for factor in self.factors:
            for name, element in factor.special().items():
                taken = name in found and name != "identity"
                found[f"{name} of {factor.name}" if taken else name] = self.identity() | element
        return found

    def elements(self) -> Elements | None:
        parts = [factor.elements() for factor in self.factors]
        total = 1
        for one in parts:
            total *= one.count if one is not None else SMALL
        if total >= SMALL:
            return None
        grid = torch.cartesian_prod(*[torch.arange(one.count) for one in parts if one is not None])
        merged = Elements({})
        for column, one in zip(grid.reshape(total, -1).T, parts, strict=True):
            assert one is not None
            merged = merged | one[column]
        return merged

    def bind(self, sizes: Mapping[str, tuple[int, ...]]) -> Group:
        return Product(tuple(factor.bind(sizes) for factor in self.factors))

    def turned(self, angles: Tensor) -> Elements | None:
        for factor in self.factors:
            found = factor.turned(angles)
            if found is not None:
                return self.identity(len(angles)) | found
        return None

    def _merge(self, make: Callable[[Group], Elements]) -> Elements:
        merged = Elements({})
        for factor in self.factors:
            merged = merged | make(factor)
        return merged

    def _lift(self, draw: Draw) -> Draw:
        def lifted(n: int, generator: torch.Generator) -> Elements:
            drawn = draw(n, generator)
            return self.identity(drawn.count) | drawn

        return lifted


def product_of(factors: tuple[Group, ...]) -> Group:
    """The product of groups: direct, but for turns and shifts of the same grid, which make a semidirect one."""
    done: list[Group] = []
    for factor in factors:
        for place, other in enumerate(done):
            joined = other.semidirect(factor) or factor.semidirect(other)
            if joined is not None:
                done[place] = joined
                break
        else:
            done.append(factor)
    return done[0] if len(done) == 1 else Product(tuple(done))


def _factors(group: Group) -> tuple[Group, ...]:
    return group.factors if isinstance(group, Product) else (group,)


class MatrixGroup(Group):
    """A group of matrices given by a list of all of them or by a function that draws some."""

    def __init__(self, name: str, part: str, all_of_them: Tensor | None, draw: Callable[..., Tensor] | None) -> None:
        self.name, self._part, self._all, self._draw = name, part, all_of_them, draw
        probe = all_of_them if all_of_them is not None else self._matrices(1, torch.Generator().manual_seed(0))
        self._dimension, self._dtype = probe.shape[-1], probe.dtype

    @property
    def parts(self) -> tuple[str, ...]:
        return (self._part,)

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        return Elements({self._part: self._matrices(n, generator)})

    def identity(self, n: int = 1) -> Elements:
        return Elements({self._part: torch.eye(self._dimension, dtype=self._dtype).repeat(n, 1, 1)})

    def compose(self, first: Elements, second: Elements) -> Elements:
        return Elements({self._part: first.parts[self._part] @ second.parts[self._part]})

    def inverse(self, elements: Elements) -> Elements:
        return Elements({self._part: torch.linalg.inv(elements.parts[self._part])})

    def generators(self) -> dict[str, Draw]:
        every = self.elements()
        return {self.name: self.sample if every is None else every_one(every)}

    def elements(self) -> Elements | None:
        return Elements({self._part: self._all}) if self._all is not None and len(self._all) < SMALL else None

    def _matrices(self, n: int, generator: torch.Generator) -> Tensor:
        if self._all is not None:
            return self._all[torch.randint(len(self._all), (n,), generator=generator)]
        assert self._draw is not None
        return _exact(self._draw(n, generator))


def matrix_group(
    name: str,
    matrices: Tensor | None = None,
    *,
    draw: Callable[[int, torch.Generator], Tensor] | None = None,
    part: str = "linear",
) -> Group:
    """A group of your own: all its ``matrices`` [n, d, d], or ``draw(n, generator)`` that returns random ones.

    A finite set is checked: it must hold the identity, every product and every inverse, or it is not a group.

    >>> swap = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    >>> matrix_group("exchange", swap)
    exchange
    """
    if (matrices is None) == (draw is None):
        raise expected("either matrices or draw", given="both" if draw else "neither")
    if matrices is None:
        return MatrixGroup(name, part, None, draw)
    if matrices.ndim != 3 or matrices.shape[-1] != matrices.shape[-2] or not len(matrices):
        raise expected("matrices of shape [n, d, d]", given=f"shape {tuple(matrices.shape)}")
    matrices = _exact(matrices.detach())
    products = (matrices.unsqueeze(1) @ matrices.unsqueeze(0)).flatten(0, 1)
    wanted = torch.cat([torch.eye(matrices.shape[-1], dtype=matrices.dtype).unsqueeze(0), products])
    distance = (wanted.unsqueeze(1) - matrices.unsqueeze(0)).abs().amax(dim=(-2, -1)).amin(dim=1)
    # Entries are given in float32 at worst: anything further off than its rounding is another matrix.
    if bool((distance > 32 * torch.finfo(torch.float32).eps * matrices.abs().max()).any()):
        missing = "the identity" if distance[0] == distance.max() else "the product of two of its elements"
        raise expected(
            "a group", given=f"{len(matrices)} matrices that do not hold {missing}", do="add what is missing"
        )
    return MatrixGroup(name, part, matrices, None)


def _exact(matrices: Tensor) -> Tensor:
    return matrices.to(torch.complex128 if matrices.is_complex() else torch.float64)
