"""The same test at other sizes: images a few pixels smaller and larger, sets and graphs with fewer and more entries."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from assay.audits.symmetry.groups.base import Group, Product
from assay.audits.symmetry.groups.discrete import S
from assay.audits.symmetry.measure.robustness import Draw, Retest, tested
from assay.audits.symmetry.representations.actions import NodeIndex, Permuted
from assay.audits.symmetry.representations.base import Invariant, Representation
from assay.audits.symmetry.representations.images import Image
from assay.audits.symmetry.spec import atoms
from assay.audits.symmetry.subject import Subject
from assay.probe.subject import Leaves
from assay.probe.values import exact, exact_spread, is_continuous
from assay.seeding import torch_generator

IMAGES, SETS = "size", "set of"
"""How the conditions of the two sweeps begin."""


def size_sweep(subject: Subject, draw: Draw, budget: float | None) -> list[tuple[int, Retest]]:
    """The test at other sizes of the images, else of the sets; [] if every size is declared or nothing has one."""
    return _images(subject, draw, budget) or _sets(subject, draw, budget)


def _images(subject: Subject, draw: Draw, budget: float | None) -> list[tuple[int, Retest]]:
    """Images a few pixels smaller and larger, with noise for content."""
    place = next((i for i, rep in enumerate(subject.inputs) if any(isinstance(a, Image) for a in atoms(rep))), None)
    if place is None or not isinstance(subject.cases[0][place], Tensor) or subject.inexact(draw(subject.group(0))):
        return []  # noise between the pixels tells nothing
    leaf: Tensor = subject.cases[0][place]
    axes = next(a for a in atoms(subject.inputs[place]) if isinstance(a, Image)).where
    generator = torch_generator(subject.seed, "sizes")
    results = []
    for change in (-2, -1, 0, 1, 2):
        shape = list(leaf.shape)
        for axis in axes:
            shape[axis] += change
        if min(shape) < 1:
            continue
        noise = torch.randn(shape, generator=generator, dtype=torch.float64) * exact_spread(leaf) + float(
            leaf.double().mean()
        )
        leaves: Leaves = [noise.to(leaf.dtype) if i == place else x for i, x in enumerate(subject.cases[0])]
        other = dataclasses.replace(subject, cases=[leaves], _base={})
        results.append((shape[axes[0]], tested(other, f"{IMAGES} {shape[axes[0]]}", draw, budget)))
    return results


def _sets(subject: Subject, draw: Draw, budget: float | None) -> list[tuple[int, Retest]]:
    """Fewer entries (and the edges between them), one more, twice as many: what depends on the number shows."""
    part = _open_part(subject.symmetry.group)
    if part is None:
        return []
    leaves = subject.cases[0]
    known = [rep.sizes(tuple(x.shape)) for rep, x in zip(subject.inputs, leaves, strict=True) if isinstance(x, Tensor)]
    size = next((found[part][0] for found in known if part in found), 0)
    if size < 2 or _mentions(leaves, subject.inputs, size):
        return []
    results = []
    for count in sorted({2, size // 2, size - 1, size + 1, 2 * size} - {0, 1, size}):
        generator = torch_generator(subject.seed, "sizes", count)
        changed = resized(leaves, subject.inputs, part=part, size=size, count=count, generator=generator)
        if changed is not None:
            other = dataclasses.replace(subject, cases=[changed], _base={})
            results.append((count, tested(other, f"{SETS} {count}", draw, budget)))
    return results


def resized(
    leaves: Leaves, reps: list[Representation], *, part: str, size: int, count: int, generator: torch.Generator
) -> Leaves | None:
    """The inputs with ``count`` entries instead of ``size``; entries that are added are noisy copies without edges.

    In a matrix of pairs (an adjacency, distances) they get the values of other pairs. None if no edge would be left.
    """
    chosen = torch.arange(count) % size
    kept: dict[int, Tensor] = {}
    for place, (leaf, rep) in enumerate(zip(leaves, reps, strict=True)):
        if isinstance(leaf, Tensor) and any(isinstance(a, NodeIndex) and a.part == part for a in atoms(rep)):
            kept[place] = (leaf < count).reshape(-1, leaf.shape[-1]).all(dim=0)
            if not bool(kept[place].any()):
                return None
    changed: Leaves = []
    for place, (leaf, rep) in enumerate(zip(leaves, reps, strict=True)):
        if not isinstance(leaf, Tensor):
            changed.append(leaf)
            continue
        edges = next((one for one in kept.values()), None)
        leaf = leaf[..., kept[place]] if place in kept else leaf
        moved = [atom for atom in atoms(rep) if isinstance(atom, Permuted) and place not in kept]
        pairs = [axis for atom in moved if atom.part == part for axis in atom.where]
        if len(pairs) == 2:
            changed.append(_of_pairs(leaf, pairs, size, count=count, generator=generator))
            continue
        for of, axis in [(atom.part, axis) for atom in moved for axis in atom.where]:
            if of == part:
                leaf = _noisy(leaf.index_select(axis, chosen), axis, size, generator)
            elif edges is not None and leaf.shape[axis] == len(edges):
                leaf = leaf.index_select(axis, edges.nonzero().flatten())
        changed.append(leaf)
    return changed


def _noisy(leaf: Tensor, axis: int, size: int, generator: torch.Generator) -> Tensor:
    """The entries behind ``size`` along an axis moved at random: two equal points have no direction between them."""
    if leaf.shape[axis] <= size or not is_continuous(leaf):
        return leaf
    noise = torch.randn(leaf.shape, generator=generator, dtype=exact(leaf).dtype) * exact_spread(leaf)
    index = torch.arange(leaf.shape[axis]).reshape([-1 if a == axis % leaf.ndim else 1 for a in range(leaf.ndim)])
    return torch.where(index < size, leaf, (exact(leaf) + noise).to(leaf.dtype))


def _of_pairs(leaf: Tensor, axes: list[int], size: int, *, count: int, generator: torch.Generator) -> Tensor:
    """A matrix with one entry per pair: what is added is drawn from the pairs there are, and mirrored as they are.

    Noise would turn a symmetric matrix, or one of zeros and ones, into something its model was not made for.
    """
    steps = torch.randint(1, size, (count, count), generator=generator)
    row = torch.randint(size, (count, count), generator=generator).triu(1)
    column = ((row + steps) % size).triu(1)
    row, column = row + column.T, column + row.T
    diagonal = torch.arange(count)
    row[diagonal, diagonal] = column[diagonal, diagonal] = diagonal % size
    kept = torch.arange(min(size, count))
    row[: len(kept), : len(kept)], column[: len(kept), : len(kept)] = kept.unsqueeze(1), kept
    return leaf.movedim(axes, (0, 1))[row, column].movedim((0, 1), axes)


def _open_part(group: Group) -> str | None:
    """The permutations whose number of entries was left to the data; those of edges follow their nodes."""
    factors = group.factors if isinstance(group, Product) else (group,)
    return next((one.name for one in factors if isinstance(one, S) and one.size is None and one.name != "edges"), None)


def _mentions(leaves: Leaves, reps: list[Representation], size: int) -> bool:
    """Whether an input that stays as it is counts the entries (``natoms``, ``ptr``): it would be wrong afterwards."""
    return any(
        isinstance(rep, Invariant)
        and (leaf == size if not isinstance(leaf, Tensor) else not is_continuous(leaf) and bool((leaf == size).any()))
        for leaf, rep in zip(leaves, reps, strict=True)
    )
