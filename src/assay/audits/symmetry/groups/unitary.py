"""Unitary groups, global and local: U(n), SU(n), and gauge transformations of a lattice."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.audits.symmetry.groups import matrices
from assay.audits.symmetry.groups.base import Draw, Group
from assay.audits.symmetry.groups.elements import Elements
from assay.errors import expected


@dataclass(frozen=True, repr=False)
class Unitary(Group):
    """U(n) or SU(n), Haar distributed; the part ``part`` holds the complex matrix."""

    dimension: int
    special_determinant: bool
    part: str = "unitary"

    def __post_init__(self) -> None:
        least = 2 if self.special_determinant else 1
        if isinstance(self.dimension, bool) or not isinstance(self.dimension, int) or self.dimension < least:
            raise expected(f"a dimension of at least {least}", given=repr(self.dimension))

    @property
    def name(self) -> str:  # type: ignore[override]
        kind = f"{'SU' if self.special_determinant else 'U'}({self.dimension})"
        return kind if self.part == "unitary" else f"{kind} of {self.part}"

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.part,)

    def matrices(self, n: int, generator: torch.Generator) -> Tensor:
        """n Haar-distributed matrices [n, d, d], complex128."""
        return matrices.unitary(n, self.dimension, generator, special=self.special_determinant)

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        return Elements({self.part: self.matrices(n, generator)})

    def identity(self, n: int = 1) -> Elements:
        return Elements({self.part: torch.eye(self.dimension, dtype=torch.complex128).repeat(n, 1, 1)})

    def compose(self, first: Elements, second: Elements) -> Elements:
        return Elements({self.part: first.parts[self.part] @ second.parts[self.part]})

    def inverse(self, elements: Elements) -> Elements:
        return Elements({self.part: elements.parts[self.part].mH})

    def generators(self) -> dict[str, Draw]:
        if self.dimension == 1:
            return {"phase" if self.part == "unitary" else f"phase of {self.part}": self.sample}
        return {self.name: self.sample}

    def special(self) -> dict[str, Elements]:
        found = {"identity": self.identity()}
        if not self.special_determinant or self.dimension % 2 == 0:
            # In the centre: a model that sees only rotations (SU(2) / {1, -1}) does not notice the sign.
            found["-1"] = Elements({self.part: -self.identity().parts[self.part]})
        return found


def U(dimension: int, *, name: str = "unitary") -> Group:  # noqa: N802  (the mathematical name)
    """Unitary matrices; U(1) is a phase. ``spinor``, ``phase``, ``adjoint`` say how they act on complex tensors."""
    return Unitary(dimension, special_determinant=False, part=name)


def SU(dimension: int, *, name: str = "unitary") -> Group:  # noqa: N802
    """Unitary matrices of determinant 1: spin, isospin, colour."""
    return Unitary(dimension, special_determinant=True, part=name)


@dataclass(frozen=True, repr=False)
class Gauge(Group):
    """An element of a unitary group at every site of a periodic lattice: g(x), drawn independently.

    ``site`` and ``link`` say what it does to fields on sites and on links. The part ``gauge`` holds the matrices
    [n, *lattice, d, d]; the sizes of the lattice are those of the data.
    """

    local: Unitary
    lattice: int = 2
    sizes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.local, Unitary):
            raise expected("Gauge(U(1)), Gauge(SU(n)), ...", given=f"Gauge({self.local!r})")
        if self.lattice < 1:
            raise expected("a lattice of at least one axis", given=repr(self.lattice))

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"gauge {self.local.name}"

    @property
    def parts(self) -> tuple[str, ...]:
        return ("gauge",)

    def sample(self, n: int, generator: torch.Generator) -> Elements:
        sizes = self._known()
        drawn = self.local.matrices(n * _volume(sizes), generator)
        return Elements({"gauge": drawn.reshape(n, *sizes, *drawn.shape[1:])})

    def identity(self, n: int = 1) -> Elements:
        sizes = self._known()
        eye = torch.eye(self.local.dimension, dtype=torch.complex128)
        return Elements({"gauge": eye.expand(n, *sizes, *eye.shape).clone()})

    def compose(self, first: Elements, second: Elements) -> Elements:
        return Elements({"gauge": first.parts["gauge"] @ second.parts["gauge"]})

    def inverse(self, elements: Elements) -> Elements:
        return Elements({"gauge": elements.parts["gauge"].mH})

    def generators(self) -> dict[str, Draw]:
        return {"global transformation": self._global, "gauge transformation": self.sample}

    def special(self) -> dict[str, Elements]:
        moved = self.identity().parts["gauge"].clone()
        at = (0, *([0] * self.lattice))
        moved[at] = self.local.matrices(1, torch.Generator().manual_seed(0))[0]
        return {"identity": self.identity(), "one site": Elements({"gauge": moved})}

    def bind(self, sizes: Mapping[str, tuple[int, ...]]) -> Group:
        found = sizes.get("gauge")
        if found is None:
            return self
        if len(found) != self.lattice:
            raise expected(f"a lattice of {self.lattice} axes, as declared", given=f"{len(found)} lattice axes")
        return dataclasses.replace(self, sizes=found)

    def _global(self, n: int, generator: torch.Generator) -> Elements:
        drawn, sizes = self.local.matrices(n, generator), self._known()
        spread = drawn.reshape(n, *[1] * len(sizes), *drawn.shape[1:])
        return Elements({"gauge": spread.expand(n, *sizes, *drawn.shape[1:]).clone()})

    def _known(self) -> tuple[int, ...]:
        return self.sizes or (4,) * self.lattice


def _volume(sizes: tuple[int, ...]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
