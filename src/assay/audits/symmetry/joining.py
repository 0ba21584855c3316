"""Several graphs in one call: nodes behind each other and edges among their own nodes, as block-diagonal batches are.

A model of single graphs is asked once for many transformed copies of a graph. That it takes them so is never assumed:
it must say of graphs in one call what it says of each alone, for as many nodes as a call will ever hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from assay.audits.symmetry.edges import EDGES
from assay.audits.symmetry.representations.actions import NodeIndex, Permuted
from assay.audits.symmetry.representations.base import Invariant, Representation
from assay.audits.symmetry.spec import atoms
from assay.probe.subject import Leaves

Kind = Literal["shared", "behind", "numbered", "which graph"]


@dataclass(frozen=True)
class Joining:
    """How each input of several graphs becomes one: how its tensors are put together, and along which axis."""

    kinds: tuple[Kind, ...]
    axes: tuple[int, ...]
    counted: int
    """The input whose axis 0 counts the nodes."""
    most: int = 1
    """Nodes of one call at most: as many as it was tried with."""

    def nodes(self, leaves: Leaves) -> int:
        """Nodes of one graph."""
        return len(leaves[self.counted])

    def joined(self, graphs: list[Leaves]) -> Leaves:
        """One call's inputs for several graphs."""
        starts = torch.tensor([0, *[self.nodes(one) for one in graphs]]).cumsum(0).tolist()
        found: Leaves = []
        for place, (kind, axis) in enumerate(zip(self.kinds, self.axes, strict=True)):
            parts = [one[place] for one in graphs]
            if kind == "shared":
                found.append(parts[0])
                continue
            if kind == "numbered":  # -1 is padding
                parts = [torch.where(x < 0, x, x + start) for x, start in zip(parts, starts[:-1], strict=True)]
            if kind == "which graph":
                parts = [x + number for number, x in enumerate(parts)]
            found.append(torch.cat(parts, dim=axis))
        return found


def joining(leaves: Leaves, reps: list[Representation]) -> Joining | None:
    """How graphs like this one are joined; None if nothing has nodes along axis 0 or something has them elsewhere."""
    part, counted = _nodes(leaves, reps)
    if part is None:
        return None
    kinds: list[Kind] = []
    axes: list[int] = []
    for leaf, rep in zip(leaves, reps, strict=True):
        found = _kind(leaf, rep, part)
        if found is None:
            return None
        kinds.append(found[0])
        axes.append(found[1])
    return Joining(tuple(kinds), tuple(axes), counted)


def apart(output: Tensor, alone: list[Tensor]) -> list[Tensor] | None:
    """What was said of each of several graphs, shaped as it is when it is asked alone; None if it has no such parts."""
    if not output.ndim or any(one.shape[1:] != output.shape[1:] for one in alone if one.ndim):
        return None
    counts = [len(one) if one.ndim else 1 for one in alone]
    if len(output) != sum(counts):
        return None
    return [part.reshape(one.shape) for part, one in zip(torch.split(output, counts), alone, strict=True)]


def _nodes(leaves: Leaves, reps: list[Representation]) -> tuple[str | None, int]:
    for place, (leaf, rep) in enumerate(zip(leaves, reps, strict=True)):
        for atom in atoms(rep):
            if isinstance(leaf, Tensor) and isinstance(atom, Permuted) and atom.part != EDGES and atom.where == (0,):
                return atom.part, place
    return None, 0


def _kind(leaf: object, rep: Representation, part: str) -> tuple[Kind, int] | None:
    if not isinstance(leaf, Tensor) or not leaf.ndim:
        return "shared", 0
    if any(isinstance(atom, NodeIndex) for atom in atoms(rep)):
        return "numbered", 0 if leaf.ndim == 1 or leaf.shape[0] != 2 else leaf.ndim - 1
    moved = [(atom.part, atom.where) for atom in atoms(rep) if isinstance(atom, Permuted)]
    if any(where != (0,) for _, where in moved):
        return None
    if (part, (0,)) in moved and not leaf.is_floating_point() and leaf.ndim == 1 and not bool(leaf.any()):
        return "which graph", 0  # all nodes of a single graph belong to graph 0
    own = bool(moved) or not isinstance(rep, Invariant) or len(leaf) == 1
    return ("behind" if own else "shared"), 0
