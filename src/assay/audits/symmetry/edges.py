"""Edges have no order: where they are declared, exchanging them is part of the claim.

A model that reads the first edges only, or sums them by an index that the order changes, is broken although it follows
every relabelling of its nodes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from assay.audits.symmetry.groups.discrete import S
from assay.audits.symmetry.representations.actions import NodeIndex, Permuted
from assay.audits.symmetry.representations.base import Invariant, Representation
from assay.audits.symmetry.spec import Symmetry, atoms
from assay.probe.subject import Leaves

EDGES = "edges"


def with_edge_order(symmetry: Symmetry, reps: list[Representation], cases: list[Leaves]) -> Symmetry | None:
    """The claim with permutations of the edges; None if no input is an edge list or their order is declared already.

    An edge list is a ``node_index()`` of shape [2, edges] (or [edges, 2]) that no other representation moves.
    """
    if EDGES in symmetry.group.parts or edge_axis(reps, cases[0]) is None:
        return None
    if any(_ambiguous(reps, case) for case in cases):
        return None
    return dataclasses.replace(symmetry, group=symmetry.group * S(name=EDGES))


def edge_axis(reps: list[Representation], leaves: Leaves) -> tuple[int, int] | None:
    """The place of the edge list among the inputs and its axis of edges."""
    for place, (rep, leaf) in enumerate(zip(reps, leaves, strict=True)):
        if isinstance(rep, NodeIndex) and isinstance(leaf, Tensor) and leaf.ndim == 2 and 2 in leaf.shape:
            return place, -1 if leaf.shape[0] == 2 else 0
    return None


def along_edges(reps: list[Representation], leaves: Leaves) -> list[Representation]:
    """The representations of the inputs with the edge list, and what has one entry per edge, permuted along edges."""
    found = edge_axis(reps, leaves)
    assert found is not None
    place, axis = found
    count = leaves[place].shape[axis]
    moved = [per_edge(rep, leaf, count) for rep, leaf in zip(reps, leaves, strict=True)]
    moved[place] = reps[place] @ Permuted((axis,), EDGES)
    return moved


def per_edge(rep: Representation, leaf: Any, count: int) -> Representation:
    """The representation with edges permuted along axis 0, if the tensor has one entry per edge there."""
    if not isinstance(leaf, Tensor) or not leaf.ndim or len(leaf) != count or 0 in rep.axes(leaf.ndim):
        return rep
    order = Permuted((0,), EDGES)
    return order if isinstance(rep, Invariant) else rep @ order


def _ambiguous(reps: list[Representation], leaves: Leaves) -> bool:
    """As many edges as nodes, or as a size of something else that is not moved: what belongs to edges is not known."""
    found = edge_axis(reps, leaves)
    if found is None:
        return True
    count = leaves[found[0]].shape[found[1]]
    sizes: Mapping[str, tuple[int, ...]] = {}
    for rep, leaf in zip(reps, leaves, strict=True):
        if isinstance(leaf, Tensor) and any(isinstance(atom, Permuted) for atom in atoms(rep)):
            sizes = {**sizes, **rep.sizes(tuple(leaf.shape))}
    return count < 2 or any(count in size for size in sizes.values())
