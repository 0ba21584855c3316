"""Canonical dataset files: where they are, what their bytes must hash to, how they are read.

A file is accepted by the sha256 of its raw (uncompressed) bytes, so it does not matter who compressed it or how; a
truncated or corrupt file is named, with both hashes.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import InputError, MissingData, unknown

if TYPE_CHECKING:
    import numpy as np

ENVIRONMENT_NAME = "ASSAY_DATA"
FIX = "delete it and fetch it again: assay data fetch"


@dataclass(frozen=True)
class DataFile:
    """One file: its canonical name (without .gz) and the sha256 and size of its raw bytes."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Dataset:
    """A dataset: its folder, its files, and where they can be had. ``archive`` is a tar that holds all of them."""

    folder: str
    files: tuple[DataFile, ...]
    base_url: str
    archive: str | None = None
    archive_sha256: str | None = None
    other_folders: tuple[str, ...] = ()
    licence: str = ""


@dataclass(frozen=True, eq=False)
class Images:
    """Pixels (items, channels, height, width) and labels, both uint8, as they are in the files."""

    train_pixels: np.ndarray
    train_labels: np.ndarray
    test_pixels: np.ndarray
    test_labels: np.ndarray


def _idx(*hashes: str) -> tuple[DataFile, ...]:
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    sizes = (16 + 60_000 * 784, 8 + 60_000, 16 + 10_000 * 784, 8 + 10_000)
    return tuple(DataFile(*fields) for fields in zip(names, hashes, sizes, strict=True))


DATASETS: Mapping[str, Dataset] = {
    "mnist": Dataset(
        folder="mnist",
        files=_idx(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        base_url="https://ossci-datasets.s3.amazonaws.com/mnist/",
        other_folders=("MNIST/raw",),
        licence="LeCun, Cortes, Burges; CC BY-SA 3.0",
    ),
    "fashion-mnist": Dataset(
        folder="fashion-mnist",
        files=_idx(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        base_url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        other_folders=("FashionMNIST/raw",),
        licence="Zalando Research; MIT",
    ),
    "cifar10": Dataset(
        folder="cifar-10-batches-bin",
        files=tuple(
            DataFile(name, sha256, 10_000 * 3073)
            for name, sha256 in {
                "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            }.items()
        ),
        base_url="https://www.cs.toronto.edu/~kriz/",
        archive="cifar-10-binary.tar.gz",
        archive_sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        licence="Krizhevsky 2009; no clear licence, do not redistribute",
    ),
}


def find_dataset(name: str) -> Dataset:
    """The dataset called ``name``; InputError with the nearest name if there is none."""
    if name not in DATASETS:
        raise InputError(unknown("dataset", name, DATASETS))
    return DATASETS[name]


def data_root(root: str | Path | None = None) -> Path:
    """The folder of all datasets: the argument, else ``ASSAY_DATA``, else the user's cache folder."""
    if root is not None:
        return Path(root).expanduser()
    if given := os.environ.get(ENVIRONMENT_NAME):
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "assay" / "data"


def missing(name: str, file: str, *, root: str | Path | None = None) -> MissingData:
    """The error for a file that is not there: where it was looked for and the command that gets it."""
    where, command = data_root(root), f"assay data fetch {name}" + (f" --data {root}" if root is not None else "")
    return MissingData(
        f"{name} is not under {where} ({file} is missing); run: {command}"
        f" (or set {ENVIRONMENT_NAME} to a folder that has {find_dataset(name).folder}/)"
    )


def locate(name: str, file: DataFile, *, root: str | Path | None = None) -> Path | None:
    """Where a file of a dataset lies, plain or gzipped, in Assay's or torchvision's layout; None if nowhere."""
    dataset, base = find_dataset(name), data_root(root)
    candidates = (
        base / folder / f"{file.name}{ending}"
        for folder in (dataset.folder, *dataset.other_folders)
        for ending in ("", ".gz")
    )
    return next((path for path in candidates if path.is_file()), None)


def read_file(path: Path, file: DataFile) -> bytes:
    """The raw bytes of a file, checked against its sha256; InputError that names the file if it is damaged."""
    raw = _raw(path)
    found = hashlib.sha256(raw).hexdigest()
    if found != file.sha256:
        shape = "" if len(raw) == file.size else f" and {len(raw):,} bytes instead of {file.size:,}"
        raise InputError(f"{path} is not the canonical file: sha256 {found}{shape}; expected {file.sha256}; {FIX}")
    return raw


def _raw(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is truncated or corrupt ({error}); {FIX}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}; {FIX}") from None


def read_images(name: str, *, root: str | Path | None = None, checked: bool = True) -> Images:
    """The pictures of a dataset, every file checked; kept in memory, so that a second call is free.

    MissingData with one line how to get it if a file is not there. ``checked=False`` takes files of any content, for
    callers that put ``content_digest`` into the key of what they compute.
    """
    return _read_cached(name, _places(name, root), checked)


def content_digest(name: str, *, root: str | Path | None = None) -> str:
    """The sha256 over the raw bytes of all files of a dataset, in order."""
    state = hashlib.sha256()
    for place, _, _ in _places(name, root):
        state.update(_raw(Path(place)))
    return state.hexdigest()


def _places(name: str, root: str | Path | None) -> tuple[tuple[str, int, int], ...]:
    dataset, places = find_dataset(name), []
    for file in dataset.files:
        path = locate(name, file, root=root)
        if path is None:
            raise missing(name, file.name, root=root)
        places.append((str(path), path.stat().st_mtime_ns, path.stat().st_size))
    return tuple(places)


@lru_cache(maxsize=3)
def _read_cached(name: str, places: tuple[tuple[str, int, int], ...], checked: bool) -> Images:
    """Times and sizes are part of the key: a file replaced while the process lives is read and checked again."""
    files = DATASETS[name].files
    raw = [read_file(Path(place[0]), file) if checked else _raw(Path(place[0]))
           for place, file in zip(places, files, strict=True)]
    return _from_records(raw) if name == "cifar10" else _from_idx(raw)


def _from_idx(raw: list[bytes]) -> Images:
    import numpy as np

    train_pixels, train_labels, test_pixels, test_labels = (np.frombuffer(part, np.uint8) for part in raw)
    return Images(
        train_pixels[16:].reshape(-1, 1, 28, 28).copy(), train_labels[8:].copy(),
        test_pixels[16:].reshape(-1, 1, 28, 28).copy(), test_labels[8:].copy(),
    )


def _from_records(raw: list[bytes]) -> Images:
    import numpy as np

    def cut(parts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
        records = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, 3073)
        return records[:, 1:].reshape(-1, 3, 32, 32).copy(), records[:, 0].copy()

    return Images(*cut(raw[:5]), *cut(raw[5:]))
