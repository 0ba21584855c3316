"""A crash-safe, content-addressed store of finished cells.

One file per cell, written as temp file, fsync, rename: a kill at any moment leaves either the whole cell or none. Every
file carries a digest of its content; a truncated, corrupted or tampered cell is set aside, reported and done again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.engine.plan import canonical
from assay.errors import AssayError, expected

FORMAT = 1
KEY = re.compile(r"^[0-9a-f]{32}$")


@dataclass(frozen=True)
class StoredCell:
    """A finished cell as the store holds it."""

    key: str
    label: str
    group: str
    seconds: float
    record: Mapping[str, Any]


@dataclass
class Store:
    """Finished cells under ``root``, by key. ``damaged`` lists files found broken since it was opened."""

    root: Path
    damaged: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root = Path(self.root)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".probe-{uuid.uuid4().hex}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise AssayError(
                f"cannot write to {self.root}: {error.strerror}; choose another folder with --out"
            ) from None

    def path(self, key: str) -> Path:
        """Where the cell of this key lives."""
        if not KEY.match(key):
            raise expected("a cell key of 32 hex digits", given=repr(key))
        return self.root / key[:2] / f"{key}.json"

    def get(self, key: str) -> StoredCell | None:
        """The cell of this key, or None if it was never finished or its file is damaged (then it is set aside)."""
        file = self.path(key)
        try:
            raw = file.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return _decode(raw, key)
        except (ValueError, KeyError, TypeError) as error:
            self.damaged.append(f"{file.name}: {error}; set aside, the cell is done again")
            self._set_aside(file)
            return None

    def put(self, cell: StoredCell) -> None:
        """Write a finished cell; when this returns, it survives a crash of the machine."""
        write_atomically(self.path(cell.key), _encode(cell))

    def __iter__(self) -> Iterator[StoredCell]:
        for file in sorted(self.root.glob("??/*.json")):
            if KEY.match(file.stem) and (cell := self.get(file.stem)) is not None:
                yield cell

    def _set_aside(self, file: Path) -> None:
        try:
            os.replace(file, file.with_suffix(f".damaged-{uuid.uuid4().hex[:8]}"))
        except FileNotFoundError:
            pass  # another driver set it aside first


def write_atomically(file: Path, data: bytes) -> None:
    """Write ``data`` to ``file`` so that a reader sees the old content or the new, never a part."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.parent / f".{file.name}.{uuid.uuid4().hex}.tmp"
    try:
        with temporary.open("xb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise AssayError(f"cannot write {file}: {error.strerror}; free some space or choose another folder") from None
    if hasattr(os, "O_DIRECTORY"):
        handle_of_folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle_of_folder)
        finally:
            os.close(handle_of_folder)


def _body(cell: StoredCell) -> dict[str, Any]:
    return {
        "format": FORMAT, "key": cell.key, "label": cell.label, "group": cell.group, "seconds": cell.seconds,
        "record": dict(cell.record),
    }


def _encode(cell: StoredCell) -> bytes:
    body = _body(cell)
    digest = hashlib.sha256(canonical(body).encode()).hexdigest()
    return (json.dumps({**body, "sha256": digest}, indent=1) + "\n").encode()


def _decode(raw: bytes, key: str) -> StoredCell:
    data = json.loads(raw)
    digest = data.pop("sha256")
    if data["format"] != FORMAT:
        raise ValueError(f"cell format {data['format']}, this Assay writes {FORMAT}")
    if data["key"] != key:
        raise ValueError(f"file holds the cell of key {data['key']}")
    if hashlib.sha256(canonical(data).encode()).hexdigest() != digest:
        raise ValueError("content does not match its digest")
    return StoredCell(key=key, label=data["label"], group=data["group"], seconds=data["seconds"], record=data["record"])
