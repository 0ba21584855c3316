"""Irreducible representations of O(3) through e3nn, computed in float64."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch import Tensor

from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.representations.base import Representation, axis_size, inner
from assay.errors import MissingExtra, expected


def irreps(formula: str, axis: int = -1) -> Representation:
    """Features that transform as an e3nn formula such as "8x0e + 4x1o + 2x2e" along ``axis`` (``assay-ml[e3]``)."""
    return Irreps(_parse(formula), axis)


class Irreps(Representation):
    """The Wigner matrices of a direct sum of irreducible representations."""

    def __init__(self, formula: Any, axis: int) -> None:
        self.formula, self.axis = formula, axis

    @property
    def parts(self) -> frozenset[str]:
        return frozenset({"linear"})

    def axes(self, ndim: int) -> frozenset[int]:
        return frozenset({self.axis % ndim}) if ndim else frozenset()

    def check(self, elements: Elements, shape: tuple[int, ...]) -> None:
        size = axis_size(shape, self.axis, repr(self))
        if size != self.formula.dim:
            raise expected(f"{self.formula.dim} components for {self!r}", given=f"shape {shape} with {size}")
        if "linear" in elements.parts and elements.parts["linear"].shape[-1] != 3:
            raise expected("a group of three-dimensional rotations for irreps(...)", given="another dimension")

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        if "linear" not in elements.parts:
            return x
        matrix = self.matrix(elements.parts["linear"]).to(x.dtype)
        rows = x.movedim(inner(self.axis), -1)
        flat = rows.reshape(len(rows), -1, rows.shape[-1]) @ matrix.mT
        return flat.reshape(rows.shape).movedim(-1, inner(self.axis))

    def matrix(self, rotation: Tensor) -> Tensor:
        """The block-diagonal matrices [n, dim, dim] of rotations [n, 3, 3], exact to float64 rounding."""
        values = rotation.detach().double().contiguous().numpy().tobytes()
        blocks = []
        for multiplicity, kind in self.formula:
            blocks += [_wigner(str(kind), len(rotation), values)] * multiplicity
        return _block_diagonal(blocks, len(rotation))

    def __repr__(self) -> str:
        return f"irreps({self.formula})"


@functools.lru_cache(maxsize=512)
def _wigner(kind: str, n: int, values: bytes) -> Tensor:
    """The matrices of one irreducible representation; an audit asks for the same few again and again.

    e3nn builds its angles and generators in the default dtype: with float32 as default the matrices of a float64
    rotation are off by 1e-7, enough to make an exact network look broken. The default is changed for this call.
    """
    rotation = torch.frombuffer(bytearray(values), dtype=torch.float64).reshape(n, 3, 3)
    ((_, irrep),) = _parse(kind)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        sign = torch.linalg.det(rotation).sign()
        found: Tensor = irrep.D_from_matrix(rotation * sign.view(-1, 1, 1))
        return found * torch.where(sign < 0, float(irrep.p), 1.0).view(-1, 1, 1)
    finally:
        torch.set_default_dtype(before)


def _parse(formula: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from e3nn.o3 import Irreps as Formula
    except ImportError:
        raise MissingExtra("e3nn", "e3", "irreps(...)") from None
    try:
        return Formula(formula)
    except (ValueError, TypeError) as error:
        raise expected("an e3nn formula such as '8x0e + 4x1o'", given=f"{formula!r} ({error})") from None


def _block_diagonal(blocks: list[Tensor], n: int) -> Tensor:
    total = sum(block.shape[-1] for block in blocks)
    matrix = torch.zeros(n, total, total, dtype=torch.float64)
    start = 0
    for block in blocks:
        stop = start + block.shape[-1]
        matrix[:, start:stop, start:stop] = block
        start = stop
    return matrix
