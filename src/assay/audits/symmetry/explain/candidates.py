"""Representations a feature tensor [inputs, ...] could have, guessed from its shape."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, islice, product
from typing import Any

import torch
from torch import Tensor, nn

from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements, translation_of
from assay.audits.symmetry.representations.actions import Backwards, Permuted, Regular, Scaled
from assay.audits.symmetry.representations.base import BASES, Both, Invariant, Linear, Representation, inner
from assay.audits.symmetry.representations.fields import KINDS, Fields, is_field_type
from assay.audits.symmetry.representations.images import Image, group_turns, roll_each
from assay.audits.symmetry.representations.irreps import Irreps
from assay.audits.symmetry.representations.unitary import Adjoint, LinkVariable, Phase, Site

MOST = 64
"""Candidates tried per tensor; more only means features of a very unusual shape."""


WRAPPED = 16
"""Modules inside a module that are asked for the type of their features: a wrapper seldom says it itself."""


class Reshaped(Representation):
    """A representation of a view of the tensor: flattened vectors, nodes merged with the batch, flattened images.

    ``plain`` leaves the view out of the name: where it only adds an axis for the batch.
    """

    def __init__(self, rep: Representation, shape: tuple[int, ...], *, plain: bool = False) -> None:
        self.rep, self.shape, self.plain = rep, shape, plain

    @property
    def parts(self) -> frozenset[str]:
        return self.rep.parts

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        # Of as many inputs as there are: candidates are first weighed at one of them.
        return self.rep.act(elements, x.reshape(len(x), -1, *self.shape[1:])).reshape(x.shape)

    def __repr__(self) -> str:
        return repr(self.rep) if self.plain else f"{self.rep!r} of a view {list(self.shape[1:])}"


class Conjugate(Representation):
    """rho(g^-1) in place of rho(g): another convention, as after a transposed matrix or a flipped axis."""

    def __init__(self, rep: Representation, group: Group) -> None:
        self.rep, self.group = rep, group

    @property
    def parts(self) -> frozenset[str]:
        return self.rep.parts

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        return self.rep.act(self.group.inverse(elements), x)

    def __repr__(self) -> str:
        return f"{self.rep!r} of the inverse"


class StridedShift(Representation):
    """A circular shift of a feature map that is ``strides`` times smaller than the input."""

    def __init__(self, where: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.where, self.strides = where, strides

    @property
    def parts(self) -> frozenset[str]:
        return frozenset({"shift"})

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        for column, (axis, stride) in enumerate(zip(self.where, self.strides, strict=True)):
            shift = elements.parts["shift"][:, column]
            fits = shift % stride == 0
            x = roll_each(x, torch.where(fits, shift // stride, 0), inner(axis) % x.ndim)
            if not bool(fits.all()):
                # A shift that is no multiple of the stride has no counterpart on the smaller map.
                x = torch.where(fits.view(-1, *[1] * (x.ndim - 1)), x, torch.full_like(x, float("nan")))
        return x

    def __repr__(self) -> str:
        return f"shifted by 1/{self.strides[0]}"


def moving_parts(elements: Elements, group: Group) -> list[str]:
    """Parts in which some element differs from the identity."""
    neutral = group.identity(elements.count)
    return [name for name, part in elements.parts.items() if bool((part != neutral.parts[name]).any())]


def candidates(shape: tuple[int, ...], elements: Elements, group: Group, *, module: Any = None) -> list[Representation]:
    """Every representation tried for a tensor of ``shape`` = [inputs, ...]; the trivial one first."""
    moving = moving_parts(elements, group)
    found: list[Representation] = [Invariant()]
    for view in _views(shape, elements, moving):
        options = [list(_for_part(part, view, elements, moving)) for part in moving if not _implied(part, moving)]
        for choice in product(*[[Invariant(), *option] for option in options]):
            acting = [rep for rep in choice if not isinstance(rep, Invariant)]
            if acting:
                combined = acting[0]
                for rep in acting[1:]:
                    combined = Both(combined, rep)
                found.append(combined if view == shape else Reshaped(combined, view))
    found[1:1] = [*_declared_irreps(module, shape, moving), *_declared_fields(module, shape, moving)]
    return found[:MOST]


def _implied(part: str, moving: list[str]) -> bool:
    # The matrix of C(n) and D(n) comes with the grid part, the translation with the point of its matrix.
    if part == "linear" and {"grid", "cube"} & set(moving):
        return True
    return part.startswith("translation") and any(part == translation_of(other) for other in moving)


def _views(shape: tuple[int, ...], elements: Elements, moving: list[str]) -> list[tuple[int, ...]]:
    """The shape itself and ways to split one of its axes so that the group finds an axis of its own size."""
    views = [shape]
    for axis in range(1, len(shape)):
        for piece in _pieces(elements, moving):
            size = shape[axis]
            if size % piece == 0 and size > piece > 1:
                rest = size // piece
                views.append((*shape[:axis], rest, piece, *shape[axis + 1 :]))
                views.append((*shape[:axis], piece, rest, *shape[axis + 1 :]))
        root = round(shape[axis] ** 0.5)
        if root * root == shape[axis] and root > 1 and {"grid", "shift"} & set(moving):
            views.append((*shape[:axis], root, root, *shape[axis + 1 :]))
    return views[:12]


def _pieces(elements: Elements, moving: list[str]) -> Iterable[int]:
    for part in moving:
        value = elements.parts[part]
        if part == "grid":
            yield from (group_turns(elements), 2 * group_turns(elements))
        elif part not in ("shift", "crop", "gauge") and value.ndim > 1:
            yield value.shape[-1]


def _for_part(part: str, shape: tuple[int, ...], elements: Elements, moving: list[str]) -> Iterable[Representation]:
    axes, value = range(1, len(shape)), elements.parts[part]
    if part == "grid":
        yield from _on_grid(shape, elements)
    elif part in ("shift", "crop"):
        yield from _on_shift(part, shape, elements)
    elif part == "cube":
        yield from _on_cube(shape)
    elif part == "gauge":
        yield from _on_lattice(shape, value)
    elif part.startswith("translation"):
        matrix = part.removeprefix("translation of ") if part != "translation" else "linear"
        yield from (Linear(axis=a, part=matrix, translated=True) for a in axes if shape[a] == value.shape[-1])
    elif value.ndim == 3 and value.is_complex():
        yield from _on_unitary(part, shape, value.shape[-1])
    elif value.ndim == 3:
        yield from _on_matrix(part, shape, value, translated=translation_of(part) in moving)
    elif value.ndim == 2:
        here = [axis for axis in axes if shape[axis] == value.shape[-1]]
        yield from (Permuted((axis,), part) for axis in here)
        yield from (Permuted(pair, part) for pair in combinations(here, 2))
    else:
        powers = (1.0, 2.0, -1.0, 3.0, 0.5) if part == "scale" else (1.0,)
        yield from (Scaled(part, power) for power in powers)
        if part != "scale":
            yield from (Backwards(axis, part) for axis in axes)
            yield from (Both(Backwards(axis, part), Scaled(part, 1.0)) for axis in axes)


def _on_matrix(part: str, shape: tuple[int, ...], matrix: Tensor, *, translated: bool) -> Iterable[Representation]:
    here = [axis for axis in range(1, len(shape)) if shape[axis] == matrix.shape[-1]]
    mirror = bool((torch.linalg.det(matrix) < 0).any())
    for axis in reversed(here):
        yield Linear(axis=axis, part=part)
        if mirror:
            yield Linear(axis=axis, part=part, pseudo=True)
        if translated:
            yield Linear(axis=axis, part=part, translated=True)
    if mirror:
        yield Linear(axis=None, part=part, pseudo=True)
    yield from (Both(Linear(axis=a, part=part), Linear(axis=b, part=part)) for a, b in combinations(here, 2))


def _on_grid(shape: tuple[int, ...], elements: Elements) -> Iterable[Representation]:
    turns, axes = group_turns(elements), range(1, len(shape))
    mirror = bool((elements.parts["grid"][:, 1] == 1).any())
    sizes = (2 * turns,) if mirror else (turns, 2 * turns)
    images = [(a, b) for a, b in combinations(axes, 2) if shape[a] == shape[b] and b == a + 1 and turns in (1, 2, 4)]
    fibres: list[Representation] = [Regular(a) for a in axes if shape[a] in sizes]
    fibres += [Linear(axis=a, part="linear", basis=basis) for basis in ("", *BASES) for a in axes if shape[a] == 2]
    yield from fibres
    for pair in images:
        yield Image(pair, None)
        yield from (Both(Image(pair, None), fibre) for fibre in fibres if not fibre.axes(len(shape)) & set(pair))


def _on_cube(shape: tuple[int, ...]) -> Iterable[Representation]:
    fibres = [Linear(axis=a, part="linear") for a in range(1, len(shape)) if shape[a] == 3]
    yield from fibres
    for start in range(1, len(shape) - 2):
        where = (start, start + 1, start + 2)
        if len({shape[axis] for axis in where}) == 1:
            yield Image(where, None)
            yield from (Both(Image(where, None), one) for one in fibres if not one.axes(len(shape)) & set(where))


def _on_unitary(part: str, shape: tuple[int, ...], size: int) -> Iterable[Representation]:
    if size == 1:
        yield from (Phase(charge, part) for charge in (1, -1, 2, -2))
        return
    yield from (Linear(axis=axis, part=part) for axis in range(1, len(shape)) if shape[axis] == size)
    if len(shape) > 2 and shape[-2:] == (size, size):
        yield Adjoint(part)


def _on_lattice(shape: tuple[int, ...], gauge: Tensor) -> Iterable[Representation]:
    """Fields on sites, closed loops and links, wherever consecutive axes have the sizes of the lattice."""
    sizes, matrix = tuple(gauge.shape[1:-2]), gauge.shape[-1]
    for start in range(1, len(shape) - len(sizes) + 1):
        if shape[start : start + len(sizes)] != sizes:
            continue
        where = tuple(range(start, start + len(sizes)))
        square = matrix == 1 or shape[-2:] == (matrix, matrix)
        if square:
            yield from (LinkVariable(where, axis) for axis in range(1, start) if shape[axis] == len(sizes))
        if square and matrix > 1:
            yield Site(where, 0)
        if matrix == 1 or shape[-1] == matrix:
            yield from (Site(where, 1), Site(where, -1))


def _on_shift(part: str, shape: tuple[int, ...], elements: Elements) -> Iterable[Representation]:
    count = elements.parts[part].shape[-1]
    for start in range(1, len(shape) - count + 1):
        where = tuple(range(start, start + count))
        if part == "crop":
            reach = int(elements.parts[part].abs().max())
            if min(shape[axis] for axis in where) > 4 * reach:
                yield Image(where, 2 * reach)
            continue
        yield Image(where, None)
        for stride in (2, 4, 8):
            yield StridedShift(where, (stride,) * count)


def _declared_irreps(module: nn.Module | None, shape: tuple[int, ...], moving: list[str]) -> list[Representation]:
    """The representations an e3nn module, or what it wraps, says it has."""
    if module is None or "linear" not in moving or not shape:
        return []
    found: dict[str, Representation] = {}
    for part in islice(module.modules(), WRAPPED):
        for name in ("irreps_out", "irreps_in", "irreps_in1", "irreps_in2"):
            formula = getattr(part, name, None)
            if formula is not None and getattr(formula, "dim", None) == shape[-1]:
                found.setdefault(str(formula), Irreps(formula, -1))
    return list(found.values())


def _declared_fields(module: nn.Module | None, shape: tuple[int, ...], moving: list[str]) -> list[Representation]:
    """What the types of an escnn module, or of what it wraps, say of channels and picture."""
    if module is None or not {"grid", "linear"} & set(moving) or len(shape) < 2:
        return []
    found: dict[str, Representation] = {}
    for part in islice(module.modules(), WRAPPED):
        for name in ("out_type", "in_type"):
            kind: Any = getattr(part, name, None)
            if is_field_type(kind) and kind.size == shape[1] and type(kind.fibergroup).__name__ in KINDS:
                channels = Fields(kind, 1)
                square = len(shape) > 3 and shape[-1] == shape[-2]
                on_image = channels.planar and "grid" in moving and square
                rep: Representation = Both(Image((-2, -1), None), channels) if on_image else channels
                if channels.parts & set(moving):
                    found.setdefault(repr(rep), rep)
    return list(found.values())
