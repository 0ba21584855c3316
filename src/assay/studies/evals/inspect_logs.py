"""Logs of inspect_ai: ``.json``, or the zip archive ``.eval`` whose members may be compressed by Zstandard.

Python reads Zstandard from 3.14 on; before, the package zstandard does, which inspect_ai itself brings.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.errors import MissingExtra, expected
from assay.studies.evals.log import EvalLog, Item, averaged, scored

ZSTANDARD = 93
LOCAL_HEADER = 30


def from_inspect(file: Path) -> EvalLog:
    """The scores of a log; a sample that crashed has none and is listed as such. Epochs of a sample are averaged."""
    header, samples = _archive(file) if file.suffix == ".eval" else _document(file)
    about = header.get("eval")
    if not isinstance(about, Mapping) or "task" not in about:
        raise expected("a log of inspect_ai", given=f"{file}, without eval.task")
    found: dict[str, list[Item]] = {}
    crashed: list[str] = []
    for sample in samples:
        scores = dict(_scores(sample.get("scores") or {}))
        name = str(sample.get("id"))
        if not scores:
            crashed.append(name)
            continue
        found.setdefault(name, []).append(Item(scores, about=dict(sample.get("metadata") or {})))
    task = str(about["task"])
    items = {name: averaged(repeats) for name, repeats in found.items() if name not in crashed}
    return EvalLog(str(about.get("model", file.stem)), {task: items}, {task: tuple(dict.fromkeys(crashed))})


def _scores(scores: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for scorer, score in scores.items():
        value = score.get("value") if isinstance(score, Mapping) else score
        for name, part in value.items() if isinstance(value, Mapping) else (("", value),):
            number = scored(part)
            if number is not None:
                yield (f"{scorer}/{name}" if name else scorer), number


def _document(file: Path) -> tuple[Mapping[str, Any], Iterable[Mapping[str, Any]]]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise expected("a log of inspect_ai in JSON", given=f"{file}: {type(error).__name__}") from None
    if not isinstance(content, dict) or not isinstance(content.get("samples"), list):
        raise expected("a log of inspect_ai with samples", given=str(file))
    return content, content["samples"]


def _archive(file: Path) -> tuple[Mapping[str, Any], Iterable[Mapping[str, Any]]]:
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
    except (OSError, zipfile.BadZipFile) as error:
        raise expected("a whole .eval archive of inspect_ai", given=f"{file}: {error}") from None
    header = next((entry for entry in entries if entry.filename == "header.json"), None)
    if header is None:
        raise expected("a finished log of inspect_ai", given=f"{file}, without header.json", do="finish the evaluation")
    samples = [entry for entry in entries if entry.filename.startswith("samples/")]
    return _member(file, header), (_member(file, entry) for entry in samples)


def _member(file: Path, entry: zipfile.ZipInfo) -> Any:
    """One JSON member, found by its header: zipfile before Python 3.14 refuses Zstandard."""
    with file.open("rb") as stream:
        stream.seek(entry.header_offset)
        start = stream.read(LOCAL_HEADER)
        name, extra = struct.unpack("<HH", start[26:30])
        stream.seek(entry.header_offset + LOCAL_HEADER + name + extra)
        data = stream.read(entry.compress_size)
    try:
        if entry.compress_type == ZSTANDARD:
            data = _unpacked(data)
        elif entry.compress_type == zipfile.ZIP_DEFLATED:
            data = zlib.decompress(data, -zlib.MAX_WBITS)
        return json.loads(data)
    except MissingExtra:
        raise
    except Exception as error:
        raise expected("a whole .eval archive of inspect_ai", given=f"{file}, {entry.filename}: {error}") from None


def _unpacked(data: bytes) -> bytes:
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]

        return bytes(zstd.decompress(data))
    except ImportError:
        pass
    try:
        import zstandard
    except ImportError:
        raise MissingExtra("zstandard", "evals", "reading .eval archives") from None
    # An archive member may be several frames, one after the other.
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        return bytes(reader.read())
