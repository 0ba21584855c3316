"""Getting datasets: ranged and resumable downloads, checked by sha256, put in place by one rename.

A download grows in ``NAME.part`` and takes its final name only when its hash is right: a file with that name is whole.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.errors import AssayError, InputError
from assay.tasks.files import DATASETS, DataFile, data_root, find_dataset, locate, read_file

CHUNK = 1 << 20
ATTEMPTS = 4
"""Times a broken connection is taken up again before giving up; what was received stays for the next command."""

Progress = Callable[[str, int, int | None], None]
"""(file name, bytes so far, bytes in all if known)."""


class DownloadError(AssayError):
    """A download that failed or did not match its hash."""


@dataclass(frozen=True)
class FileStatus:
    """What is known of one file: ``ok`` (hash right), ``missing`` or ``damaged`` with the reason."""

    dataset: str
    file: str
    state: Literal["ok", "missing", "damaged"]
    path: str
    reason: str = ""


def status(*, root: str | Path | None = None) -> tuple[FileStatus, ...]:
    """Every file of every dataset, read and checked against its hash."""
    return tuple(_file_status(name, file, root) for name, dataset in DATASETS.items() for file in dataset.files)


def fetch(
    name: str, *, root: str | Path | None = None, base_url: str | None = None, progress: Progress | None = None
) -> tuple[Path, ...]:
    """The files of a dataset, downloaded where they are not there yet; files already whole are left alone.

    ``base_url`` is a mirror to use instead of the official address. A damaged file is replaced, never repaired.
    """
    dataset, folder = find_dataset(name), data_root(root) / find_dataset(name).folder
    address = base_url or dataset.base_url
    address += "" if address.endswith("/") else "/"
    needed = [file for file in dataset.files if _file_status(name, file, root).state != "ok"]
    if needed:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            advice = "set ASSAY_DATA to a folder you may write"
            raise InputError(f"cannot make {folder}: {error.strerror}; {advice}") from None
        _discard_damaged(name, needed, root)
        if dataset.archive is not None:
            _fetch_archive(
                address, dataset.archive, sha256=str(dataset.archive_sha256), files=needed, folder=folder,
                progress=progress or _silent,
            )
        else:
            for file in needed:
                _fetch_gzip(address, file, folder, progress or _silent)
    found = [locate(name, file, root=root) for file in dataset.files]
    return tuple(path for path in found if path is not None)


def _file_status(name: str, file: DataFile, root: str | Path | None) -> FileStatus:
    path = locate(name, file, root=root)
    if path is None:
        wanted = data_root(root) / find_dataset(name).folder / file.name
        return FileStatus(name, file.name, "missing", str(wanted), f"run: assay data fetch {name}")
    try:
        read_file(path, file)
    except InputError as error:
        return FileStatus(name, file.name, "damaged", str(path), str(error))
    return FileStatus(name, file.name, "ok", str(path))


def _discard_damaged(name: str, files: list[DataFile], root: str | Path | None) -> None:
    for file in files:
        if (path := locate(name, file, root=root)) is not None:
            path.unlink()


def _fetch_gzip(address: str, file: DataFile, folder: Path, progress: Progress) -> None:
    target = folder / f"{file.name}.gz"

    def check(part: Path) -> str | None:
        try:
            found = hashlib.sha256(gzip.decompress(part.read_bytes())).hexdigest()
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            return f"it does not decompress ({error})"
        return None if found == file.sha256 else f"its raw sha256 is {found}, expected {file.sha256}"

    _download(address + target.name, target, check, progress)


def _fetch_archive(
    address: str, archive: str, *, sha256: str, files: list[DataFile], folder: Path, progress: Progress
) -> None:
    target = folder / archive

    def check(part: Path) -> str | None:
        with part.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        return None if found == sha256 else f"its sha256 is {found}, expected {sha256}"

    _download(address + archive, target, check, progress)
    with tarfile.open(target) as tar:
        members = {Path(member.name).name: member for member in tar.getmembers() if member.isfile()}
        for file in files:
            # Only the named members are read, as streams: no path from the archive is ever written to.
            stream = tar.extractfile(members[file.name]) if file.name in members else None
            if stream is None:
                raise DownloadError(f"{target} has no {file.name}; expected the archive {archive}")
            _place(folder / file.name, stream.read(), file)
    target.unlink()


def _place(target: Path, raw: bytes, file: DataFile) -> None:
    found = hashlib.sha256(raw).hexdigest()
    if found != file.sha256:
        raise DownloadError(f"{file.name} in the archive has sha256 {found}; expected {file.sha256}")
    part = target.with_name(target.name + ".part")
    with part.open("wb") as stream:
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(target)


def _download(url: str, target: Path, check: Callable[[Path], str | None], progress: Progress) -> None:
    """Fetches ``url`` to ``target``, going on from an earlier part; if that gives a wrong hash, once from the start."""
    part = target.with_name(target.name + ".part")
    resumed = part.exists()
    _receive(url, part, progress)
    wrong = check(part)
    if wrong and resumed:
        part.unlink()
        _receive(url, part, progress)
        wrong = check(part)
    if wrong:
        part.unlink()
        advice = "nothing was kept, try another mirror"
        raise DownloadError(f"{url} did not give the canonical {target.name}: {wrong}; {advice}")
    part.replace(target)


def _receive(url: str, part: Path, progress: Progress) -> None:
    last: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            if _receive_once(url, part, progress):
                return
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing beyond what is there: the hash decides whether that is the whole file
                return
            if error.code < 500:
                raise DownloadError(f"{url} answered {error.code} {error.reason}; try another mirror") from None
            last = error
        except (OSError, http.client.HTTPException) as error:
            last = error
    kept = part.stat().st_size if part.exists() else 0
    reason = f"{last}" if last else "the connection closed early"
    advice = f"{kept:,} bytes are kept, the same command goes on from there"
    raise DownloadError(f"{url} could not be fetched: {reason}; {advice}")


def _receive_once(url: str, part: Path, progress: Progress) -> bool:
    """One connection; True if the server sent all it announced."""
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        if start and answer.status != 206:  # this server does not resume: begin again
            start = 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length else None
        with part.open("ab" if start else "wb") as stream:
            received = start
            while chunk := answer.read(CHUNK):
                stream.write(chunk)
                received += len(chunk)
                progress(part.name.removesuffix(".part"), received, total)
            stream.flush()
            os.fsync(stream.fileno())
    return total is None or received == total


def _silent(name: str, received: int, total: int | None) -> None:
    """Shows nothing."""
