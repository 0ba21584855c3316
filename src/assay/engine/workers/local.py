"""The embedded executor: worker processes on this machine, isolated, with time and memory limits."""

from __future__ import annotations

import errno
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait

from assay.engine.needs import gpus_here
from assay.engine.workers.process import LOOK_SECONDS, WorkerProcess, result_of
from assay.engine.workers.template import can_fork
from assay.engine.workers.worker import IN_WORKER
from assay.errors import AssayError, expected
from assay.protocols import Cell, CellEvent, CellResult

TOGETHER, TOGETHER_SECONDS = 32, 0.02
"""Results that arrive within this time are written with one wait for the disk."""
RETRIES = 1
"""How often a cell is tried again after its worker was killed from outside."""


@dataclass(frozen=True)
class LocalExecutor:
    """Runs cells in ``workers`` processes (one per core by default); one that raises, hangs or is killed fails alone.

    A cell that asks for several ``cpus`` takes as many places. One whose worker was killed from outside (SIGKILL,
    SIGTERM) is tried once more; one that raised, crashed, hung or passed its memory limit is not: it would do it again.
    """

    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise expected("workers >= 1", given=f"workers={self.workers}")

    def places(self) -> int:
        """How many cells run at once."""
        return self.workers or os.cpu_count() or 1

    def run(self, cells: Iterable[Cell], *, notify: Callable[[CellEvent], None]) -> Iterator[Sequence[CellResult]]:
        """Results as they are ready, those ready together in one batch; leaving early stops the workers at once."""
        if os.environ.get(IN_WORKER):
            raise AssayError(
                "a worker process tried to start workers of its own while loading your script; put the call under "
                "if __name__ == '__main__':"
            )
        crew = _Crew(self.places(), iter(cells), notify)
        try:
            crew.fill()
            while crew.unfinished:
                yield from crew.gather()
        finally:
            for worker in (*crew.busy, *crew.idle):
                worker.stop()


class _Crew:
    """The workers of one run and the cells they take."""

    def __init__(self, places: int, cells: Iterator[Cell], notify: Callable[[CellEvent], None]) -> None:
        self.places = places
        self.busy: list[WorkerProcess] = []
        self.idle: list[WorkerProcess] = []
        self._cells = cells
        self._notify = notify
        self._next: Cell | None = None
        self._again: list[Cell] = []
        self._losses: Counter[str] = Counter()
        self._running: dict[WorkerProcess, Cell] = {}
        self._heavy: dict[str, bool] = {}
        """Whether cells of a group need a worker with torch in it; learnt from the first."""
        self._gpus = gpus_here()
        self._refused: list[CellResult] = []
        """Failures of cells that were not started."""

    @property
    def unfinished(self) -> bool:
        return bool(self.busy or self._refused)

    def gather(self) -> Iterator[list[CellResult]]:
        """The next results: those ready now, and of many short cells the next few, to be written together."""
        batch: list[CellResult] = []
        until = 0.0
        batch += self.collect() if self._refused else []
        while self.busy and len(batch) < TOGETHER:
            left = until - time.monotonic() if batch else LOOK_SECONDS
            ready = wait([worker.fileno() for worker in self.busy], timeout=max(left, 0.0))
            if not batch:
                until = time.monotonic() + TOGETHER_SECONDS
            batch += self.collect()
            self.fill()  # before the batch is written, so that no worker waits for the disk
            if not ready:
                break
        if batch:
            yield batch

    def fill(self) -> None:
        """Give every free place a cell; a cell larger than the machine runs alone."""
        while True:
            cell = self._next or (self._again.pop() if self._again else next(self._cells, None))
            if cell is not None and cell.gpus > self._gpus:
                self._refused.append(_no_gpu(cell, self._gpus))
                self._next = None
                continue
            taken = sum(_places(running) for running in self._running.values())
            if cell is None or (self.busy and taken + _places(cell) > self.places):
                self._next = cell
                return
            try:
                worker = self._worker_for(cell)
            except OSError as error:
                if not self.busy:
                    raise _cannot_start(error) from None
                self.places, self._next = len(self.busy), cell  # go on with the workers there are
                return
            self._next = None
            worker.start(cell)
            self._running[worker] = cell
            self.busy.append(worker)
            if not self._losses[cell.key]:
                self._notify(CellEvent("started", cell))

    def collect(self) -> list[CellResult]:
        """The results that are ready now."""
        batch, self._refused = self._refused, []
        for result in batch:
            self._notify(CellEvent("failed", result.cell))
        for worker in tuple(self.busy):
            if (outcome := worker.poll()) is None:
                continue
            cell = self._running.pop(worker)
            self.busy.remove(worker)
            self._heavy[cell.group] = outcome.pop("heavy", worker.heavy)
            if worker.reusable:
                self.idle.append(worker)
            else:
                worker.stop()
            if outcome.get("lost"):
                self._losses[cell.key] += 1
                if self._losses[cell.key] <= RETRIES:
                    self._again.append(cell)
                    continue
                outcome["message"] += f" ({self._losses[cell.key]} times)"
            result = result_of(cell, outcome)
            self._notify(CellEvent("failed" if result.failure else "done", cell, result.seconds))
            batch.append(result)
        return batch

    def _worker_for(self, cell: Cell) -> WorkerProcess:
        if cell.fresh or not can_fork:
            return WorkerProcess(forking=False)
        # A cell of a kind not seen yet is taken to be like the dearest kind seen: importing torch takes longest of all.
        heavy = self._heavy.get(cell.group, any(self._heavy.values()))
        for worker in reversed(self.idle):
            if worker.heavy == heavy:
                self.idle.remove(worker)
                if worker.reusable:
                    return worker
                worker.stop()
        return WorkerProcess(heavy=heavy)


def _cannot_start(error: OSError) -> AssayError:
    do = "raise the limit (ulimit -n) or take fewer --workers" if error.errno == errno.EMFILE else "free some memory"
    return AssayError(f"cannot start a worker process: {error.strerror}; {do}; the same command continues the run")


def _no_gpu(cell: Cell, present: int) -> CellResult:
    """The same answer as on Ray: a cell that cannot have what it asks for does not run without it."""
    message = f"asked for {cell.gpus:g} gpus; this machine has {present}"
    return result_of(cell, {"kind": "TooLarge", "message": message, "seconds": 0.0})


def _places(cell: Cell) -> int:
    return max(1, math.ceil(cell.cpus))
