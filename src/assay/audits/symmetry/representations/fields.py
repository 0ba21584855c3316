"""Features whose type escnn names: a ``FieldType`` says how channels are exchanged while the picture is turned."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.representations.base import Representation, axis_size, inner
from assay.errors import expected

KINDS = ("CyclicGroup", "DihedralGroup", "SO2", "O2", "SO3", "O3")
"""Groups of escnn whose elements are known here."""


def fields(field_type: Any, axis: int = 1) -> Representation:
    """Channels along ``axis`` that transform as a ``FieldType`` of escnn; the picture itself is ``image(-2, -1)``.

    ``image(-2, -1) @ fields(module.out_type)`` is what a steerable convolution returns.
    """
    if not is_field_type(field_type):
        raise expected("a FieldType of escnn", given=type(field_type).__name__, do="say fields(module.out_type)")
    if type(field_type.fibergroup).__name__ not in KINDS:
        raise expected(f"a field over {', '.join(KINDS)}", given=str(field_type.fibergroup))
    return Fields(field_type, axis)


def is_field_type(thing: Any) -> bool:
    """Whether something names the type of features as escnn does."""
    return all(hasattr(thing, name) for name in ("fibergroup", "representation", "gspace", "size"))


class Fields(Representation):
    """The matrix that escnn has for an element, on the channels."""

    def __init__(self, kind: Any, axis: int) -> None:
        self.kind, self.axis = kind, axis
        self.planar = type(kind.fibergroup).__name__ not in ("SO3", "O3")
        self._known: dict[Any, Tensor] = {}

    @property
    def parts(self) -> frozenset[str]:
        return frozenset({"grid" if self.planar else "linear"})

    def axes(self, ndim: int) -> frozenset[int]:
        return frozenset({self.axis % ndim}) if ndim else frozenset()

    def check(self, elements: Elements, shape: tuple[int, ...]) -> None:
        size = axis_size(shape, self.axis, repr(self))
        if size != self.kind.size:
            raise expected(f"{self.kind.size} channels for {self!r}", given=f"shape {shape} with {size}")
        if self.planar and "grid" in elements.parts:
            for code in torch.unique(elements.parts["grid"], dim=0):
                self._element(code)
        elif "linear" in elements.parts and elements.parts["linear"].shape[-1] != 3:
            raise expected(f"a group of three-dimensional rotations for {self!r}", given="another dimension")

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        part = elements.parts.get("grid" if self.planar else "linear")
        if part is None:
            return x
        matrix = torch.stack([self._matrix(one) for one in part]).to(x.dtype)
        rows = x.movedim(inner(self.axis), -1)
        flat = rows.reshape(len(rows), -1, rows.shape[-1]) @ matrix.mT
        return flat.reshape(rows.shape).movedim(-1, inner(self.axis))

    def _matrix(self, one: Tensor) -> Tensor:
        key = tuple(one.flatten().tolist())
        if key not in self._known:
            matrix = np.asarray(self.kind.representation(self._element(one)))  # escnn gives np.matrix at times
            self._known[key] = torch.as_tensor(matrix, dtype=torch.float64)
        return self._known[key]

    def _element(self, one: Tensor) -> Any:
        """The element of escnn's group for (turns, flip, number of turns) or for a matrix."""
        group, name = self.kind.fibergroup, type(self.kind.fibergroup).__name__
        if not self.planar:
            sign = -1.0 if float(torch.linalg.det(one)) < 0 else 1.0
            if name == "SO3" and sign < 0:
                raise expected("rotations for a field over SO(3)", given="a reflection", do="use SO(3)")
            turn = (sign * one).numpy()
            return group.element(turn, "MAT") if name == "SO3" else group.element((int(sign < 0), turn), "MAT")
        turns, flip, number = one.tolist()
        if flip and name in ("CyclicGroup", "SO2"):
            raise expected(f"rotations for a field over {group}", given="mirror images", do=f"use C({number})")
        if name in ("SO2", "O2"):
            angle = 2 * math.pi * turns / number
            return group.element(angle) if name == "SO2" else group.element((flip, angle))
        whole = group.rotation_order
        if whole % number:
            raise expected(f"turns that are elements of {group} for {self!r}", given=f"turns by 360/{number} degrees")
        turns = turns * (whole // number)
        return group.element(turns) if name == "CyclicGroup" else group.element((flip, turns))

    def __repr__(self) -> str:
        names = [one.name for one in self.kind.representations]
        several = {name: names.count(name) for name in names}
        return f"fields({' + '.join(f'{count}x{name}' for name, count in several.items())})"
