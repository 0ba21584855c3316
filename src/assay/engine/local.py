"""The embedded executor: worker processes on this machine, isolated, with time-outs."""

from __future__ import annotations

import concurrent.futures
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from assay.engine.worker import THREAD_VARIABLES, prepare, run_cell
from assay.errors import expected
from assay.protocols import Cell, CellEvent, CellResult
from assay.results import Failure

POLL_SECONDS = 0.2
LOOKAHEAD = 1
"""Cells queued beyond the busy workers, so that none waits for the driver."""


@dataclass(frozen=True)
class LocalExecutor:
    """Runs cells in ``workers`` processes; a cell that raises, hangs or is killed fails alone."""

    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise expected("workers >= 1", given=f"workers={self.workers}")

    def run(self, cells: Iterable[Cell], *, notify: Callable[[CellEvent], None]) -> Iterator[CellResult]:
        """Each cell's result as it is ready; leaving the loop early stops the workers at once."""
        from pebble import ProcessPool

        count = self.workers or os.cpu_count() or 1
        queue = iter(cells)
        running: dict[concurrent.futures.Future[dict[str, Any]], _Submitted] = {}
        with _one_thread_environment():
            pool = ProcessPool(max_workers=count, context=_context(), initializer=prepare)
            try:
                while True:
                    for cell in itertools.islice(queue, count + LOOKAHEAD - len(running)):
                        future = pool.schedule(run_cell, args=[cell.target, dict(cell.payload)], timeout=cell.timeout)
                        running[future] = _Submitted(cell)
                    if not running:
                        break
                    done, waiting = concurrent.futures.wait(
                        running, timeout=POLL_SECONDS, return_when=concurrent.futures.FIRST_COMPLETED
                    )
                    for future in waiting:
                        running[future].announce(future.running(), notify)
                    for future in done:
                        submitted = running.pop(future)
                        submitted.announce(True, notify)
                        result = _collect(future, submitted)
                        notify(CellEvent("failed" if result.failure else "done", result.cell, result.seconds))
                        yield result
                pool.close()
            finally:
                pool.stop()
                pool.join()


class _Submitted:
    """A scheduled cell and when it was first seen running."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.started: float | None = None

    def announce(self, running: bool, notify: Callable[[CellEvent], None]) -> None:
        if running and self.started is None:
            self.started = time.monotonic()
            notify(CellEvent("started", self.cell))

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started if self.started is not None else 0.0


def _collect(future: concurrent.futures.Future[dict[str, Any]], submitted: _Submitted) -> CellResult:
    from pebble import ProcessExpired

    cell = submitted.cell
    try:
        outcome = future.result()
    except concurrent.futures.TimeoutError:
        failure = Failure(label=cell.label, kind="Timeout", message=f"no result within {cell.timeout:g} s; the worker was stopped")
        return CellResult(cell, None, failure, submitted.seconds)
    except ProcessExpired as error:
        code = error.exitcode
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exited with code {code}"
        failure = Failure(label=cell.label, kind="WorkerDied", message=f"the worker process was {how} while running this cell")
        return CellResult(cell, None, failure, submitted.seconds)
    except Exception as error:
        failure = Failure(label=cell.label, kind=type(error).__name__, message=f"the cell's result could not be read: {error}")
        return CellResult(cell, None, failure, submitted.seconds)
    if "record" in outcome:
        return CellResult(cell, outcome["record"], None, outcome["seconds"])
    failure = Failure(label=cell.label, kind=outcome["kind"], message=outcome["message"], traceback=outcome["traceback"])
    return CellResult(cell, None, failure, outcome["seconds"])


def _context() -> multiprocessing.context.BaseContext:
    # Never fork: the driver may hold threads (progress display, torch), and a forked lock is a hang.
    return multiprocessing.get_context("spawn")


class _one_thread_environment:  # noqa: N801 - used like a function
    """Workers inherit one thread per maths library; the driver's own environment is restored."""

    def __enter__(self) -> None:
        self.saved = {name: os.environ.get(name) for name in THREAD_VARIABLES}
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))

    def __exit__(self, *_: object) -> None:
        for name, value in self.saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
