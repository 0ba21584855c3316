"""Cells that cost less together: siblings (the seeds of one experiment) computed in one call.

To an executor a group is a cell like any other, with the limits of its members added up; to the store and to everybody
above it there are only the members, each under its own key. A group that fails in any way is given up and its members
run alone, so that each gets its own answer. Which cells are grouped depends on what is missing and on how many run at
once; this is allowed to be arbitrary because a member's record is the same either way (``assay.protocols.Together``).
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.engine.plan import content_key
from assay.protocols import Cell, CellResult

ROUNDS = 4
"""Pieces of work that should remain for every place at least, when groups grow beyond a family's even share."""


def bundle(cells: Sequence[Cell], *, places: int) -> list[tuple[Cell, ...]]:
    """The cells in pieces of work: siblings side by side, all others alone.

    No place is left idle for the sake of a group: every family is cut into as many even pieces as there are places, or
    into fewer, larger ones only while the whole plan holds ``ROUNDS`` such pieces for every place.
    """
    families: dict[tuple[str, str], list[Cell]] = {}
    pieces: list[tuple[Cell, ...]] = []
    for cell in cells:
        if cell.together is None:
            pieces.append((cell,))
        else:
            families.setdefault((cell.together.target, cell.together.family), []).append(cell)
    for siblings in families.values():
        most = min(cell.together.most for cell in siblings if cell.together is not None)
        size = min(most, max(math.ceil(len(siblings) / places), len(cells) // (ROUNDS * places)))
        pieces += _evenly(siblings, math.ceil(len(siblings) / max(size, 1)))
    return pieces


def as_group(members: Sequence[Cell]) -> Cell:
    """One cell that computes all members: their limits in time and memory added up, their cores shared."""
    first = members[0]
    assert first.together is not None
    module = first.payload.get("module") or first.together.target.partition(":")[0]
    payloads = [dict(member.payload) for member in members]
    return Cell(
        key=content_key({"members": [member.key for member in members]}),
        target="assay.engine.grouping:run_group",
        payload={"module": module, "target": first.together.target, "payloads": payloads},
        label=f"{first.label} and {len(members) - 1} more",
        group=first.group,
        timeout=sum(member.timeout for member in members),
        cpus=max(member.cpus for member in members),
        gpus=max(member.gpus for member in members),
        memory=None if first.memory is None else sum(member.memory or first.memory for member in members),
    )


def run_group(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The records of all members; called by name inside a worker process."""
    module, _, function = payload["target"].partition(":")
    records = getattr(importlib.import_module(module), function)(payload["payloads"])
    if len(records) != len(payload["payloads"]) or not all(isinstance(record, Mapping) for record in records):
        raise TypeError(f"expected {len(payload['payloads'])} records from {payload['target']}; given {len(records)}")
    return {"records": [dict(record) for record in records]}


def split(result: CellResult, members: Sequence[Cell]) -> list[CellResult]:
    """The results of the members of a group that succeeded, each with an even share of its time."""
    assert result.record is not None
    share, count = result.seconds / len(members), len(members)
    records = result.record["records"]
    return [
        replace(result, cell=cell, record=record, seconds=share, together=count)
        for cell, record in zip(members, records, strict=True)
    ]


def describe_grouping(together: Iterable[int]) -> str:
    """How cells were computed, from the number in the call of each.

    >>> describe_grouping([5, 5, 5, 5, 5, 1])
    '5 of 6 cells computed in 1 group; the others alone'
    >>> describe_grouping([1, 1])
    'all 2 cells computed alone'
    """
    counts = list(together)
    grouped = [count for count in counts if count > 1]
    if not grouped:
        return f"all {len(counts)} cells computed alone"
    groups = max(1, round(sum(1 / count for count in grouped)))
    rest = "; the others alone" if len(grouped) < len(counts) else ""
    return f"{len(grouped)} of {len(counts)} cells computed in {groups} {'group' if groups == 1 else 'groups'}{rest}"


def _evenly(cells: Sequence[Cell], pieces: int) -> list[tuple[Cell, ...]]:
    ends = [round(index * len(cells) / pieces) for index in range(pieces + 1)]
    return [tuple(cells[low:high]) for low, high in itertools.pairwise(ends) if high > low]
