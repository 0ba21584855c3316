"""How motions of a grid act on pictures, signals and volumes: exactly where they can, else by interpolation."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.representations.base import Representation, axis_size, inner
from assay.errors import expected


def image(*axes: int, margin: int | None = None, interpolate: bool = False) -> Representation:
    """A picture (or signal, or volume) on a grid: rotated, mirrored and shifted along ``axes``.

    ``margin`` is for shifts that lose what leaves the frame: outputs within ``margin`` of an edge are not compared.
    ``interpolate=True`` allows rotations that no grid carries exactly (C(8), SO(2), SO(3) on volumes): inputs are
    faded out towards the edge of a disc, outputs compared inside it, and an error is judged by what interpolation alone
    costs.
    """
    if len(axes) not in (1, 2, 3):
        raise expected(
            "one to three axes", given=f"image{axes}", do="say image(-2, -1) for [batch, channel, height, width]"
        )
    return Image(axes, margin, interpolate)


class Image(Representation):
    """Exact turns and mirror images of a grid, other rotations if allowed, shifts circular or out of the frame."""

    advice = "say image(..., interpolate=True) for rotations that no grid carries exactly"

    def __init__(self, where: tuple[int, ...], margin: int | None = None, interpolate: bool = False) -> None:
        self.where, self.margin, self.interpolate = where, margin, interpolate

    @property
    def parts(self) -> frozenset[str]:
        exact = {"grid", "cube", "shift", "crop"}
        return frozenset(exact | {"linear"} if self.interpolate else exact)

    def axes(self, ndim: int) -> frozenset[int]:
        return frozenset(axis % ndim for axis in self.where) if ndim else frozenset()

    def sizes(self, shape: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
        found = tuple(axis_size(shape, axis, repr(self)) for axis in self.where)
        return {"shift": found, "crop": found}

    def check(self, elements: Elements, shape: tuple[int, ...]) -> None:
        sizes = [axis_size(shape, axis, repr(self)) for axis in self.where]
        parts = elements.parts
        if "cube" in parts and (len(sizes) != 3 or len(set(sizes)) > 1):
            raise expected("a cubic volume for rotations of the cube", given=f"shape {shape}, axes {self.where}")
        if "grid" in parts and not self.interpolate:
            odd = bool((quarter_turns(elements) % 2).any())
            if len(sizes) != 2 or (sizes[0] != sizes[1] and odd):
                raise expected("a square image for rotations by 90 degrees", given=f"shape {shape}, axes {self.where}")
        if "linear" in parts and "grid" not in parts and "cube" not in parts:
            if not self.interpolate:
                raise expected(
                    "C(1), C(2), C(4), D(...), Cube() or shifts for image(...)",
                    given="a continuous rotation, which no pixel grid carries without interpolation",
                    do="use C(4) or D(4), or say image(..., interpolate=True)",
                )
            if parts["linear"].shape[-1] != len(sizes):
                raise expected(f"rotations of {len(sizes)} axes for {self!r}", given=f"{parts['linear'].shape[-1]}")

    def inexact(self, elements: Elements) -> bool:
        matrix = elements.parts.get("linear")
        if not self.interpolate or matrix is None:
            return False
        return bool((matrix - matrix.round()).abs().max() > 0)

    def admissible(self, x: Tensor) -> Tensor:
        """x faded out towards the edge of the largest disc: what leaves the frame under a rotation is zero."""
        fade = torch.cos((4 * self._radius(x) - 3).clamp(0, 1) * torch.pi / 2) ** 2
        return x * self._spread(fade, x).to(x.dtype)

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        parts = elements.parts
        if self.inexact(elements):
            x = self._rotated(parts["linear"], x)
        elif "grid" in parts and (group_turns(elements) in (1, 2, 4) or not self.interpolate):
            x = self._turn(quarter_turns(elements), parts["grid"][:, 1], x)
        elif "cube" in parts or (self.interpolate and "linear" in parts):
            x = self._exchanged(parts["linear"].round().long(), x)
        if "shift" in parts:
            for column, axis in enumerate(self.where):
                x = roll_each(x, parts["shift"][:, column], inner(axis) % x.ndim)
        if "crop" in parts:
            for column, axis in enumerate(self.where):
                x = slide_each(x, parts["crop"][:, column], inner(axis) % x.ndim)
        return x

    def mask(self, elements: Elements, x: Tensor) -> Tensor | None:
        if self.inexact(elements):
            # Inside the disc, a pixel from its edge (or the margin): there a rotated grid has all its neighbours.
            size = min(x.shape[inner(axis) % x.ndim] for axis in self.where)
            limit = 1 - 2 * (1 if self.margin is None else self.margin) / max(size - 1, 1)
            return self._spread(self._radius(x[0]) <= limit, x[0]).expand(x.shape)
        shift = elements.parts.get("crop")
        if shift is None:
            return None
        seen = torch.ones(x.shape, dtype=torch.bool)
        for column, axis in enumerate(self.where):
            place = inner(axis) % x.ndim
            size = x.shape[place]
            margin = int(shift.abs().max()) if self.margin is None else self.margin
            if size <= 2 * margin:
                raise expected(
                    f"images wider than 2 x margin = {2 * margin}", given=f"{size} pixels", do="lower margin"
                )
            here = torch.arange(size).unsqueeze(0)
            there = here - shift[:, column].unsqueeze(1)
            inside = (here >= margin) & (here < size - margin) & (there >= margin) & (there < size - margin)
            seen &= inside.view(len(shift), *[-1 if a == place else 1 for a in range(1, x.ndim)])
        return seen

    def _turn(self, turns: Tensor, flips: Tensor, x: Tensor) -> Tensor:
        first, second = (inner(axis) % x.ndim - 1 for axis in self.where)
        out = torch.empty_like(x)
        for code in torch.unique(turns * 2 + flips).tolist():
            chosen = (turns * 2 + flips) == code
            part = x[chosen]
            part = part.flip(second + 1) if code % 2 else part
            out[chosen] = torch.rot90(part, code // 2, (first + 1, second + 1))
        return out

    def _exchanged(self, signed: Tensor, x: Tensor) -> Tensor:
        """Axes exchanged and reversed: a signed permutation moves voxel p - centre to M (p - centre)."""
        places = [inner(axis) % x.ndim for axis in self.where]
        out = torch.empty_like(x)
        for matrix in torch.unique(signed, dim=0):
            chosen = (signed == matrix).all(dim=-1).all(dim=-1)
            source = matrix.abs().argmax(dim=1).tolist()
            order = list(range(x.ndim))
            for place, index in zip(places, source, strict=True):
                order[place] = places[index]
            reversed_axes = [p for p, row in zip(places, matrix, strict=True) if int(row.sum()) < 0]
            out[chosen] = x[chosen].permute(order).flip(reversed_axes)
        return out

    def _rotated(self, matrix: Tensor, x: Tensor) -> Tensor:
        """Each copy rotated about the centre of the grid: cubic in the plane, linear in space; zeros come in."""
        if x.is_complex():
            return torch.complex(self._rotated(matrix, x.real), self._rotated(matrix, x.imag))
        places = [inner(axis) % x.ndim for axis in self.where]
        last = list(range(x.ndim - len(places), x.ndim))
        rows = x.to(torch.float64).movedim(places, last)
        flat = rows.reshape(len(x), -1, *rows.shape[-len(places) :])
        centre = torch.tensor([(size - 1) / 2 for size in flat.shape[2:]], dtype=torch.float64)
        steps = [torch.arange(size, dtype=torch.float64) for size in flat.shape[2:]]
        here = torch.stack(torch.meshgrid(*steps, indexing="ij"), dim=-1) - centre
        source = torch.einsum("nab,...b->n...a", torch.linalg.inv(matrix), here) / centre
        mode = "bicubic" if len(places) == 2 else "bilinear"
        moved = functional.grid_sample(flat, source.flip(-1), mode=mode, padding_mode="zeros", align_corners=True)
        return moved.reshape(rows.shape).movedim(last, places).to(x.dtype)

    def _radius(self, x: Tensor) -> Tensor:
        """The distance of each place from the centre; 1 at the middle of the nearest edge."""
        steps = [torch.arange(x.shape[axis], dtype=torch.float64) - (x.shape[axis] - 1) / 2 for axis in self.where]
        nearest = max(min(float(step.abs().max()) for step in steps), 0.5)
        total: Tensor = torch.stack(torch.meshgrid(*[step**2 for step in steps], indexing="ij")).sum(dim=0)
        return total.sqrt() / nearest

    def _spread(self, field: Tensor, x: Tensor) -> Tensor:
        """A field over the grid, shaped to multiply x."""
        order = sorted(range(len(self.where)), key=lambda index: self.where[index] % x.ndim)
        places = {self.where[index] % x.ndim for index in order}
        return field.permute(order).reshape([x.shape[a] if a in places else 1 for a in range(x.ndim)])

    def __repr__(self) -> str:
        return f"image({', '.join(map(str, self.where))})"


def group_turns(elements: Elements) -> int:
    """n of the C(n) or D(n) the elements come from, read off the third column of the part ``grid``."""
    return int(elements.parts["grid"][0, 2])


def quarter_turns(elements: Elements) -> Tensor:
    """How many quarter turns each element makes; InputError if the group has other angles."""
    turns = group_turns(elements)
    if turns not in (1, 2, 4):
        raise expected(
            "C(1), C(2) or C(4) (or D) for image(...): a pixel grid has no other exact rotations",
            given=f"rotations by 360/{turns} degrees",
            do="say image(..., interpolate=True)",
        )
    return elements.parts["grid"][:, 0] * (4 // turns)


def roll_each(x: Tensor, shift: Tensor, place: int) -> Tensor:
    """x[i] rolled by shift[i] along ``place``."""
    # One by one: a gather by an index as large as x, which does all at once, takes several times as long.
    steps = shift.tolist()
    if not any(steps):
        return x.clone()
    return torch.stack([one.roll(step, place - 1) for one, step in zip(x, steps, strict=True)])


def slide_each(x: Tensor, shift: Tensor, place: int) -> Tensor:
    """x[i] moved by shift[i] along ``place`` with zeros coming in."""
    size = x.shape[place]
    source = torch.arange(size).unsqueeze(0) - shift.unsqueeze(1)
    inside = ((source >= 0) & (source < size)).view(len(shift), *[-1 if a == place else 1 for a in range(1, x.ndim)])
    return roll_each(x, shift, place) * inside.to(x.dtype)
