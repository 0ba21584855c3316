"""Files written whole or not at all, and a journal that makes many of them durable with one wait for the disk."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import uuid
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from assay.errors import AssayError

try:
    import fcntl
except ImportError:  # no advisory locks on this system: then every file is synced by itself
    fcntl = None  # type: ignore[assignment]

JOURNAL_BYTES = 64 << 20


def write_atomically(file: Path, data: bytes, *, durable: bool = True) -> None:
    """Write ``data`` to ``file`` so that a reader sees the old content or the new, never a part.

    With ``durable`` it also survives a power cut once this returns.
    """
    temporary = file.parent / f".{file.name}.{uuid.uuid4().hex}.tmp"
    try:
        try:
            handle = temporary.open("xb")
        except FileNotFoundError:
            file.parent.mkdir(parents=True, exist_ok=True)
            handle = temporary.open("xb")
        with handle:
            handle.write(data)
            handle.flush()
            if durable:
                os.fsync(handle.fileno())
        os.replace(temporary, file)
        if durable:
            _sync_folder(file.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise cannot_write(file, error) from None


def inside(root: Path, name: str) -> bool:
    """Whether a relative name stays below ``root``, links followed."""
    if "\0" in name or not name or Path(name).is_absolute():
        return False
    top = root.resolve()
    return top in (top / name).resolve().parents


class Journal:
    """Makes a batch of files durable with a single sync: first all into one log, then each file, unsynced.

    A power cut may lose the files but not the log; ``recover`` writes them again. The log is dropped once the system
    has put the files on disk. A lock on the log, held while its driver lives, tells whether that driver is dead.

    Names in the log are relative to the folder of the files: a store that was moved recovers into itself, and one that
    came from a stranger writes nowhere else.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        self._root = root
        self._path = folder / f"{uuid.uuid4().hex}.log"
        self._log: int | None = None
        self._closing: weakref.finalize[[int], Any] | None = None

    def write(self, files: Mapping[Path, bytes]) -> None:
        """Write every file; when this returns, all survive a crash of the machine."""
        if len(files) == 1 or fcntl is None:
            for file, data in files.items():
                write_atomically(file, data)
            return
        try:
            log = self._open()
            size = os.fstat(log).st_size
            entries = b"".join(_entry(file.relative_to(self._root), data) for file, data in files.items())
            while entries:
                entries = entries[os.write(log, entries):]
            os.fsync(log)
        except OSError as error:
            raise cannot_write(self._path, error) from None
        for file, data in files.items():
            write_atomically(file, data, durable=False)
        if size > JOURNAL_BYTES:
            self.close()

    def close(self) -> None:
        """Wait until the files themselves are on disk, then drop the log."""
        if self._log is None or self._closing is None:
            return
        os.sync()
        self._path.unlink(missing_ok=True)
        self._closing()
        self._log = None

    def recover(self) -> None:
        """Write again whatever the logs of dead drivers hold and the disk has lost; then drop those logs."""
        for path in sorted(self._folder.glob("*.log")) if fcntl is not None else ():
            with contextlib.suppress(OSError), path.open("rb") as log:
                try:
                    fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    continue  # its driver lives
                for name, data in _entries(log):
                    file = self._root / name
                    if inside(self._root, name) and (not file.exists() or file.read_bytes() != data):
                        write_atomically(file, data)
                path.unlink(missing_ok=True)

    def _open(self) -> int:
        if self._log is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._log = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            self._closing = weakref.finalize(self, os.close, self._log)
            fcntl.flock(self._log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sync_folder(self._folder)
        return self._log


def _entry(file: Path, data: bytes) -> bytes:
    text = base64.b64encode(data).decode()
    body = {"file": file.as_posix(), "data": text, "sha256": hashlib.sha256(data).hexdigest()}
    return json.dumps(body).encode() + b"\n"


def _entries(log: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    for line in log:
        try:
            entry: dict[str, Any] = json.loads(line)
            data = base64.b64decode(entry["data"])
            if hashlib.sha256(data).hexdigest() == entry["sha256"]:
                yield str(entry["file"]), data
        except (ValueError, KeyError, TypeError):
            continue  # the torn end of a log: its batch was never reported as done


def _sync_folder(folder: Path) -> None:
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def cannot_write(file: Path, error: OSError) -> AssayError:
    """The error of a write that failed: a full disk, a lost right, a vanished mount."""
    return AssayError(f"cannot write {file}: {error.strerror}; free some space or choose another folder")
