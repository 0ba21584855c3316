"""Faults of memory: finished work on disk that is no longer what was measured."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from assay.engine.plan import content_key
from assay.engine.store.cells import Store, StoredCell
from assay.tracks.honesty.faults.planted import Planted, PlantedJudgement

if TYPE_CHECKING:
    from numpy.random import Generator

REDONE = "REDONE"
"""Not a verdict: the store refused the cell, set it aside and had it done again."""


def tampered_cell(generator: Generator, faulty: bool) -> PlantedJudgement:
    """An accuracy improved by hand in a finished cell."""

    def improve(file: Path) -> None:
        data = json.loads(file.read_text())
        data["record"]["accuracy"] = 0.99
        file.write_text(json.dumps(data))

    return _stored(generator, improve if faulty else None)


def truncated_cell(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A file cut short by a full disk."""

    def cut(file: Path) -> None:
        data = file.read_bytes()
        file.write_bytes(data[: int(generator.integers(1, len(data) - 2))])

    return _stored(generator, cut if faulty else None)


def swapped_cell(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A valid cell of another seed under this seed's name."""

    def swap(file: Path) -> None:
        other = _cell(0.99, seed=7)
        store = Store(file.parent.parent)
        store.put(other)
        store.path(other.key).replace(file)

    return _stored(generator, swap if faulty else None)


def _cell(accuracy: float, *, seed: int) -> StoredCell:
    key = content_key({"track": "planted", "seed": seed})
    return StoredCell(key=key, label=f"seed {seed}", group="planted", seconds=1.0, record={"accuracy": accuracy})


def _stored(generator: Generator, damage: Callable[[Path], None] | None) -> PlantedJudgement:
    """What the store answers for a cell that was written and then, perhaps, damaged."""
    cell = _cell(float(generator.uniform(0.5, 0.9)), seed=42)
    with tempfile.TemporaryDirectory() as folder:
        Store(Path(folder)).put(cell)
        file = Store(Path(folder)).path(cell.key)
        if damage is not None:
            damage(file)
        habit_accepts = file.exists()  # the habit: the file is there, so the cell is done
        store = Store(Path(folder))
        served = store.get(cell.key)
        if served is not None:
            verdict = "PASS" if served == cell else "FAIL"
            return PlantedJudgement(verdict, f"served an accuracy of {served.record['accuracy']:.3f}", habit_accepts)
        store.put(cell)
        verdict = REDONE if store.damaged and store.get(cell.key) == cell else "FAIL"
        return PlantedJudgement(verdict, "; ".join(store.damaged), habit_accepts)


STORAGE = (
    Planted("tampered cell", "the cell is done", REDONE, "does not match its digest", tampered_cell),
    Planted("truncated cell", "the cell is done", REDONE, "set aside", truncated_cell),
    Planted("swapped cell", "the cell is done", REDONE, "holds the cell of key", swapped_cell),
)
