"""How unitary groups act on complex tensors: phases, spinors, matrices, and fields on sites and links of a lattice."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.representations.base import (
    Linear,
    Representation,
    axis_size,
    complex_needed,
    inner,
    spread,
)
from assay.errors import expected


def spinor(axis: int = -1, *, of: str = "unitary") -> Representation:
    """The fundamental representation of U(n) or SU(n): x -> g x along ``axis``, on complex tensors."""
    return Linear(axis=axis, part=of)


def phase(charge: int = 1, *, of: str = "unitary") -> Representation:
    """A field of this charge under U(1): x -> u^charge x."""
    return Phase(charge, of)


def adjoint(*, of: str = "unitary") -> Representation:
    """Matrices on the last two axes: X -> g X g^H."""
    return Adjoint(of)


def site(*lattice: int, charge: int = 1) -> Representation:
    """A field on the sites of a lattice (its axes are ``lattice``) under a gauge transformation.

    ``charge=1``: x -> g(site) x along the last axis (U(1): times the phase, without such an axis); ``charge=-1``: the
    conjugate; ``charge=0``: matrices on the last two axes, X -> g X g^H, as plaquettes and other closed loops.
    """
    if charge not in (-1, 0, 1):
        raise expected("charge -1, 0 (closed loops) or 1", given=repr(charge))
    return Site(lattice, charge)


def link(*lattice: int, direction: int) -> Representation:
    """Links U_mu(x) of a periodic lattice: U -> g(x) U g(x + mu)^H, matrices on the last two axes.

    ``lattice`` are the axes of the lattice, ``direction`` the axis that holds mu, one entry per lattice axis in the
    same order. Under U(1) links are complex numbers without axes for a matrix.
    """
    return LinkVariable(lattice, direction)


class Phase(Representation):
    """x -> u^charge x."""

    def __init__(self, charge: int, part: str) -> None:
        self.charge, self.part = charge, part

    @property
    def parts(self) -> frozenset[str]:
        return frozenset({self.part})

    def check(self, elements: Elements, shape: tuple[int, ...]) -> None:
        if self.part in elements.parts and elements.parts[self.part].shape[-1] != 1:
            raise expected("U(1) for phase(...)", given="a group of larger matrices", do="use spinor() or adjoint()")

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        if self.part not in elements.parts or self.charge == 0:
            return x
        if not x.is_complex():
            raise complex_needed(self, x)
        return x * spread(elements.parts[self.part][:, 0, 0] ** self.charge, x).to(x.dtype)

    def __repr__(self) -> str:
        return "phase" if self.charge == 1 else f"phase({self.charge})"


class Adjoint(Representation):
    """X -> g X g^H on the last two axes."""

    def __init__(self, part: str) -> None:
        self.part = part

    @property
    def parts(self) -> frozenset[str]:
        return frozenset({self.part})

    def axes(self, ndim: int) -> frozenset[int]:
        return frozenset({ndim - 2, ndim - 1}) if ndim > 1 else frozenset()

    def check(self, elements: Elements, shape: tuple[int, ...]) -> None:
        if self.part in elements.parts:
            _square(shape, elements.parts[self.part].shape[-1], self)

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        matrix = elements.parts.get(self.part)
        if matrix is None:
            return x
        if not x.is_complex():
            raise complex_needed(self, x)
        matrix = matrix.to(x.dtype).reshape(len(matrix), *[1] * (x.ndim - 3), *matrix.shape[1:])
        return matrix @ x @ matrix.mH

    def __repr__(self) -> str:
        return "adjoint"


class OnLattice(Representation):
    """What fields on sites and on links share: the axes of the lattice, brought behind the element axis."""

    lattice: tuple[int, ...]

    @property
    def parts(self) -> frozenset[str]:
        return frozenset({"gauge"})

    def axes(self, ndim: int) -> frozenset[int]:
        return frozenset(axis % ndim for axis in self.lattice) if ndim else frozenset()

    def sizes(self, shape: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
        return {"gauge": tuple(axis_size(shape, axis, repr(self)) for axis in self.lattice)}

    def inside(self, x: Tensor) -> Tensor:
        """x [n, ...] as [n, *lattice, ...]."""
        if not x.is_complex():
            raise complex_needed(self, x)
        return x.movedim([inner(a) % x.ndim for a in self.lattice], list(range(1, 1 + len(self.lattice))))

    def outside(self, x: Tensor) -> Tensor:
        """The inverse of ``inside``."""
        return x.movedim(list(range(1, 1 + len(self.lattice))), [inner(a) % x.ndim for a in self.lattice])


class Site(OnLattice):
    """g(x) phi(x), its conjugate, or g(x) W(x) g(x)^H."""

    def __init__(self, lattice: tuple[int, ...], charge: int) -> None:
        self.lattice, self.charge = lattice, charge

    def check(self, elements: Elements, shape: tuple[int, ...]) -> None:
        size = elements.parts["gauge"].shape[-1] if "gauge" in elements.parts else 1
        if size > 1 and self.charge == 0:
            _square(shape, size, self)
        elif size > 1 and shape[-1] != size:
            raise expected(f"{size} components on the last axis for {self!r}", given=f"shape {shape}")

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        matrix = elements.parts.get("gauge")
        if matrix is None:
            return x
        rows, count = self.inside(x), 1 + len(self.lattice)
        matrix = matrix.to(x.dtype)
        if matrix.shape[-1] == 1:
            factor = matrix[..., 0, 0]
            factor = factor if self.charge == 1 else factor.conj() if self.charge else torch.ones_like(factor)
            return self.outside(rows * factor.reshape(*factor.shape, *[1] * (rows.ndim - count)))
        trailing = rows.ndim - count - (2 if self.charge == 0 else 1)
        matrix = matrix.reshape(*matrix.shape[:count], *[1] * trailing, *matrix.shape[count:])
        if self.charge == 0:
            return self.outside(matrix @ rows @ matrix.mH)
        matrix = matrix if self.charge == 1 else matrix.conj()
        return self.outside((matrix @ rows.unsqueeze(-1)).squeeze(-1))

    def __repr__(self) -> str:
        return f"site({', '.join(map(str, self.lattice))}, charge={self.charge})"


class LinkVariable(OnLattice):
    """g(x) U_mu(x) g(x + mu)^H."""

    def __init__(self, lattice: tuple[int, ...], direction: int) -> None:
        self.lattice, self.direction = lattice, direction

    def check(self, elements: Elements, shape: tuple[int, ...]) -> None:
        if axis_size(shape, self.direction, repr(self)) != len(self.lattice):
            raise expected(
                f"one direction per lattice axis along axis {self.direction} for {self!r}", given=f"shape {shape}"
            )
        if "gauge" in elements.parts and elements.parts["gauge"].shape[-1] > 1:
            _square(shape, elements.parts["gauge"].shape[-1], self)

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        matrix = elements.parts.get("gauge")
        if matrix is None:
            return x
        rows, count = self.inside(x), 1 + len(self.lattice)
        along = (self.lattice_first(x.ndim)).index(inner(self.direction) % x.ndim)
        matrix, moved = matrix.to(x.dtype), []
        for mu, field in enumerate(rows.unbind(dim=along)):
            there = matrix.roll(-1, dims=1 + mu).mH
            if matrix.shape[-1] == 1:
                factor = (matrix * there)[..., 0, 0]
                moved.append(field * factor.reshape(*factor.shape, *[1] * (field.ndim - count)))
                continue
            shape = (*matrix.shape[:count], *[1] * (field.ndim - count - 2), *matrix.shape[count:])
            moved.append(matrix.reshape(shape) @ field @ there.reshape(shape))
        return self.outside(torch.stack(moved, dim=along))

    def lattice_first(self, ndim: int) -> list[int]:
        """The axes of [n, ...] in the order of ``inside``."""
        chosen = [inner(axis) % ndim for axis in self.lattice]
        return [0, *chosen, *(axis for axis in range(1, ndim) if axis not in chosen)]

    def __repr__(self) -> str:
        return f"link({', '.join(map(str, self.lattice))}, direction={self.direction})"


def _square(shape: tuple[int, ...], size: int, rep: Representation) -> None:
    if len(shape) < 2 or tuple(shape[-2:]) != (size, size):
        raise expected(f"matrices of {size} x {size} on the last two axes for {rep!r}", given=f"shape {shape}")
