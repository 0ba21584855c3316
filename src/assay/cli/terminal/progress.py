"""Live progress: a table in a terminal, plain lines elsewhere, and ``progress.json`` for the viewer."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.protocols import Cell, CellEvent
from assay.results import Finding, Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.engine import CostModel

WRITE_SECONDS = 1.0
WIDE = 100
"""From this width on the live table has a bar and the number of running cells."""


@dataclass
class Row:
    """The state of one track or task while it runs."""

    title: str
    total: int
    done: int = 0
    cached: int = 0
    failed: int = 0
    waiting: dict[str, int] = field(default_factory=dict)
    """Cells not started yet, by group."""
    running: dict[str, tuple[str, float, int]] = field(default_factory=dict)
    """Group, time of start and number of cells in the same call, of running cells by key."""
    grouped: int = 0
    """Cells computed in one call with others."""
    verdict: Verdict | None = None


class Counting:
    """A Watcher that keeps the counts; the displays below only draw them."""

    def __init__(self, folder: Path | None, workers: int | None, costs: CostModel | None = None) -> None:
        from assay.engine import CostModel

        self.rows: dict[str, Row] = {}
        self.started = time.time()
        self._row_of: dict[str, list[str]] = {}
        self._costs = costs or CostModel()
        self._workers = workers or os.cpu_count() or 1
        self.finished = False
        self._file = folder / "progress.json" if folder else None
        self._written = 0.0

    def planned(self, titles: Mapping[str, str], cells: Mapping[str, Sequence[Cell]]) -> None:
        """Take the plan: rows and their cells."""
        for key, title in titles.items():
            unique = {cell.key: cell for cell in cells[key]}
            row = self.rows[key] = Row(title, len(unique))
            for cell in unique.values():
                self._row_of.setdefault(cell.key, []).append(key)
                row.waiting[cell.group] = row.waiting.get(cell.group, 0) + 1
        self._costs = self._costs.of({cell.group for planned in cells.values() for cell in planned})
        self._save(force=True)

    def event(self, event: CellEvent) -> None:
        """Take one event of the engine."""
        if event.kind == "planned":
            return
        for key in self._row_of.get(event.cell.key, ()):
            row = self.rows[key]
            if event.kind in ("started", "cached"):
                row.waiting[event.cell.group] -= 1
            if event.kind == "started":
                row.running[event.cell.key] = (event.cell.group, time.monotonic(), event.together)
            else:
                row.running.pop(event.cell.key, None)
                row.done += event.kind in ("done", "cached")
                row.cached += event.kind == "cached"
                row.failed += event.kind == "failed"
                row.grouped += event.kind == "done" and event.together > 1
        if event.kind in ("done", "cached"):
            self._costs.learn(event.cell.group, event.seconds)
        self._save()

    def decided(self, row: str, finding: Finding) -> None:
        """Take a verdict."""
        self.rows[row].verdict = finding.verdict
        self._save(force=True)

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until every cell is done; None while no time of such cells is known."""
        lefts = [self.row_seconds_left(row) for row in self.rows.values()]
        return None if None in lefts else sum(left for left in lefts if left is not None)

    def row_seconds_left(self, row: Row) -> float | None:
        """Estimated seconds that one row still keeps all workers busy."""
        running: dict[str, list[float]] = {}
        now = time.monotonic()
        for group, started, together in row.running.values():
            running.setdefault(group, []).append((now - started) / together)  # recorded times are shares too
        return self._costs.left(row.waiting, running, self._workers)

    def snapshot(self) -> dict[str, Any]:
        """What ``progress.json`` holds."""
        tracks = [
            {
                "number": int(key) if key.isdigit() else None,
                "name": row.title,
                "done": row.done,
                "running": len(row.running),
                "failed": row.failed,
                "total": row.total,
                "verdict": row.verdict.value if row.verdict else None,
            }
            for key, row in self.rows.items()
        ]
        return {"started": self.started, "updated": time.time(), "finished": self.finished, "tracks": tracks,
                "seconds_left": self.seconds_left}  # fmt: skip

    def finish(self) -> None:
        """Write that the run has ended: a fact that survives copying, unlike the age of a file."""
        self.finished = True
        self._save(force=True)

    def forget(self) -> None:
        """Take ``progress.json`` away: a run that was stopped is not to be seen running for ever."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _save(self, *, force: bool = False) -> None:
        if self._file is None or (not force and time.monotonic() - self._written < WRITE_SECONDS):
            return
        from assay.engine import write_atomically

        self._written = time.monotonic()
        write_atomically(self._file, json.dumps(self.snapshot()).encode())


class PlainProgress(Counting):
    """One line when a plan is made, when a cell fails and when a verdict falls: for logs and pipes."""

    def planned(self, titles: Mapping[str, str], cells: Mapping[str, Sequence[Cell]]) -> None:
        super().planned(titles, cells)
        claims = "1 claim" if len(titles) == 1 else f"{len(titles)} claims"
        self._say(f"{len(self._row_of)} cells planned for {claims}")

    def event(self, event: CellEvent) -> None:
        super().event(event)
        if event.kind == "failed":
            self._say(f"failed: {event.cell.label} after {event.seconds:.1f} s")

    def decided(self, row: str, finding: Finding) -> None:
        super().decided(row, finding)
        state = self.rows[row]
        left = self.seconds_left
        rest = f", about {clock(left)} left" if left else ""
        grouped = f", {state.grouped} in groups" if state.grouped else ""
        cells = f"{state.done} cells, {state.cached} from the store{grouped}{rest}"
        self._say(f"{finding.verdict.value:12s} {row} {state.title} ({cells})")

    @staticmethod
    def _say(line: str) -> None:
        from assay.cli.terminal.common import console

        console().print(line, markup=False)


@contextmanager
def watch(
    folder: Path | None, *, workers: int | None = None, costs: CostModel | None = None
) -> Iterator[Counting]:
    """A progress display for the length of a run: live in a terminal, plain lines otherwise.

    ``costs`` are times recorded by earlier runs (``Store.costs``): with them the time left is known from the start.
    """
    from assay.cli.terminal.common import console

    out = console()
    progress = Counting(folder, workers, costs) if out.is_terminal else PlainProgress(folder, workers, costs)
    try:
        if out.is_terminal:
            from rich.live import Live

            with Live(get_renderable=lambda: _table(progress), console=out, refresh_per_second=5, transient=True):
                yield progress
        else:
            yield progress
    except BaseException:
        progress.forget()
        raise
    progress.finish()


def clock(seconds: float) -> str:
    """Seconds for a person.

    >>> clock(8), clock(75), clock(7300)
    ('8 s', '1 min 15 s', '2 h 01 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _running(row: Row) -> str:
    """How many cells run, and in how many calls if some share one."""
    calls = round(sum(1 / together for _, _, together in row.running.values()))
    cells = len(row.running)
    return f"{cells} in {calls}" if 0 < calls < cells else str(cells or "")


def _table(progress: Counting) -> RenderableType:
    from rich import box
    from rich.markup import escape
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from assay.cli.terminal.common import console, sign

    # In a narrow terminal the name of a claim is worth more than a bar and the number of running cells.
    wide = console().width >= WIDE
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("track", ratio=3, no_wrap=True, overflow="ellipsis", min_width=24)
    if wide:
        table.add_column("", ratio=2)
    table.add_column("done", justify="right", no_wrap=True)
    if wide:
        table.add_column("running", justify="right", no_wrap=True)
    table.add_column("left", justify="right", no_wrap=True, min_width=6)
    table.add_column("verdict", no_wrap=True, min_width=14)
    for key, row in progress.rows.items():
        bar = ProgressBar(
            total=row.total,
            completed=row.done + row.failed,
            complete_style="magenta" if row.failed else "bar.complete",
            finished_style="magenta" if row.failed else "bar.finished",
        )
        failed = f" [magenta]! {row.failed}[/magenta]" if row.failed else ""
        rest = progress.row_seconds_left(row)
        table.add_row(
            escape(key),
            escape(row.title),
            *((bar,) if wide else ()),
            f"{row.done}/{row.total}{failed}",
            *((_running(row),) if wide else ()),
            clock(rest) if rest and not row.verdict else "",
            sign(row.verdict) if row.verdict else Text("…", style="bright_black"),
        )
    left = progress.seconds_left
    table.caption = f"{clock(time.time() - progress.started)} elapsed" + (f", about {clock(left)} left" if left else "")
    return table
