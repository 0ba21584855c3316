"""Cells in, results out: the store answers what is done, an executor runs the rest, each result is written at once."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

from assay.engine.estimate import CostModel
from assay.engine.grouping import as_group, bundle, split
from assay.engine.store.cells import Store, StoredCell
from assay.engine.store.claims import Claims
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
    grouping: bool = True,
) -> Generator[CellResult, None, None]:
    """Every cell's result exactly once: the stored ones first, then each as it is ready and already on disk.

    Failures are results too, but are not stored: the next run tries them again. Leaving the loop early (an interrupt, a
    first failure) stops the workers and loses nothing that was yielded. Several drivers may run the same plan on one
    store at once: each cell is claimed by one of them, and its result answers the others. With ``grouping``, cells
    that may be computed together are; nobody but ``CellResult.together`` and the clock can tell.
    """
    costs = store.costs()
    with store.claims() as claims:
        plan = _Plan(cells, store, claims, costs=costs, notify=notify, places=executor.places, grouping=grouping)
        try:
            yield from plan.fill()
            while plan.unfinished:
                yield from _run_waiting(plan, store, claims, costs=costs, executor=executor)
                yield from plan.look_elsewhere()
        finally:
            with contextlib.suppress(AssayError, OSError):  # estimates are not worth an error
                store.keep_costs(costs)
            store.close()


def _run_waiting(
    plan: _Plan, store: Store, claims: Claims, *, costs: CostModel, executor: Executor
) -> Iterator[CellResult]:
    """Run what this driver can claim, writing each batch before it is reported."""
    stream = executor.run(plan.claimed(), notify=plan.tell)
    kept = time.monotonic()
    try:
        for results in stream:
            batch = [member for result in results for member in plan.members_of(result)]
            done = [stored for result in batch if (stored := _stored(result)) is not None]
            store.put_all(done)
            for stored in done:
                costs.learn(stored.group, stored.seconds)
            # After it is stored: a driver that takes a claim given back before would compute the cell again.
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


def _stored(result: CellResult) -> StoredCell | None:
    if result.record is None:
        return None
    cell = result.cell
    return StoredCell(
        cell.key, cell.label, cell.group, result.seconds, result.record, result.together, result.environment,
        at=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


class _Plan:
    """The cells asked for: still to be looked at, waiting here (in pieces of work), or claimed by another driver."""

    def __init__(
        self, cells: Iterable[Cell], store: Store, claims: Claims, *, costs: CostModel,
        notify: Callable[[CellEvent], None], places: Callable[[], int], grouping: bool,
    ) -> None:
        self._ahead = iter(cells)
        self._store = store
        self._claims = claims
        self._costs = costs
        self._notify = notify
        self._places = cache(places)
        self._grouping = grouping
        self._seen: set[bytes] = set()
        """Keys drawn so far, as bytes: a million of them are all that is kept of a plan of a million cells."""
        self._held = 0
        """Cells waiting here, loose or in pieces of work."""
        self._loose: list[Cell] = []
        self._waiting: list[tuple[float, int, tuple[Cell, ...]]] = []
        self._order = itertools.count()
        self._groups: dict[str, tuple[Cell, ...]] = {}
        self._given_up: set[str] = set()
        self._elsewhere: dict[str, Cell] = {}
        self._answered: deque[CellResult] = deque()
        self._drawn = False

    @property
    def unfinished(self) -> bool:
        return bool(self._loose or self._waiting or self._elsewhere or self._answered or not self._drawn)

    def fill(self) -> Iterator[CellResult]:
        """Draw cells up to the lookahead; the results of those already in the store."""
        while self._held < LOOKAHEAD and not self._drawn:
            drawn = list(itertools.islice(self._ahead, ASKED_TOGETHER))
            self._drawn = len(drawn) < ASKED_TOGETHER
            fresh = []
            for cell in drawn:
                self._notify(CellEvent("planned", cell))
                if (key := bytes.fromhex(cell.key)) not in self._seen:
                    self._seen.add(key)
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
        """Cells and groups of cells for the executor, the longest first, each claimed just before it is given out."""
        while self._loose or self._waiting:
            self._bundle()
            # No more at once than can be run at once: what one driver claims, another cannot run.
            count = min(self._claims.together, self._places(), len(self._waiting))
            pieces = [heapq.heappop(self._waiting)[2] for _ in range(count)]
            some = [cell for piece in pieces for cell in piece]
            self._held -= len(some)
            taken = self._claims.take_all([cell.key for cell in some])
            self._elsewhere.update({cell.key: cell for cell, mine in zip(some, taken, strict=True) if not mine})
            mine = [cell.key for cell, mine in zip(some, taken, strict=True) if mine]
            found = dict(zip(mine, self._store.get_all(mine), strict=True))
            for piece in pieces:
                yield from self._to_run([cell for cell in piece if cell.key in found], found)

    def members_of(self, result: CellResult) -> list[CellResult]:
        """The results of single cells; none for a group that failed, whose members wait again, each for itself."""
        if (members := self._groups.pop(result.cell.key, None)) is None:
            return [result]
        if result.record is not None:
            return split(result, members)
        for cell in members:
            self._given_up.add(cell.key)
            self._wait(replace(cell, together=None))
        return []

    def tell(self, event: CellEvent) -> None:
        """Pass an event of the executor on, that of a group as those of its members."""
        members = self._groups.get(event.cell.key)
        if members is None:
            if event.kind != "started" or event.cell.key not in self._given_up:
                self._notify(event)
        elif event.kind != "failed":  # its members have started already, and go on alone
            count = len(members)
            for cell in members:
                self._notify(CellEvent(event.kind, cell, event.seconds / count, count))

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
        self._held += 1
        self._loose.append(cell)

    def _bundle(self) -> None:
        """Put the cells that came to wait into pieces of work."""
        if not self._loose:
            return
        pieces: Sequence[tuple[Cell, ...]] = [(cell,) for cell in self._loose]
        if self._grouping and any(cell.together is not None for cell in self._loose):
            pieces = bundle(self._loose, places=self._places())
        self._loose = []
        for piece in pieces:
            # Longest first keeps the last worker from starting a long cell alone; ties keep the order asked for.
            seconds = sum(self._costs.seconds(cell.group) for cell in piece)
            heapq.heappush(self._waiting, (-seconds, next(self._order), piece))

    def _to_run(self, piece: Sequence[Cell], found: dict[str, StoredCell | None]) -> Iterator[Cell]:
        """What is left of a piece of work as one cell, if anything is."""
        missing = []
        for cell in piece:
            if (stored := found[cell.key]) is None:
                missing.append(cell)
                continue
            # Another driver finished it since it was looked up: it stores before it gives its claim back.
            self._claims.release(cell.key)
            self._answered.append(self._answer(cell, stored))
        if len(missing) == 1:
            yield missing[0]
        elif missing:
            group = as_group(missing)
            self._groups[group.key] = tuple(missing)
            yield group

    def _answer(self, cell: Cell, stored: StoredCell) -> CellResult:
        self._notify(CellEvent("cached", cell, stored.seconds))
        return CellResult(
            cell, stored.record, None, stored.seconds, cached=True, together=stored.together,
            environment=stored.environment,
        )
