"""Representations that move entries about or flip signs: permutations, regular axes, parities, scales."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.representations.base import Representation, axis_size, inner, merge_sizes, spread
from assay.audits.symmetry.representations.images import group_turns
from assay.errors import expected


def permuted(*axes: int, of: str = "S") -> Representation:
    """The entries along each of ``axes`` change places together: nodes of a graph, both axes of an adjacency matrix."""
    if not axes:
        raise expected("at least one axis", given="permuted()", do="say permuted(1) for [batch, node, ...]")
    return Permuted(axes, of)


def node_index(*, of: str = "S") -> Representation:
    """The *values* are node numbers and follow the nodes: an ``edge_index``, a neighbour list; < 0 is padding."""
    return NodeIndex(of)


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
