"""An executor in this process that counts what it runs: fast, and a resumed run can be seen to run nothing."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest

from assay.protocols import Cell, CellEvent, CellResult
from assay.results import Failure


class InProcess:
    """Runs cells here, one after the other; ``ran`` holds their labels."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def places(self) -> int:
        return 1

    def run(self, cells: Iterable[Cell], *, notify: Callable[[CellEvent], None]) -> Iterator[Sequence[CellResult]]:
        for cell in cells:
            self.ran.append(cell.label)
            module, _, function = cell.target.partition(":")
            try:
                record, failure = getattr(importlib.import_module(module), function)(cell.payload), None
            except Exception as error:
                record, failure = None, Failure(label=cell.label, kind=type(error).__name__, message=str(error),
                                                traceback=traceback.format_exc())
            notify(CellEvent("done" if failure is None else "failed", cell, 0.1))
            yield [CellResult(cell, record, failure, 0.1)]


@pytest.fixture(scope="session")
def in_process() -> type[InProcess]:
    """For fixtures that outlive a test."""
    return InProcess
