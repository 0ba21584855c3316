"""The runs in a folder, read again only when their files change, and never through a link that leads elsewhere."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import Field, ValidationError

from assay.errors import AssayError, SchemaError, expected
from assay.results import Frozen, Run

LARGEST = 256 * 2**20
"""Bytes of the largest run.json the viewer opens; a larger one is named in the list instead of filling the memory."""

SAME_MOMENT = 1.0
"""Seconds by which the time in a run may lie before that of its progress: one of them is written in whole seconds."""


class TrackProgress(Frozen):
    """How far one track of a running verification is."""

    number: int | None = None
    name: str = ""
    done: int = Field(0, ge=0)
    running: int = Field(0, ge=0)
    failed: int = Field(0, ge=0)
    total: int = Field(0, ge=0)
    verdict: str | None = None


class Progress(Frozen):
    """What a running verification writes to ``progress.json`` in its folder, whole at each step."""

    started: float | str = ""
    updated: float | str = ""
    tracks: tuple[TrackProgress, ...] = ()
    seconds_left: float | None = None
    finished: bool = False
    """Written once, at the end: a fact of the file, which copying it does not change."""

    @property
    def done(self) -> int:
        """Cells finished, whether well or not."""
        return sum(track.done + track.failed for track in self.tracks)

    @property
    def total(self) -> int:
        """Cells planned."""
        return sum(track.total for track in self.tracks)

    def ended_in(self, run: Run) -> bool:
        """Whether ``run`` is what this progress came to, and not an earlier one in the same folder."""
        if self.finished or not isinstance(self.started, float):
            return True
        try:
            return datetime.fromisoformat(run.created).timestamp() >= self.started - SAME_MOMENT
        except ValueError:
            return True


@dataclass(frozen=True)
class Listed:
    """One folder of the list: a run, a running verification, or a file that cannot be read and why."""

    name: str
    run: Run | None = None
    progress: Progress | None = None
    error: str = ""


class Library:
    """The runs below ``root``; ``root`` may also be a run folder itself."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise expected("a folder of runs", given=str(root), do="run `assay verify` first, or name its folder")
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int, int], Listed] = {}

    def entries(self) -> list[Listed]:
        """Every run and running verification, newest first."""
        found = [entry for folder in self._folders() if (entry := self._entry(folder)) is not None]
        return sorted(found, key=lambda entry: entry.run.created if entry.run else "~", reverse=True)

    def run(self, name: str) -> Run:
        """The run in the folder ``name``, which must be one the list shows; nothing else is ever opened."""
        for folder in self._folders():
            if folder.name == name:
                entry = self._entry(folder)
                if entry is not None and entry.run is not None:
                    return entry.run
                raise SchemaError(entry.error if entry and entry.error else f"{name} holds no finished run")
        raise SchemaError(f"no run named {name!r} here")

    def running(self) -> list[Listed]:
        """The verifications that have not finished."""
        return [entry for entry in self.entries() if entry.progress is not None]

    def _folders(self) -> list[Path]:
        if (self.root / "run.json").is_file():
            return [self.root.resolve()]
        return [folder for folder in sorted(self.root.iterdir()) if folder.is_dir() and not folder.is_symlink()]

    def _entry(self, folder: Path) -> Listed | None:
        finished, progress = _inside(folder, "run.json"), _inside(folder, "progress.json")
        if finished is None and progress is None:
            return None
        running = _running(folder.name, progress) if progress is not None else None
        if finished is None:
            return running
        known = self._remembered(folder.name, finished)
        if running is None or running.progress is None or known.run is None or running.progress.ended_in(known.run):
            return known
        return running

    def _remembered(self, name: str, file: Path) -> Listed:
        status = file.stat()
        key = (str(file), status.st_mtime_ns, status.st_size)
        with self._lock:
            if key not in self._known:
                self._known = {k: entry for k, entry in self._known.items() if k[0] != key[0]}
                self._known[key] = _finished(name, file, status.st_size)
            return self._known[key]


def _inside(folder: Path, name: str) -> Path | None:
    """The regular file ``name`` in ``folder``; a link is not followed, wherever it leads."""
    file = folder / name
    return file if file.is_file() and not file.is_symlink() else None


def _finished(name: str, file: Path, size: int) -> Listed:
    if size > LARGEST:
        return Listed(name, error=f"run.json is larger than {LARGEST // 2**20} MB; use assay report")
    try:
        return Listed(name, run=Run.from_json(file.read_bytes(), where=f"{name}/run.json"))
    except (AssayError, OSError, RecursionError) as error:
        return Listed(name, error=str(error))


def _running(name: str, file: Path) -> Listed:
    try:
        return Listed(name, progress=Progress.model_validate_json(file.read_bytes()))
    except (ValidationError, ValueError, OSError):
        return Listed(name, error="progress.json cannot be read")
