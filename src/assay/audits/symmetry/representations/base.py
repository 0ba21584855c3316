"""How a group acts on a tensor. Actions are batched: n elements act on n copies of a tensor, ``[n, *shape]``.

Axes are those of the tensor as the model sees it (batch axis included); ``a @ b`` lets both act.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from assay.audits.symmetry.groups.elements import Elements, translation_of
from assay.errors import InputError, expected


class Representation(ABC):
    """A map from group elements to linear (or affine) maps of a tensor, with rho(ab) = rho(a) rho(b)."""

    advice = ""
    """What to do if a group has no part it can use."""

    @property
    @abstractmethod
    def parts(self) -> frozenset[str]:
        """Names of the parts of an element it uses; a part the group does not have acts as the identity."""

    @abstractmethod
    def act(self, elements: Elements, x: Tensor) -> Tensor:
        """Element i applied to x[i], for x of shape [n, *shape]."""

    @abstractmethod
    def __repr__(self) -> str: ...

    def axes(self, ndim: int) -> frozenset[int]:
        """Axes (of the tensor of ``ndim`` axes as the model sees it) that it mixes."""
        return frozenset()

    def sizes(self, shape: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
        """Sizes it finds in the data for parts that leave them open."""
        return {}

    def check(self, elements: Elements, shape: tuple[int, ...]) -> None:
        """Raises InputError if it cannot act on a tensor of this shape."""
        return

    def mask(self, elements: Elements, x: Tensor) -> Tensor | None:
        """Where outputs may be compared, or None for everywhere."""
        return None

    def inexact(self, elements: Elements) -> bool:
        """Whether it can only be carried out approximately at these elements (a grid that is interpolated)."""
        return False

    def admissible(self, x: Tensor) -> Tensor:
        """The input nearest to x on which it loses nothing; asked only where it is inexact."""
        return x

    def __matmul__(self, other: Representation) -> Representation:
        return Both(self, other)


def invariant() -> Representation:
    """Nothing happens: energies, class scores, atomic numbers."""
    return Invariant()


def vector(axis: int = -1, *, of: str = "linear", basis: str = "") -> Representation:
    """An arrow: x -> R x along ``axis``; translations leave it alone.

    On images the components follow the axes of the picture: down, right. ``basis="right, down"`` is for pixel
    coordinates (optical flow), ``basis="right, up"`` for x and y as they are drawn.
    """
    if basis and basis not in BASES:
        raise expected(f"basis {' or '.join(map(repr, BASES))}", given=repr(basis))
    return Linear(axis=axis, part=of, basis=basis)


def pseudovector(axis: int = -1, *, of: str = "linear") -> Representation:
    """An axial vector (angular momentum, magnetic field): x -> det(R) R x."""
    return Linear(axis=axis, part=of, pseudo=True)


def pseudoscalar(*, of: str = "linear") -> Representation:
    """A number that changes sign under reflections: x -> det(R) x."""
    return Linear(axis=None, part=of, pseudo=True)


def point(axis: int = -1, *, of: str = "linear") -> Representation:
    """A position: x -> R x + t along ``axis``."""
    return Linear(axis=axis, part=of, translated=True)


def tensor(rank: int, *, of: str = "linear") -> Representation:
    """A Cartesian tensor on the last ``rank`` axes: every index is rotated. ``tensor(2)`` is a stress or a cell."""
    if rank < 0:
        raise expected("a rank >= 0", given=repr(rank))
    result: Representation = Invariant()
    for axis in range(rank):
        step = Linear(axis=axis - rank, part=of)
        result = step if axis == 0 else result @ step
    return result


def custom(
    act: Callable[[Elements, Tensor], Tensor], *, name: str = "custom", parts: tuple[str, ...] = ("linear",)
) -> Representation:
    """A representation of your own: ``act(elements, x)`` applies element i to x[i] (x has shape [n, *shape])."""
    return Custom(act, name, frozenset(parts))


BASES = {"right, down": ((0.0, 1.0), (1.0, 0.0)), "right, up": ((0.0, 1.0), (-1.0, 0.0))}
"""Components of an arrow in a picture, from those along its axes (down, right)."""


class Invariant(Representation):
    """The trivial representation."""

    @property
    def parts(self) -> frozenset[str]:
        return frozenset()

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        return x

    def __repr__(self) -> str:
        return "invariant"


class Linear(Representation):
    """Matrix times the components along one axis, with the determinant (pseudo) or a translation if asked for."""

    def __init__(
        self, *, axis: int | None, part: str, pseudo: bool = False, translated: bool = False, basis: str = ""
    ) -> None:
        self.axis, self.part, self.pseudo, self.translated, self.basis = axis, part, pseudo, translated, basis

    @property
    def parts(self) -> frozenset[str]:
        return frozenset({self.part, translation_of(self.part)} if self.translated else {self.part})

    def axes(self, ndim: int) -> frozenset[int]:
        return frozenset() if self.axis is None else frozenset({self.axis % ndim}) if ndim else frozenset()

    def check(self, elements: Elements, shape: tuple[int, ...]) -> None:
        if self.axis is None or self.part not in elements.parts:
            return
        size, dimension = axis_size(shape, self.axis, repr(self)), elements.parts[self.part].shape[-1]
        if size != dimension:
            raise expected(
                f"{dimension} components along axis {self.axis} for {self!r}",
                given=f"shape {shape} with {size} there",
                do="name the axis that holds the components, as in vector(axis=...), or use irreps for flattened ones",
            )
        if self.basis and dimension != 2:
            raise expected(f"2 components for basis {self.basis!r}", given=f"{dimension}")

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        matrix = elements.parts.get(self.part)
        if matrix is None:
            return x
        if matrix.is_complex() and not x.is_complex():
            raise complex_needed(self, x)
        if self.axis is None:
            return x * spread(torch.linalg.det(matrix), x).to(x.dtype) if self.pseudo else x
        if self.basis:
            change = torch.tensor(BASES[self.basis], dtype=matrix.dtype)
            matrix = change @ matrix @ change.mT
        matrix = (matrix * torch.linalg.det(matrix).view(-1, 1, 1) if self.pseudo else matrix).to(x.dtype)
        rows = x.movedim(inner(self.axis), -1)
        flat = rows.reshape(len(rows), -1, rows.shape[-1]) @ matrix.mT
        if self.translated and translation_of(self.part) in elements.parts:
            flat = flat + elements.parts[translation_of(self.part)].to(x.dtype).unsqueeze(1)
        return flat.reshape(rows.shape).movedim(-1, inner(self.axis))

    def __repr__(self) -> str:
        kind = "point" if self.translated else "vector" if self.axis is not None else "scalar"
        kind = f"pseudo{kind}" if self.pseudo else kind
        words = [] if self.axis in (-1, None) else [f"axis={self.axis}"]
        words += [f"basis={self.basis!r}"] if self.basis else []
        return f"{kind}({', '.join(words)})" if words else kind


class Custom(Representation):
    """A representation given as a function."""

    def __init__(self, act: Callable[[Elements, Tensor], Tensor], name: str, parts: frozenset[str]) -> None:
        self._act, self._name, self._parts = act, name, parts

    @property
    def parts(self) -> frozenset[str]:
        return self._parts

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        y = self._act(elements, x)
        if y.shape != x.shape:
            raise expected(
                f"a representation that keeps the shape {tuple(x.shape)}",
                given=f"{self._name} returned {tuple(y.shape)}",
            )
        return y

    def __repr__(self) -> str:
        return self._name


class Both(Representation):
    """The second representation, then the first: they usually act on different axes."""

    def __init__(self, first: Representation, second: Representation) -> None:
        self.first, self.second = first, second

    @property
    def parts(self) -> frozenset[str]:
        return self.first.parts | self.second.parts

    def axes(self, ndim: int) -> frozenset[int]:
        return self.first.axes(ndim) | self.second.axes(ndim)

    def sizes(self, shape: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
        return merge_sizes([self.first.sizes(shape), self.second.sizes(shape)])

    def check(self, elements: Elements, shape: tuple[int, ...]) -> None:
        self.first.check(elements, shape)
        self.second.check(elements, shape)

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        return self.first.act(elements, self.second.act(elements, x))

    def inexact(self, elements: Elements) -> bool:
        return self.first.inexact(elements) or self.second.inexact(elements)

    def admissible(self, x: Tensor) -> Tensor:
        return self.first.admissible(self.second.admissible(x))

    def mask(self, elements: Elements, x: Tensor) -> Tensor | None:
        first, second = self.first.mask(elements, x), self.second.mask(elements, x)
        return second if first is None else first if second is None else first & second

    def __repr__(self) -> str:
        return f"{self.first!r} @ {self.second!r}"


def merge_sizes(several: list[Mapping[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]]:
    """Sizes found in several places; an InputError if two places disagree."""
    merged: dict[str, tuple[int, ...]] = {}
    for sizes in several:
        for part, size in sizes.items():
            if merged.setdefault(part, size) != size:
                raise expected(
                    f"one size for the group part {part!r}",
                    given=f"{merged[part]} in one place and {size} in another",
                    do="check the axes given to permuted(...) or image(...)",
                )
    return merged


def complex_needed(rep: Representation, x: Tensor) -> InputError:
    """The error for a complex matrix and a real tensor: leaving the imaginary part out would be another action."""
    return expected(
        f"a complex tensor for {rep!r} under a complex group",
        given=f"{x.dtype} of shape {tuple(x.shape[1:])}",
        do="torch.complex(real, imaginary), or SO(2) for pairs of real numbers",
    )


def inner(axis: int) -> int:
    """The place of a model axis in a tensor with a leading element axis."""
    return axis + 1 if axis >= 0 else axis


def axis_size(shape: tuple[int, ...], axis: int, who: str) -> int:
    """The size along ``axis``; InputError if there is no such axis."""
    if not -len(shape) <= axis < len(shape):
        raise InputError(f"expected an axis {axis} for {who}; given a tensor of shape {shape} with {len(shape)} axes")
    return shape[axis]


def spread(values: Tensor, x: Tensor) -> Tensor:
    """``values`` [n] shaped to multiply x [n, ...]."""
    return values.view(-1, *([1] * (x.ndim - 1)))
