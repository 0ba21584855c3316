"""Cells in, results out: the store answers what is done, an executor runs the rest, each result is written at once."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

from assay.engine.claims import Claims
from assay.engine.estimate import CostModel
from assay.engine.store import Store, StoredCell
from assay.errors import AssayError
from assay.protocols import Cell, CellEvent, CellResult, Executor

LOOKAHEAD = 20_000
"""Cells held and ordered at once; longer plans are drawn as there is room, so a million cells do not sit in memory."""
ASKED_TOGETHER = 256
OTHERS_SECONDS = 0.25
"""How often a driver that has nothing left to run looks for the results of the others."""
COSTS_SECONDS = 30.0


def execute(
    cells: Iterable[Cell],
    *,
    store: Store,
    executor: Executor,
    notify: Callable[[CellEvent], None] = lambda event: None,
) -> Generator[CellResult, None, None]:
    """Every cell's result exactly once: the stored ones first, then each as it is ready and already on disk.

    Failures are results too, but are not stored: the next run tries them again. Leaving the loop early (an interrupt, a
    first failure) stops the workers and loses nothing that was yielded. Several drivers may run the same plan on one
    store at once: each cell is claimed by one of them, and its result answers the others.
    """
    costs = store.costs()
    with store.claims() as claims:
        plan = _Plan(cells, store, claims, costs, notify)
        try:
            yield from plan.fill()
            while plan.unfinished:
                yield from _run_waiting(plan, store, claims, costs, executor, notify)
                yield from plan.look_elsewhere()
        finally:
            with contextlib.suppress(AssayError, OSError):  # estimates are not worth an error
                store.keep_costs(costs)
            store.close()


def _run_waiting(
    plan: _Plan, store: Store, claims: Claims, costs: CostModel, executor: Executor, notify: Callable[[CellEvent], None]
) -> Iterator[CellResult]:
    """Run what this driver can claim, writing each batch before it is reported."""
    stream = executor.run(plan.claimed(), notify=notify)
    kept = time.monotonic()
    try:
        for batch in stream:
            done = [_stored(each.cell, each.seconds, each.record) for each in batch if each.record is not None]
            store.put_all(done)
            for stored in done:
                costs.learn(stored.group, stored.seconds)
            claims.release_all([result.cell.key for result in batch])
            yield from batch
            yield from plan.fill()
            if time.monotonic() - kept > COSTS_SECONDS:
                kept = time.monotonic()
                with contextlib.suppress(AssayError, OSError):
                    store.keep_costs(costs)
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()
    yield from plan.fill()


def _stored(cell: Cell, seconds: float, record: Mapping[str, Any]) -> StoredCell:
    return StoredCell(cell.key, cell.label, cell.group, seconds, record)


class _Plan:
    """The cells asked for: still to be looked at, waiting here, or claimed by another driver."""

    def __init__(
        self, cells: Iterable[Cell], store: Store, claims: Claims, costs: CostModel, notify: Callable[[CellEvent], None]
    ) -> None:
        self._ahead = iter(cells)
        self._store = store
        self._claims = claims
        self._costs = costs
        self._notify = notify
        self._seen: set[str] = set()
        self._waiting: list[tuple[float, int, Cell]] = []
        self._order = itertools.count()
        self._elsewhere: dict[str, Cell] = {}
        self._answered: deque[CellResult] = deque()
        self._drawn = False

    @property
    def unfinished(self) -> bool:
        return bool(self._waiting or self._elsewhere or self._answered or not self._drawn)

    def fill(self) -> Iterator[CellResult]:
        """Draw cells up to the lookahead; the results of those already in the store."""
        while len(self._waiting) < LOOKAHEAD and not self._drawn:
            drawn = list(itertools.islice(self._ahead, ASKED_TOGETHER))
            self._drawn = len(drawn) < ASKED_TOGETHER
            fresh = []
            for cell in drawn:
                self._notify(CellEvent("planned", cell))
                if cell.key not in self._seen:
                    self._seen.add(cell.key)
                    fresh.append(cell)
            for cell, stored in zip(fresh, self._store.get_all(cell.key for cell in fresh), strict=True):
                if stored is None:
                    self._wait(cell)
                else:
                    self._costs.learn(stored.group, stored.seconds)
                    yield self._answer(cell, stored)
        while self._answered:
            yield self._answered.popleft()

    def claimed(self) -> Iterator[Cell]:
        """Cells for the executor, the longest first, each claimed just before it is given out."""
        while self._waiting:
            some = [heapq.heappop(self._waiting)[2] for _ in range(min(self._claims.together, len(self._waiting)))]
            taken = self._claims.take_all([cell.key for cell in some])
            self._elsewhere.update({cell.key: cell for cell, mine in zip(some, taken, strict=True) if not mine})
            some = [cell for cell, mine in zip(some, taken, strict=True) if mine]
            # Another driver may have finished one since it was looked up: it stores before it gives its claim back.
            for cell, stored in zip(some, self._store.get_all(cell.key for cell in some), strict=True):
                if stored is None:
                    yield cell
                    continue
                self._claims.release(cell.key)
                self._answered.append(self._answer(cell, stored))

    def look_elsewhere(self) -> Iterator[CellResult]:
        """The results of other drivers so far; cells whose driver died or failed at them wait here again."""
        keys = list(self._elsewhere)
        for key, stored in zip(keys, self._store.get_all(keys), strict=True):
            if stored is not None:
                yield self._answer(self._elsewhere.pop(key), stored)
            elif self._claims.take(key):
                self._wait(self._elsewhere.pop(key))
        if self._elsewhere and not self._waiting:
            time.sleep(OTHERS_SECONDS)

    def _wait(self, cell: Cell) -> None:
        # Longest first keeps the last worker from starting a long cell alone; ties keep the order asked for.
        heapq.heappush(self._waiting, (-self._costs.seconds(cell.group), next(self._order), cell))

    def _answer(self, cell: Cell, stored: StoredCell) -> CellResult:
        self._notify(CellEvent("cached", cell, stored.seconds))
        return CellResult(cell, stored.record, None, stored.seconds, cached=True)
