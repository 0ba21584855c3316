"""One door for every log, a file or a folder: inspect_ai (.eval, .json), lm-eval (samples_*.jsonl), CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.errors import InputError, expected
from assay.studies.evals.inspect_logs import from_inspect
from assay.studies.evals.log import EvalLog, Item, averaged, scored

IDENTITIES = ("id", "item", "item_id", "doc_id", "question_id", "sample_id", "example_id", "index")
KINDS = "a .eval or .json log of inspect_ai, samples_*.jsonl of lm-evaluation-harness, a .csv, or a folder of these"
HARNESS = {"doc_id", "doc", "metrics"}


def read_log(path: str | Path) -> EvalLog:
    """The scores in an evaluation log, or in every log of a folder; nothing of it is executed or unpickled."""
    place = Path(path)
    if not place.exists():
        raise expected(KINDS, given=f"{place}, which does not exist")
    files = [place] if place.is_file() else sorted(
        file for file in place.rglob("*") if file.suffix in (".eval", ".csv")
        or (file.suffix == ".jsonl" and file.name.startswith("samples_"))
        or (file.suffix == ".json" and not file.name.startswith("results_")))
    logs = [_read(file) for file in files]
    if not logs:
        raise expected(KINDS, given=f"{place}, where there is none")
    tasks: dict[str, Mapping[str, Item]] = {}
    unscored: dict[str, tuple[str, ...]] = {}
    for file, log in zip(files, logs, strict=True):
        for task, items in log.tasks.items():
            if task in tasks:
                raise InputError(f"{place} has two logs of the task '{task}' ({file.name} is the second); give one "
                                 "file, or a folder with one run")
            tasks[task] = items
        unscored |= log.unscored
    names = dict.fromkeys(log.name for log in logs)
    return EvalLog(names.popitem()[0] if len(names) == 1 else place.stem, tasks, unscored)


def _read(file: Path) -> EvalLog:
    if file.suffix == ".csv":
        return _from_csv(file)
    if file.suffix == ".jsonl":
        return _from_harness(file)
    if file.suffix in (".eval", ".json"):
        return from_inspect(file)
    raise expected(KINDS, given=str(file))


def _from_harness(file: Path) -> EvalLog:
    """The samples lm-eval writes under ``--log_samples``: one line per document and filter."""
    found: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(_lines(file), start=1):
        try:
            row = json.loads(line)
        except ValueError:
            raise expected("JSON on every line", given=f"{file}, line {number}") from None
        if not isinstance(row, dict) or not row.keys() >= HARNESS:
            raise expected("samples of lm-evaluation-harness (doc_id, doc, metrics)", given=f"{file}, line {number}",
                           do="write them with lm_eval --log_samples --output_path FOLDER")
        item = found.setdefault(str(row["doc_id"]), {"scores": {}, "doc": row["doc"], "hash": row.get("doc_hash", "")})
        for metric in row["metrics"]:
            value = scored(row.get(metric))
            if value is not None:
                item["scores"][_metric(metric, row.get("filter", "none"))] = value
    items = {name: Item(item["scores"], str(item["hash"]), item["doc"] if isinstance(item["doc"], Mapping) else {})
             for name, item in found.items()}
    return EvalLog(file.parent.name, {_task(file.stem): items})


def _metric(name: str, filtered: str) -> str:
    return name if filtered == "none" else f"{name},{filtered}"


def _task(stem: str) -> str:
    """``mine`` of ``samples_mine_2026-11-17T20-04-53.871933``."""
    name, _, stamp = stem.removeprefix("samples_").rpartition("_")
    return name if name and stamp[:2].isdigit() else stem.removeprefix("samples_")


def _from_csv(file: Path) -> EvalLog:
    """A table with one row per item: an identity, scores, optionally ``task``; other columns can be clusters."""
    reader = csv.DictReader(_lines(file))
    columns = list(reader.fieldnames or ())
    identity = next((name for name in columns if name.strip().lower() in IDENTITIES), None)
    if identity is None:
        raise expected(f"a column that names the item ({', '.join(IDENTITIES[:4])}, ...)",
                       given=f"{file} with {', '.join(columns) or 'nothing'}")
    found: dict[str, dict[str, list[Item]]] = {}
    for number, row in enumerate(reader, start=2):
        if None in row or any(value is None for value in row.values()):
            raise expected(f"{len(columns)} values in every row", given=f"{file}, line {number}")
        told = {name: scored(row[name]) for name in columns if name not in (identity, "task")}
        values = {name: value for name, value in told.items() if value is not None}
        task = row.get("task") or file.stem
        found.setdefault(task, {}).setdefault(row[identity], []).append(Item(values, about=dict(row)))
    if not found:
        raise expected("at least one row", given=f"{file}, which has none")
    return EvalLog(file.stem, {task: {name: averaged(rows) for name, rows in items.items()}
                               for task, items in found.items()})


def _lines(file: Path) -> Iterator[str]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise expected("a readable text file", given=f"{file}: {error}") from None
    return _filled(text.splitlines())


def _filled(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if line.strip())
