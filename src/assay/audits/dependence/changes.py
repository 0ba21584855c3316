"""Inputs in which only what must not matter was changed, and the outputs that must not have moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from assay.audits.dependence.declarations import (
    Causal,
    Local,
    Names,
    Neighbours,
    Never,
    Only,
    Padding,
    Positional,
    Rows,
)
from assay.errors import FOREIGN, InputError, expected, unknown
from assay.probe.subject import Leaves, Probe
from assay.probe.values import exact, exact_spread, is_continuous
from assay.seeding import torch_generator

KINDS = ("by much", "by little", "swapped", "extreme")
MOST_PLACES = 32
"""The picture shows at most so many places of a sequence, spread over its length."""


@dataclass(frozen=True)
class Change:
    """One comparison: outputs at ``base`` and at ``leaves`` must agree where ``keep`` (by output) says so.

    ``keep(index, y)`` returns a boolean mask of the shape of ``y``, or None if nothing is claimed of that output.
    ``there`` picks from the changed outputs what is compared with ``here`` of the base (both default to everything).
    """

    label: str
    base: Leaves
    leaves: Leaves
    keep: Callable[[int, Tensor], Tensor | None]
    forbidden: Mapping[int, Tensor] = field(default_factory=dict)
    """Where an input was changed, by its number."""
    here: Callable[[Tensor], Tensor] = lambda y: y
    there: Callable[[Tensor], Tensor] = lambda y: y
    same_shape: bool = True


def changes(probe: Probe, depends: Any) -> list[Change]:
    """The comparisons a declaration asks for."""
    if isinstance(depends, Causal | Local):
        return positional(probe, depends)
    if isinstance(depends, Rows):
        return _rows(probe)
    if isinstance(depends, Padding):
        return _padding(probe, depends)
    if isinstance(depends, Neighbours):
        return _neighbours(probe, depends)
    if isinstance(depends, Never):
        return _never(probe, depends.names)
    if isinstance(depends, Only):
        known = [place(probe, name) for name in depends.names]
        others = [name for number, name in enumerate(probe.input_names)
                  if number not in known and isinstance(probe.cases[0][number], Tensor)]  # fmt: skip
        if not others:
            raise expected("an input besides those allowed", given=f"dep.only({', '.join(depends.names)})")
        return _never(probe, tuple(others))
    raise expected("a declaration such as dep.causal()", given=repr(depends), do="see docs/guides/dependence.md")


def place(probe: Probe, name: str) -> int:
    """The number of the input called ``name``."""
    names = [known or "input" for known in probe.input_names]
    if name not in names:
        raise InputError(unknown("input", name, names))
    return names.index(name)


def timed(probe: Probe, names: Names, dim: int) -> tuple[list[int], int]:
    """Numbers of the inputs that have places along ``dim``, and how many places."""
    leaves = probe.cases[0]
    first = next(i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor))
    chosen = [place(probe, name) for name in names] or [first]
    for number in chosen:
        leaf = leaves[number]
        if not isinstance(leaf, Tensor) or leaf.ndim <= dim:
            shape = tuple(leaf.shape) if isinstance(leaf, Tensor) else type(leaf).__name__
            raise expected(f"an input with axis {dim}", given=f"{probe.input_names[number] or 'the input'}: {shape}")
    sizes = {int(leaves[number].shape[dim]) for number in chosen}
    if len(sizes) > 1 or min(sizes) < 2:
        raise expected(f"inputs of one length of at least 2 along axis {dim}", given=f"lengths {sorted(sizes)}")
    return chosen, sizes.pop()


def changed(leaf: Tensor, where: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """The leaf with other values at ``where``: random ones, near ones, its own in another order, or its extremes."""
    value = leaf.detach().clone()
    count = int(where.sum())
    if not count:
        return value
    here = exact(value)[where] if is_continuous(leaf) else value[where]
    if kind == "swapped":
        order = torch.randperm(count, generator=generator)
        new = here[order if count > 1 and not torch.equal(here[order], here) else torch.arange(count).flip(0)]
        if torch.equal(new, here):
            kind = "by much"
        else:
            value[where] = new.to(value.dtype)
            return value
    if is_continuous(leaf):
        spread = exact_spread(leaf)
        noise = torch.randn(here.shape, generator=generator, dtype=here.dtype)
        scale = {"by much": 3.0, "by little": 1e-3, "extreme": 1e3}[kind]
        value[where] = (here + scale * spread * noise).to(value.dtype)
        return value
    if value.dtype == torch.bool:
        value[where] = ~here
        return value
    low, high = int(value.min()), int(value.max())
    if low == high:
        high = low + 1  # the only other value known to be legal is next to the one seen
    if kind == "extreme":
        new = torch.where(here == high, low, high)
    elif kind == "by little":
        new = torch.where(here < high, here + 1, here - 1)
    else:
        new = low + (here - low + torch.randint(1, high - low + 1, here.shape, generator=generator)) % (high - low + 1)
    value[where] = new.to(value.dtype)
    return value


def along(leaf: Tensor, dim: int, wanted: Tensor) -> Tensor:
    """A mask of the shape of ``leaf``: True where ``wanted[row, place]``, places along ``dim``."""
    shape = [1] * leaf.ndim
    shape[dim] = wanted.shape[1]
    if dim != 0 and len(leaf) == len(wanted):
        shape[0] = len(wanted)
        return wanted.reshape(shape).expand(leaf.shape)
    return wanted[0].reshape(shape).expand(leaf.shape)


def replaced(leaves: Leaves, new: dict[int, Tensor]) -> Leaves:
    """The leaves with some of them replaced."""
    return [new.get(number, leaf) for number, leaf in enumerate(leaves)]


def positional(probe: Probe, depends: Positional) -> list[Change]:
    """Every row has its own cut (or centre), so that one pass tries as many as there are rows."""
    numbers, length = timed(probe, depends.inputs, depends.inputs_dim)
    leaves = probe.cases[0]
    rows = len(leaves[numbers[0]]) if depends.inputs_dim else 1
    generator = torch_generator(probe.seed, "cuts")
    allowed = torch.tensor([[depends.allows(t, s) for s in range(length)] for t in range(length)])
    useful = [t for t in range(length) if not bool(allowed[t].all())]
    if not useful:
        raise expected("a claim that forbids something at this length", given=f"{depends} of a sequence of {length}")
    spread = [useful[0], useful[-1], useful[len(useful) // 2]]
    spread += [useful[int(i)] for i in torch.randperm(len(useful), generator=generator)]
    found = []
    for number, kind in enumerate(KINDS):
        outputs = [spread[(number * rows + row) % len(spread)] for row in range(rows)]
        forbidden = ~allowed[outputs]
        # What sees nothing that was changed is claimed: for a cut at t every output up to t, for a field its centre.
        kept = ~(allowed.to(torch.int) @ forbidden.T.to(torch.int) > 0).T
        where = {n: along(leaves[n], depends.inputs_dim, forbidden) for n in numbers}
        new = {n: changed(leaves[n], where[n], kind, generator) for n in numbers}
        keep = _keep_places(depends.outputs_dim, length, kept)
        found.append(Change(kind, leaves, replaced(leaves, new), keep, where))
    return found


def _keep_places(dim: int, length: int, kept: Tensor) -> Callable[[int, Tensor], Tensor | None]:
    def keep(index: int, y: Tensor) -> Tensor | None:
        if y.ndim <= dim or y.shape[dim] != length:
            return None
        return along(y, dim, kept)

    return keep


def _rows(probe: Probe) -> list[Change]:
    leaves = probe.cases[0]
    size = probe.first_axis(leaves)
    if size < 2:
        raise expected("a sample of at least two rows", given=f"{size} row")
    generator = torch_generator(probe.seed, "rows")
    batched = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == size]
    half = max(1, size // 2)
    fewer = replaced(leaves, {n: leaves[n][:half].clone() for n in batched})
    first = _rows_first(probe, fewer, size=size)
    found = []
    for kind in ("by much", "extreme"):
        kept = torch.zeros(size, dtype=torch.bool)
        kept[torch.randperm(size, generator=generator)[: max(1, size // 2)]] = True
        where = {n: (~kept).reshape(-1, *[1] * (leaves[n].ndim - 1)).expand(leaves[n].shape) for n in batched}
        new = {n: changed(leaves[n], where[n], kind, generator) for n in batched if not _is_mask(leaves[n])}
        found.append(Change(kind, leaves, replaced(leaves, new), _keep_rows(kept), where, here=first, there=first))
    found.append(Change("fewer rows", leaves, fewer, _keep_rows(torch.ones(half, dtype=torch.bool)),
                        here=lambda y: _picked(first(y), size, slice(half)), there=first,
                        same_shape=False))  # fmt: skip
    order = torch.randperm(size, generator=generator)
    back = torch.argsort(order)
    moved = replaced(leaves, {n: leaves[n][order].clone() for n in batched})
    found.append(Change("rows in another order", leaves, moved, _keep_rows(torch.ones(size, dtype=torch.bool)),
                        here=first, there=lambda y: _picked(first(y), size, back), same_shape=False))  # fmt: skip
    return found


def _picked(y: Tensor, size: int, which: slice | Tensor) -> Tensor:
    return y[which] if y.ndim and len(y) == size else y


def _rows_first(probe: Probe, fewer: Leaves, *, size: int) -> Callable[[Tensor], Tensor]:
    """Outputs with their rows along the first axis: the state of a recurrent layer is [layers, rows, features].

    Where they lie is seen at a batch of fewer rows: along the one axis that gets as much shorter.
    """
    axes: dict[tuple[int, ...], int] = {}
    try:
        pairs = list(zip(probe.base(0, "low"), probe.values(fewer, "low"), strict=True))
    except FOREIGN:  # what a model raises at fewer rows is told where they are compared
        pairs = []
    for full, part in pairs:
        shorter = [axis for axis, (a, b) in enumerate(zip(full.shape, part.shape, strict=False)) if a != b]
        if full.ndim == part.ndim and len(shorter) == 1 and shorter[0] and full.shape[shorter[0]] == size:
            axes |= {tuple(full.shape): shorter[0], tuple(part.shape): shorter[0]}
    return lambda y: y.movedim(axes.get(tuple(y.shape), 0), 0) if y.ndim else y


def _is_mask(leaf: Tensor) -> bool:
    return leaf.dtype == torch.bool or (not is_continuous(leaf) and bool(((leaf == 0) | (leaf == 1)).all()))


def _keep_rows(kept: Tensor) -> Callable[[int, Tensor], Tensor | None]:
    def keep(index: int, y: Tensor) -> Tensor | None:
        if not y.ndim or len(y) != len(kept):
            return None
        return kept.reshape(-1, *[1] * (y.ndim - 1)).expand(y.shape)

    return keep


def _padding(probe: Probe, depends: Padding) -> list[Change]:
    leaves, dim = probe.cases[0], depends.dim
    mask_at = place(probe, depends.mask)
    mask = leaves[mask_at]
    if not isinstance(mask, Tensor) or mask.ndim != 2 or mask.ndim <= dim:
        raise expected(f"a mask [rows, places] called {depends.mask}", given=f"{getattr(mask, 'shape', type(mask))}")
    length = mask.shape[dim]
    chosen = [place(probe, name) for name in depends.inputs] or [
        n for n, leaf in enumerate(leaves)
        if n != mask_at and isinstance(leaf, Tensor) and leaf.ndim > dim and leaf.shape[dim] == length
    ]  # fmt: skip
    generator = torch_generator(probe.seed, "padding")
    real = mask.detach().cpu() != 0

    def padded(side: str, kind: str | None) -> Leaves:
        new = {}
        for n in [*chosen, mask_at]:
            leaf = leaves[n]
            shape = list(leaf.shape)
            shape[dim] = depends.amount
            extra = torch.zeros(shape, dtype=leaf.dtype)
            if n != mask_at and not _position_like(probe.input_names[n]) and kind is not None:
                other = leaf.flip(dim).narrow(dim, 0, min(depends.amount, length))
                extra.narrow(dim, 0, other.shape[dim]).copy_(other)
                extra = changed(extra, torch.ones_like(extra, dtype=torch.bool), kind, generator)
            new[n] = torch.cat([leaf, extra] if side == "right" else [extra, leaf], dim)
        return replaced(leaves, new)

    def real_only(index: int, y: Tensor) -> Tensor | None:
        return along(y, dim, real) if y.ndim > dim and y.shape[dim] == length else None

    found = []
    if not bool(real.all()):
        where = {n: along(leaves[n], dim, ~real) for n in chosen}
        new = {n: changed(leaves[n], where[n], "by much", generator) for n in chosen}
        found.append(Change("other content in padding", leaves, replaced(leaves, new), real_only, where))
    for side in depends.sides:
        at = 0 if side == "right" else depends.amount

        def there(y: Tensor, at: int = at) -> Tensor:
            return y.narrow(dim, at, length) if y.ndim > dim and y.shape[dim] == length + depends.amount else y

        more, longer = f"{depends.amount} more places of padding on the {side}", padded(side, None)
        found.append(Change(more, leaves, longer, real_only, there=there, same_shape=False))
        found.append(Change(f"other content there ({side})", longer, padded(side, "by much"), real_only,
                            here=there, there=there))  # fmt: skip
    return found


def _position_like(name: str) -> bool:
    return "position" in name


def _neighbours(probe: Probe, depends: Neighbours) -> list[Change]:
    leaves = probe.cases[0]
    edges, nodes_at = leaves[place(probe, depends.edge_index)], place(probe, depends.nodes)
    nodes = leaves[nodes_at]
    if not isinstance(edges, Tensor) or edges.ndim != 2 or len(edges) != 2:
        raise expected(f"{depends.edge_index} of shape [2, edges]", given=f"{getattr(edges, 'shape', type(edges))}")
    count = len(nodes)
    reach = torch.eye(count, dtype=torch.bool)
    step = torch.eye(count, dtype=torch.bool)
    step[edges[1], edges[0]] = True  # messages flow from edges[0] to edges[1]
    for _ in range(depends.hops):
        reach = (step.to(torch.float64) @ reach.to(torch.float64)) > 0
    useful = [i for i in range(count) if not bool(reach[i].all())]
    if not useful:
        raise expected("a graph in which some node is out of reach", given=f"every node within {depends.hops} hops",
                       do="take a larger or sparser graph as the sample")  # fmt: skip
    generator = torch_generator(probe.seed, "neighbours")
    order = [useful[int(i)] for i in torch.randperm(len(useful), generator=generator)]
    found = []
    for number, kind in enumerate(KINDS):
        forbidden = ~reach[order[number % len(order)]]
        kept = ~(reach & forbidden).any(1)
        where = forbidden.reshape(-1, *[1] * (nodes.ndim - 1)).expand(nodes.shape)
        new = {nodes_at: changed(nodes, where, kind, generator)}
        found.append(Change(kind, leaves, replaced(leaves, new), _keep_rows(kept), {nodes_at: where}))
    return found


def _never(probe: Probe, names: Names) -> list[Change]:
    leaves, numbers = probe.cases[0], [place(probe, name) for name in names]
    generator = torch_generator(probe.seed, "never")
    where = {n: torch.ones_like(leaves[n], dtype=torch.bool) for n in numbers if isinstance(leaves[n], Tensor)}
    if not where:
        raise expected("inputs that are tensors", given=", ".join(names))

    def everything(index: int, y: Tensor) -> Tensor:
        return torch.ones_like(y, dtype=torch.bool)

    return [
        Change(kind, leaves, replaced(leaves, {n: changed(leaves[n], where[n], kind, generator) for n in where}),
               everything, where)
        for kind in KINDS
    ]  # fmt: skip
