"""A random sample of cells computed again, and how their records compare with the stored ones."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.engine import LocalExecutor, Store, execute
from assay.protocols import CellEvent, Executor, Watcher
from assay.stats.observed import is_clock
from assay.studies.audit_run.evidence import Piece, TracedFinding

ELSEWHERE = 1e-6
"""Relative difference allowed when a cell is computed again on another machine or with other versions."""


@dataclass(frozen=True)
class Recomputed:
    """One cell computed again: the largest relative difference of its numbers and where it lies."""

    piece: Piece
    number: int | None
    difference: float
    where: str
    stored: str
    again: str
    elsewhere: bool
    """Whether it was stored by another machine or other versions than compute here."""
    failure: str = ""

    @property
    def same(self) -> bool:
        return not self.failure and self.difference <= (ELSEWHERE if self.elsewhere else 0.0)


def sample(traced: Sequence[TracedFinding], *, share: float, seed: int) -> list[tuple[TracedFinding, Piece]]:
    """So large a share of all cells that can be computed again, drawn at random; at least one of every finding."""
    draw = random.Random(seed)
    pools = [[(each, piece) for piece in each.pieces if piece.stored is not None] for each in traced]
    pools = [pool for pool in pools if pool]
    if share <= 0 or not pools:
        return []
    chosen = [draw.choice(pool) for pool in pools]
    rest = [pair for pool in pools for pair in pool if pair not in chosen]
    wanted = math.ceil(share * sum(map(len, pools)))
    return chosen + draw.sample(rest, max(0, min(wanted - len(chosen), len(rest))))


def recompute(
    chosen: Sequence[tuple[TracedFinding, Piece]], *, executor: Executor | None = None, workers: int | None = None,
    watcher: Watcher | None = None,
) -> list[Recomputed]:
    """Every chosen cell computed on this machine into a store of its own, each alone, and compared."""
    if not chosen:
        return []
    if watcher is not None:
        watcher.planned({"again": "cells computed again"}, {"again": [piece.cell for _, piece in chosen]})
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        stream = execute(
            [piece.cell for _, piece in chosen], store=Store(folder), executor=executor or LocalExecutor(workers),
            notify=watcher.event if watcher else _ignore, grouping=False,
        )
        for result in stream:
            found[result.cell.key] = result
    return [_compare(each, piece, found[piece.cell.key]) for each, piece in chosen]


def _compare(traced: TracedFinding, piece: Piece, result: Any) -> Recomputed:
    assert piece.stored is not None
    number = traced.finding.number
    known = ("python", "torch", "numpy", "scipy", "machine")
    there, here = piece.stored.environment, result.environment
    elsewhere = any(there.get(name) != here.get(name) for name in known)
    if result.record is None:
        why = f"{result.failure.kind}: {result.failure.message}"
        return Recomputed(piece, number, math.inf, "", "a record", "no result", elsewhere, failure=why)
    worst = (0.0, "", "", "")
    for where, stored, again in _values(piece.stored.record, result.record, ""):
        worst = max(worst, (_difference(stored, again), where, repr(stored)[:40], repr(again)[:40]))
    return Recomputed(piece, number, *worst, elsewhere)


def _values(stored: Any, again: Any, where: str) -> Iterator[tuple[str, Any, Any]]:
    """Pairs of single values at the same place; clocks are left out."""
    if isinstance(stored, Mapping) and isinstance(again, Mapping):
        for name in sorted({*stored, *again}):
            if not is_clock(name):
                yield from _values(stored.get(name), again.get(name), f"{where}.{name}".strip("."))
    elif isinstance(stored, list) and isinstance(again, list) and len(stored) == len(again):
        for index, (one, other) in enumerate(zip(stored, again, strict=True)):
            yield from _values(one, other, f"{where}[{index}]")
    else:
        yield where, stored, again


def _difference(stored: Any, again: Any) -> float:
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (stored, again)]
    if not all(numbers):
        return 0.0 if stored == again and type(stored) is type(again) else math.inf
    if stored == again or (math.isnan(stored) and math.isnan(again)):
        return 0.0
    size = max(abs(stored), abs(again))
    return abs(stored - again) / size if math.isfinite(size) else math.inf


def _ignore(event: CellEvent) -> None:
    del event
