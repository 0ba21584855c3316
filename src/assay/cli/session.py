"""The preamble of every command that runs a study, once: settings, executor, store, progress, report, exit code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from assay.config import Settings
    from assay.results import Run
    from assay.studies.study import Place


@dataclass(frozen=True)
class Session:
    """One command at work: its settings, where it computes, and the folder its report goes to (None: by its id)."""

    settings: Settings
    place: Place
    folder: Path | None
    command: str

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that ``verify`` and ``bench`` share."""
        return {
            "store": self.place.store, "executor": self.place.executor, "grouping": self.place.grouping,
            "watcher": self.place.watcher, "command": self.command,
        }

    def folder_of(self, run: Run) -> Path:
        """Where the report of ``run`` goes."""
        from assay.studies.study import DEFAULT_ROOT

        return self.folder or DEFAULT_ROOT / run.id


@contextmanager
def session(*, modules: Iterable[str] = (), grouping: bool = True, out: Path | None, **flags: Any) -> Iterator[Session]:
    """A session with live progress; ``modules`` are the user's, which must travel to a cluster, ``flags`` settings."""
    from assay.cli.terminal.common import settings
    from assay.cli.terminal.progress import watch
    from assay.engine import Store, choose_executor
    from assay.studies.study import DEFAULT_ROOT, Place, command_line

    plain = {name: str(value) if isinstance(value, Path) else value for name, value in flags.items()}
    chosen = settings(out=str(out) if out else None, **plain)
    executor = choose_executor(chosen.engine, workers=chosen.workers, address=chosen.address, modules=modules)
    folder = Path(chosen.out) if chosen.out else None
    cells = chosen.store or (folder or DEFAULT_ROOT) / "cells"
    with watch(folder, workers=executor.places(), costs=Store(cells).costs()) as watcher:
        place = Place(store=cells, executor=executor, grouping=grouping, watcher=watcher)
        yield Session(chosen, place, folder, command_line())


def finish(run: Run, folder: Path) -> NoReturn:
    """Write the report, print the summary, exit with the code of the verdict."""
    from assay.cli.terminal.voice import say_run
    from assay.reports import save_report

    save_report(run, folder)
    say_run(run, folder / "index.html")
    raise typer.Exit(run.verdict.exit_code)
