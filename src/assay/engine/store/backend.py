"""Where a store keeps its objects: a folder, or any object store that fsspec reaches and that can create atomically."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

from assay.engine.store.files import Journal, cannot_write, inside, write_atomically
from assay.engine.store.patience import patiently
from assay.errors import AssayError, MissingExtra, expected

Item = TypeVar("Item")
Answer = TypeVar("Answer")

REMOTE_CALLS = 32
"""Requests in flight to an object store, whose latency of tens of milliseconds would otherwise bound the driver."""
ATOMIC_CREATE: dict[str, tuple[str, str] | None] = {
    "memory": None, "s3": ("s3fs", "2025.7.0"), "s3a": ("s3fs", "2025.7.0"), "gs": ("gcsfs", "2024.12.0"),
    "gcs": ("gcsfs", "2024.12.0"),
}
"""Schemes whose create-if-absent is decided by the server, and the first client that asks for it."""


class Backend(Protocol):
    """Named bytes. ``create`` must be atomic: of several callers exactly one gets True."""

    calls: int
    """How many calls at once gain time; 1 where they do not."""

    def read(self, name: str) -> bytes | None: ...
    def write(self, items: Mapping[str, bytes]) -> None:
        """Write or replace objects, each whole or not at all, durable when this returns."""

    def note(self, name: str, data: bytes) -> None:
        """Write a small object that need not survive a power cut (a heartbeat)."""

    def create(self, name: str, data: bytes) -> bool: ...
    def delete(self, name: str) -> None: ...
    def names(self, prefix: str) -> Iterator[str]: ...
    def map(self, function: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
        """``function`` of every item, at once where the backend gains by it."""

    def close(self) -> None: ...


class Folder:
    """Objects as files under a local or shared (NFS, Lustre) folder."""

    calls = 1

    def __init__(self, root: Path, *, read_only: bool = False) -> None:
        self.root = root
        self._journal = Journal(root / "journal", root)
        if read_only:  # what is only looked at may lie on a medium that cannot be written, and is left as it is
            return
        try:
            root.mkdir(parents=True, exist_ok=True)
            probe = root / f".probe-{os.urandom(8).hex()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise AssayError(
                f"cannot write to {root}: {error.strerror}; choose another folder with --out or --store"
            ) from None
        self._journal.recover()

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except IsADirectoryError:
            return b""  # a folder in the place of a file holds no cell: it is set aside like any damaged one
        except OSError as error:
            raise AssayError(f"cannot read {self.root / name}: {error.strerror}") from None

    def write(self, items: Mapping[str, bytes]) -> None:
        self._journal.write({self._inside(name): data for name, data in items.items()})

    def note(self, name: str, data: bytes) -> None:
        write_atomically(self._inside(name), data, durable=False)

    def _inside(self, name: str) -> Path:
        """The file of a name; a store from elsewhere may hold links that lead out of it, through which nobody writes.
        """
        folder = self.root / name.partition("/")[0]
        if "/" in name and folder.is_symlink() and not inside(self.root, name):
            raise AssayError(f"{folder} leads out of the store; remove that link or choose another folder with --store")
        return self.root / name

    def create(self, name: str, data: bytes) -> bool:
        # Exclusive open is atomic on local disks and NFS from version 3; a reader may see the file before its content.
        file = self._inside(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            try:
                handle = os.open(file, flags, 0o666)
            except FileNotFoundError:
                file.parent.mkdir(parents=True, exist_ok=True)
                handle = os.open(file, flags, 0o666)
            with os.fdopen(handle, "wb") as opened:
                opened.write(data)
        except FileExistsError:
            return False
        except OSError as error:
            raise cannot_write(file, error) from None
        return True

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._inside(name).unlink()

    def names(self, prefix: str) -> Iterator[str]:
        for file in sorted((self.root / prefix).rglob("*") if prefix else self.root.rglob("*")):
            if file.is_file() and not file.name.startswith("."):
                yield file.relative_to(self.root).as_posix()

    def map(self, function: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
        return [function(item) for item in items]

    def close(self) -> None:
        self._journal.close()


class ObjectStore:
    """Objects behind an fsspec URL (``s3://bucket/runs``, ``gs://...``, ``memory://``)."""

    calls = REMOTE_CALLS

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError:
            raise MissingExtra("fsspec", "ray", f"the store {url}") from None
        scheme = url.partition("://")[0]
        if scheme not in ATOMIC_CREATE:
            raise expected(
                f"a folder or a URL of {', '.join(f'{s}://' for s in ATOMIC_CREATE)}", given=url,
                do="other stores cannot create an object atomically, which two drivers at once need",
            )
        _check_client(scheme)
        self._files: Any
        # A listing that fsspec has kept does not show what other drivers have written since.
        self._files, self._root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        self._lock = threading.Lock() if scheme == "memory" else contextlib.nullcontext()
        self._threads = ThreadPoolExecutor(REMOTE_CALLS, thread_name_prefix="assay-store")
        probe = f".probe-{os.urandom(8).hex()}"
        try:
            exclusive = self.create(probe, b"1") and not self.create(probe, b"2")
            self.delete(probe)
        except Exception as error:
            raise AssayError(f"cannot write to {url}: {error}; check the address and your credentials") from None
        if not exclusive:
            raise AssayError(f"{url} does not refuse to create an object twice; two drivers could not share it")

    def read(self, name: str) -> bytes | None:
        where = self._path(name)
        try:
            data: bytes = patiently(lambda: self._files.cat_file(where), what=f"read {where}")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise AssayError(f"cannot read {where}: {error}; the same command continues the run") from None
        return data

    def write(self, items: Mapping[str, bytes]) -> None:
        self.map(lambda item: self.note(*item), items.items())

    def note(self, name: str, data: bytes) -> None:
        where = self._path(name)
        try:
            patiently(lambda: self._files.pipe_file(where, data), what=f"write {where}")
        except OSError as error:
            raise AssayError(f"cannot write {where}: {error}; the same command continues the run") from None

    def create(self, name: str, data: bytes) -> bool:
        where = self._path(name)
        tried = 0

        def put() -> bool:
            nonlocal tried
            tried += 1
            with self._lock:  # fsspec's memory store checks and writes in two steps
                self._files.pipe_file(where, data, mode="create")
            return True

        try:
            return patiently(put, what=f"create {where}")
        except FileExistsError:
            # A request whose answer was lost may have been carried out: then the object there is our own.
            return tried > 1 and self.read(name) == data

    def delete(self, name: str) -> None:
        where = self._path(name)
        with contextlib.suppress(FileNotFoundError):
            patiently(lambda: self._files.rm_file(where), what=f"delete {where}")

    def names(self, prefix: str) -> Iterator[str]:
        where = self._path(prefix)
        for path in sorted(patiently(lambda: self._files.find(where), what=f"list {where}")):
            name = str(path)[len(self._root):].strip("/")
            if not name.rpartition("/")[2].startswith("."):
                yield name

    def map(self, function: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
        return list(self._threads.map(function, items))

    def close(self) -> None:
        """Nothing waits: a write has reached the object store when it returns."""

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def open_backend(root: str | Path, *, read_only: bool = False) -> Backend:
    """The backend of a folder or URL; a folder that is ``read_only`` is neither made, nor probed, nor recovered."""
    text = str(root)
    if "://" not in text:
        return Folder(Path(root), read_only=read_only)
    if text.startswith(("file://", "local://")):
        return Folder(Path(text.partition("://")[2]), read_only=read_only)
    return ObjectStore(text)


def _check_client(scheme: str) -> None:
    import importlib.metadata

    if (needed := ATOMIC_CREATE[scheme]) is None:
        return
    package, least = needed
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise AssayError(
            f"a store at {scheme}:// needs {package}, which is not installed; run: pip install '{package}>={least}'"
        ) from None
    if _numbers(version) < _numbers(least):
        raise AssayError(
            f"{package} {version} cannot create an object atomically; run: pip install --upgrade '{package}>={least}'"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
