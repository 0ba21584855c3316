"""A batch of several molecules taken apart: atoms of different molecules do not change places.

What belongs to an atom, to an edge and to a molecule is read from well-known names first and from sizes second. That
nothing was cut wrongly is never assumed: a model must say of the batch what it says of its molecules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from assay.audits.symmetry.joining import apart
from assay.errors import expected
from assay.probe import tree
from assay.probe.containment import attempt
from assay.probe.values import difference, largest
from assay.results import Check, Verdict

Owner = Literal["atom", "edge", "molecule", "batch"]

POSITIONS = ("positions", "pos", "coords", "coordinates", "_positions", "R")
CELLS = ("cell", "_cell", "lattice", "rcell")
EDGES = ("edge_index", "_idx_i", "_idx_j", "idx_i", "idx_j")
PER_NODE = (
    "z", "x", "batch", "_idx_m", "numbers", "atomic_numbers", "_atomic_numbers", "atom_types", "node_attrs", "charges",
    "weight_atoms", "node_attr",
)  # fmt: skip
MEMBERSHIP = ("batch", "_idx_m", "idx_m")
"""Which molecule of a batch an atom belongs to."""
STARTS = ("ptr",)
"""At which atom each molecule starts, and where the last one ends."""
PER_EDGE = (
    "shifts", "unit_shifts", "edge_cell_shift", "edge_attr", "edge_weight", "edge_vec", "edge_vectors", "_offsets",
    "_Rij",
)  # fmt: skip


def molecules(batch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The molecules of a dict of tensors, each as a batch of one; one alone is returned as it is.

    >>> pair = {"pos": torch.zeros(3, 3), "batch": torch.tensor([0, 0, 1]), "energy": torch.tensor([1.0, 2.0])}
    >>> [(len(one["pos"]), one["energy"].item()) for one in molecules(pair)]
    [(2, 1.0), (1, 2.0)]
    """
    which = next((batch[name] for name in MEMBERSHIP if _whole_numbers(batch.get(name))), None)
    if which is None or not len(which) or not int(which.max()):
        return [dict(batch)]
    count, ends = int(which.max()) + 1, _ends(batch)
    of_edge = which[ends[0]] if ends else which[:0]
    if any(len(end) != len(of_edge) or bool((which[end] != of_edge).any()) for end in ends):
        raise expected("edges among atoms of one molecule", given="an edge between two")
    sizes: dict[Owner, int] = {"atom": len(which), "edge": len(of_edge), "molecule": count}
    found = []
    for number in range(count):
        atoms, edges = which == number, of_edge == number
        found.append({name: _cut(name, value, number, sizes=sizes, atoms=atoms, edges=edges)
                      for name, value in batch.items()})
    return found


def atom_order(batch: Mapping[str, Any]) -> Tensor | None:
    """The atoms of a batch molecule after molecule; None if they are so already."""
    which = next((batch[name] for name in MEMBERSHIP if _whole_numbers(batch.get(name))), None)
    order = None if which is None else which.argsort(stable=True)
    return None if order is None or bool((order[1:] > order[:-1]).all()) else order


def agreement(
    together: Callable[[], Any], alone: Callable[[], list[Any]], names: Any, *, order: Tensor | None = None
) -> Check:
    """Whether a model says of a batch what it says of each of its molecules; ``names`` are the outputs tested.

    ``order`` brings what belongs to atoms molecule after molecule.
    """
    title, found = "molecules of a batch", attempt(lambda: (together(), alone()))
    if found.value is None:
        why = f"the batch was taken apart; whole it could not be asked: {found.problem}"
        return Check(name=title, verdict=Verdict.INCONCLUSIVE, reason=why, label="UNTESTED")
    whole, parts = found.value
    gaps = {}
    for name, output in tree.leaves(whole):
        if isinstance(output, Tensor) and (not isinstance(names, Mapping) or name in names):
            singles = [dict(tree.leaves(one))[name] for one in parts]
            if order is not None and output.ndim and len(output) == len(order):
                output = output[order.to(output.device)]
            gap = attempt(lambda output=output, singles=singles: _gap(output, singles)).value  # type: ignore[misc]
            gaps[name or "output"] = math.inf if gap is None else gap
    worst, about = max(gaps.values(), default=0.0), f"{len(parts)} molecules"
    if worst <= 1.0:
        reason = f"a batch of {about} was taken apart: the model says of each what it says of them together"
        return Check(name=title, verdict=Verdict.PASS, reason=reason)
    unlike = ", ".join(name for name, gap in gaps.items() if not gap <= 1.0)
    reason = (
        f"{unlike} of {about} together is not what it is of each alone: either molecules of a batch influence each "
        "other or an entry was cut wrongly; what follows is about molecules alone"
    )
    return Check(name=title, verdict=Verdict.INCONCLUSIVE, reason=reason, label="UNTESTED")


def _gap(output: Tensor, alone: list[Tensor]) -> float | None:
    """How far apart, as a share of half the digits of the output: sums over more atoms round otherwise."""
    parts = apart(output, alone)
    if parts is None and output.numel() == 1:  # one number for the whole batch
        parts, alone = [output.reshape(())], [torch.stack([one.reshape(()) for one in alone]).sum()]
    if parts is None:
        return None
    digits = torch.finfo(output.dtype if output.is_floating_point() else torch.float32).eps
    scale = max(largest(output), *map(largest, alone)) or 1.0
    gap = max(largest(difference(a, b)) for a, b in zip(parts, alone, strict=True))
    return gap / (scale * math.sqrt(digits))


def _cut(name: str, value: Any, number: int, *, sizes: Mapping[Owner, int], atoms: Tensor, edges: Tensor) -> Any:
    if not isinstance(value, Tensor) or not value.ndim:
        return value
    if name in MEMBERSHIP:
        return torch.zeros_like(value[atoms])
    if name in STARTS:
        return torch.tensor([0, int(atoms.sum())]).to(value)
    if name in EDGES:
        renumbered = atoms.long().cumsum(0) - 1
        return renumbered[value.movedim(_along(value), -1)[..., edges]].movedim(-1, _along(value)).to(value.dtype)
    owner = _owner(name, value, sizes)
    if owner == "molecule":
        each = len(value) // sizes["molecule"]
        return value[number * each : (number + 1) * each]
    return value[atoms] if owner == "atom" else value[edges] if owner == "edge" else value


def _owner(name: str, value: Tensor, sizes: Mapping[Owner, int]) -> Owner:
    """By its name if it has a well-known one, else by its size."""
    if name in CELLS and len(value) in (sizes["molecule"], 3 * sizes["molecule"]):
        return "molecule"
    if name in (*POSITIONS, *PER_NODE) and len(value) == sizes["atom"]:
        return "atom"
    if name in PER_EDGE and len(value) == sizes["edge"]:
        return "edge"
    return next((owner for owner, size in sizes.items() if len(value) == size), "batch")


def _ends(batch: Mapping[str, Any]) -> list[Tensor]:
    """The atoms at both ends of every edge."""
    found: list[Tensor] = []
    for name in EDGES:
        value = batch.get(name)
        if isinstance(value, Tensor):
            found += [value] if value.ndim == 1 else list(value.movedim(_along(value), -1))
    return found


def _along(index: Tensor) -> int:
    """The axis that counts edges."""
    return 0 if index.ndim == 1 or index.shape[0] != 2 else index.ndim - 1


def _whole_numbers(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 1 and not value.is_floating_point()
