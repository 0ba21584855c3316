"""Representations that move entries about or flip signs: permutations, images, regular axes, parities, scales."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.representations.base import Representation, axis_size, inner, merge_sizes, spread
from assay.errors import expected


def permuted(*axes: int, of: str = "S") -> Representation:
    """The entries along each of ``axes`` change places together: nodes of a graph, both axes of an adjacency matrix."""
    if not axes:
        raise expected("at least one axis", given="permuted()", do="say permuted(1) for [batch, node, ...]")
    return Permuted(axes, of)


def node_index(*, of: str = "S") -> Representation:
    """The *values* are node numbers and follow the nodes: an ``edge_index``, a neighbour list; < 0 is padding."""
    return NodeIndex(of)


def image(*axes: int, margin: int | None = None) -> Representation:
    """A picture (or signal, or volume) on a grid: rotated, mirrored and shifted along ``axes``.

    ``margin`` is for shifts that lose what leaves the frame: outputs within ``margin`` of an edge are not compared.
    """
    if len(axes) not in (1, 2, 3):
        raise expected(
            "one to three axes", given=f"image{axes}", do="say image(-2, -1) for [batch, channel, height, width]"
        )
    return Image(axes, margin)


def regular(axis: int) -> Representation:
    """One entry per element of C(n) or D(n), in the order of ``group.elements()``: (g f)(h) = f(g^-1 h)."""
    return Regular(axis)


def odd(*, of: str = "sign") -> Representation:
    """x -> -x under the flip: velocities under time reversal."""
    return Scaled(of, 1.0)


def scaled(degree: float = 1.0, *, of: str = "scale") -> Representation:
    """x -> s^degree x under a change of scale."""
    return Scaled(of, degree)


def backwards(axis: int, *, of: str = "time") -> Representation:
    """The entries along ``axis`` in reverse order under time reversal."""
    return Backwards(axis, of)


class Permuted(Representation):
    """(rho(p) x)[j] = x[p[j]] along each axis."""

    def __init__(self, where: tuple[int, ...], part: str) -> None:
        self.where, self.part = where, part

    @property
    def parts(self) -> frozenset[str]:
        return frozenset({self.part})

    def axes(self, ndim: int) -> frozenset[int]:
        return frozenset(axis % ndim for axis in self.where) if ndim else frozenset()

    def sizes(self, shape: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
        return merge_sizes([{self.part: (axis_size(shape, axis, repr(self)),)} for axis in self.where])

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        order = elements.parts.get(self.part)
        if order is None:
            return x
        for axis in self.where:
            place = inner(axis) % x.ndim
            index = order.view(len(order), *[-1 if a == place else 1 for a in range(1, x.ndim)])
            x = x.gather(place, index.expand(x.shape))
        return x

    def check(self, elements: Elements, shape: tuple[int, ...]) -> None:
        for axis in self.where:
            size = axis_size(shape, axis, repr(self))
            if self.part in elements.parts and elements.parts[self.part].shape[-1] != size:
                count = elements.parts[self.part].shape[-1]
                raise expected(f"{count} entries along axis {axis} for {self!r}", given=f"shape {shape}")

    def __repr__(self) -> str:
        return f"permuted({', '.join(map(str, self.where))})"


class NodeIndex(Representation):
    """Node i moves to the place j with p[j] = i, so the value i becomes p^-1[i]."""

    def __init__(self, part: str) -> None:
        self.part = part

    @property
    def parts(self) -> frozenset[str]:
        return frozenset({self.part})

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        order = elements.parts.get(self.part)
        if order is None:
            return x
        flat = x.reshape(len(x), -1).long()
        moved = order.argsort(dim=1).gather(1, flat.clamp(min=0))
        return torch.where(flat < 0, flat, moved).reshape(x.shape).to(x.dtype)

    def __repr__(self) -> str:
        return "node_index"


class Image(Representation):
    """Quarter turns and mirror images of a grid, circular shifts, and shifts that lose what leaves the frame."""

    def __init__(self, where: tuple[int, ...], margin: int | None) -> None:
        self.where, self.margin = where, margin

    @property
    def parts(self) -> frozenset[str]:
        return frozenset({"grid", "shift", "crop"})

    def axes(self, ndim: int) -> frozenset[int]:
        return frozenset(axis % ndim for axis in self.where) if ndim else frozenset()

    def sizes(self, shape: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
        found = tuple(axis_size(shape, axis, repr(self)) for axis in self.where)
        return {"shift": found, "crop": found}

    def check(self, elements: Elements, shape: tuple[int, ...]) -> None:
        sizes = [axis_size(shape, axis, repr(self)) for axis in self.where]
        if "grid" in elements.parts:
            quarter = quarter_turns(elements)
            if len(sizes) != 2 or (sizes[0] != sizes[1] and bool((quarter % 2).any())):
                raise expected("a square image for rotations by 90 degrees", given=f"shape {shape}, axes {self.where}")
        if "linear" in elements.parts and "grid" not in elements.parts:
            raise expected(
                "C(1), C(2), C(4), D(...) or shifts for image(...)",
                given="a continuous rotation, which no pixel grid carries without interpolation",
                do="use C(4) or D(4)",
            )

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        if "grid" in elements.parts:
            x = self._turn(quarter_turns(elements), elements.parts["grid"][:, 1], x)
        if "shift" in elements.parts:
            for column, axis in enumerate(self.where):
                x = roll_each(x, elements.parts["shift"][:, column], inner(axis) % x.ndim)
        if "crop" in elements.parts:
            for column, axis in enumerate(self.where):
                x = slide_each(x, elements.parts["crop"][:, column], inner(axis) % x.ndim)
        return x

    def mask(self, elements: Elements, x: Tensor) -> Tensor | None:
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

    def __repr__(self) -> str:
        return f"image({', '.join(map(str, self.where))})"


class Regular(Representation):
    """f(h) -> f(g^-1 h) over the elements h = R^k F^f of C(n) or D(n), numbered f * n + k."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    @property
    def parts(self) -> frozenset[str]:
        return frozenset({"grid"})

    def axes(self, ndim: int) -> frozenset[int]:
        return frozenset({self.axis % ndim}) if ndim else frozenset()

    def check(self, elements: Elements, shape: tuple[int, ...]) -> None:
        size = axis_size(shape, self.axis, repr(self))
        turns = group_turns(elements)
        if size not in (turns, 2 * turns):
            raise expected(f"{turns} or {2 * turns} entries, one per element", given=f"{size} along axis {self.axis}")

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        place = inner(self.axis) % x.ndim
        size, turns = x.shape[place], group_turns(elements)
        k, f, _ = elements.parts["grid"].T.unsqueeze(-1)
        h = torch.arange(size)
        m, flip = (h % turns).unsqueeze(0), (h // turns).unsqueeze(0)
        # g^-1 h with g = R^k F^f: R^(m-k) F^flip without a flip in g, R^(k-m) F^(flip+1) with one.
        source = torch.where(f == 1, (k - m) % turns, (m - k) % turns)
        source = source + turns * torch.where(f == 1, (flip + 1) % 2, flip)
        if size == turns and bool((f == 1).any()):
            raise expected(
                f"{2 * turns} entries for a group with mirror images", given=f"{size} along axis {self.axis}"
            )
        index = source.view(len(source), *[-1 if a == place else 1 for a in range(1, x.ndim)])
        return x.gather(place, index.expand(x.shape))

    def __repr__(self) -> str:
        return f"regular({self.axis})"


class Scaled(Representation):
    """x -> s^degree x."""

    def __init__(self, part: str, degree: float) -> None:
        self.part, self.degree = part, degree

    @property
    def parts(self) -> frozenset[str]:
        return frozenset({self.part})

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        factor = elements.parts.get(self.part)
        return x if factor is None else x * spread(factor**self.degree, x).to(x.dtype)

    def __repr__(self) -> str:
        return "odd" if self.part != "scale" else f"scaled({self.degree:g})"


class Backwards(Representation):
    """Reversed along an axis where the flip is -1."""

    def __init__(self, axis: int, part: str) -> None:
        self.axis, self.part = axis, part

    @property
    def parts(self) -> frozenset[str]:
        return frozenset({self.part})

    def axes(self, ndim: int) -> frozenset[int]:
        return frozenset({self.axis % ndim}) if ndim else frozenset()

    def act(self, elements: Elements, x: Tensor) -> Tensor:
        flip = elements.parts.get(self.part)
        return x if flip is None else torch.where(spread(flip < 0, x), x.flip(inner(self.axis)), x)

    def __repr__(self) -> str:
        return f"backwards({self.axis})"


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
        )
    return elements.parts["grid"][:, 0] * (4 // turns)


def roll_each(x: Tensor, shift: Tensor, place: int) -> Tensor:
    """x[i] rolled by shift[i] along ``place``."""
    size = x.shape[place]
    index = (torch.arange(size).unsqueeze(0) - shift.unsqueeze(1)) % size
    return x.gather(place, index.view(len(shift), *[-1 if a == place else 1 for a in range(1, x.ndim)]).expand(x.shape))


def slide_each(x: Tensor, shift: Tensor, place: int) -> Tensor:
    """x[i] moved by shift[i] along ``place`` with zeros coming in."""
    size = x.shape[place]
    source = torch.arange(size).unsqueeze(0) - shift.unsqueeze(1)
    inside = ((source >= 0) & (source < size)).view(len(shift), *[-1 if a == place else 1 for a in range(1, x.ndim)])
    return roll_each(x, shift, place) * inside.to(x.dtype)
