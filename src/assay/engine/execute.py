"""Cells in, results out: the store answers what is done, an executor runs the rest, each result is written at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from assay.engine.estimate import CostModel
from assay.engine.store import Store, StoredCell
from assay.protocols import Cell, CellEvent, CellResult, Executor


def execute(
    cells: Sequence[Cell],
    *,
    store: Store,
    executor: Executor,
    notify: Callable[[CellEvent], None] = lambda event: None,
) -> Iterator[CellResult]:
    """Every cell's result exactly once, the stored ones first, then each as it is ready and already on disk.

    Failures are results too, but are not stored: the next run tries them again. Leaving the loop early (an interrupt, a
    first failure) stops the workers and loses nothing that was yielded.
    """
    waiting: dict[str, Cell] = {}
    seen: set[str] = set()
    costs = CostModel()
    for cell in cells:
        notify(CellEvent("planned", cell))
    for cell in cells:
        if cell.key in seen:
            continue
        seen.add(cell.key)
        stored = store.get(cell.key)
        if stored is None:
            waiting[cell.key] = cell
            continue
        costs.learn(stored.group, stored.seconds)
        notify(CellEvent("cached", cell, stored.seconds))
        yield CellResult(cell, stored.record, None, stored.seconds, cached=True)
    if not waiting:
        return
    # Longest first keeps the last worker from starting a long cell alone; ties keep the order asked for.
    order = sorted(waiting.values(), key=lambda cell: -costs.seconds(cell.group))
    stream = executor.run(order, notify=notify)
    try:
        for result in stream:
            if result.record is not None:
                cell = result.cell
                store.put(StoredCell(cell.key, cell.label, cell.group, result.seconds, result.record))
            yield result
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()
