"""Tasks from files and datasets: CSV, Parquet, torch ``Dataset`` and ``DataLoader``, Hugging Face ``datasets``."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.errors import InputError, MissingExtra, expected, unknown
from assay.tasks.brought import PARTS, BroughtTask, Kind, from_arrays, from_parts

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})


def from_csv(
    path: str | Path, *, target: str, groups: str | None = None, ignore: Sequence[str] = (), kind: Kind | None = None,
    name: str | None = None, seed: int = 0, validation: float = 0.1, test: float = 0.2, standardise: bool = True,
) -> BroughtTask:
    """A task from a CSV file with a header: ``target`` is the column to predict, ``groups`` says what belongs together.

    All other columns but those to ``ignore`` are features and must be numbers; a column of text or with missing values
    is refused by name. Commas, semicolons and tabs separate. The other arguments are those of ``from_arrays``.
    """
    columns = _read_csv(Path(path))
    return from_columns(columns, target=target, groups=groups, ignore=ignore, kind=kind, name=name or Path(path).stem,
                        seed=seed, validation=validation, test=test, standardise=standardise)


def from_parquet(path: str | Path, *, target: str, name: str | None = None, **options: Any) -> BroughtTask:
    """A task from a Parquet file; the arguments are those of ``from_csv``. Needs pyarrow, the extra ``data``."""
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        raise MissingExtra("pyarrow", "data", "reading Parquet") from None
    try:
        table = parquet.read_table(Path(path))
    except (OSError, ArrowInvalid) as error:
        raise InputError(f"cannot read {path}: {str(error).splitlines()[0]}; expected a Parquet file") from None
    columns = {column: table.column(column).to_pylist() for column in table.column_names}
    return from_columns(columns, target=target, name=name or Path(path).stem, **options)


def from_columns(
    columns: Mapping[str, Sequence[Any]], *, target: str, groups: str | None = None, ignore: Sequence[str] = (),
    name: str = "data", **options: Any,
) -> BroughtTask:
    """A task from named columns (a pandas DataFrame is one too); see ``from_csv``."""
    known = list(columns)
    for wanted in (target, *([groups] if groups else []), *ignore):
        if wanted not in known:
            raise InputError(unknown("column", wanted, known))
    left_out = {target, groups, *ignore}
    used = [column for column in known if column not in left_out]
    if not used:
        raise expected("at least one column of features", given=f"only '{target}'")
    numbers = [_numbers(column, list(columns[column])) for column in used]
    answers = list(columns[target])
    if gaps := sum(_is_missing(value) for value in answers):
        raise expected(f"a target in every row of '{target}'", given=f"{gaps} missing values", do="drop those rows")
    parsed = [_parsed(value) for value in answers]
    answers = [str(value) for value in answers] if any(isinstance(value, str) for value in parsed) else parsed
    rows = list(zip(*numbers, strict=True))
    belongs = list(columns[groups]) if groups else None
    return from_arrays(rows, answers, groups=belongs, name=name, **options)


def from_loaders(
    train: Any, validation: Any, test: Any, *, name: str = "loaders", kind: Kind | None = None,
    standardise: bool = False,
) -> BroughtTask:
    """A task from three torch ``DataLoader`` or ``Dataset`` objects that give pairs (inputs, targets).

    Everything is read into memory once, in the order it comes; the parts stay what they are at every seed.
    """
    parts = {part: _gathered(given, part) for part, given in zip(PARTS, (train, validation, test), strict=True)}
    return from_parts(name, parts, kind=kind, standardise=standardise)


def from_dataset(dataset: Any, *, name: str = "dataset", standardise: bool = False, **options: Any) -> BroughtTask:
    """A task from one torch ``Dataset`` or ``DataLoader``, split by the seed as ``from_arrays`` does."""
    x, y = _gathered(dataset, "dataset")
    return from_arrays(x, y, name=name, standardise=standardise, **options)


def from_huggingface(
    dataset: Any, *, target: str = "label", inputs: str | Sequence[str] | None = None, name: str = "huggingface",
    **options: Any,
) -> BroughtTask:
    """A task from a Hugging Face ``Dataset``, split by the seed, or a ``DatasetDict`` with train, validation and test.

    ``inputs`` names one column of vectors, or several of numbers (default: every column but the target). A
    ``DatasetDict`` without a validation part gives up a tenth of its training rows for one.
    """
    if hasattr(dataset, "column_names") and not isinstance(dataset.column_names, Mapping):
        x, y = _huggingface(dataset, inputs, target)
        return from_arrays(x, y, name=name, **options)
    if not isinstance(dataset, Mapping) or "train" not in dataset or "test" not in dataset:
        raise expected("a datasets.Dataset, or a DatasetDict with train and test",
                       given=f"a {type(dataset).__name__}")
    parts = dict(dataset)
    if "validation" not in parts:
        held = parts["train"].train_test_split(test_size=0.1, seed=0)
        parts |= {"train": held["train"], "validation": held["test"]}
    pairs = {part: _huggingface(parts[part], inputs, target) for part in PARTS}
    return from_parts(name, pairs, **options)


def _huggingface(dataset: Any, inputs: str | Sequence[str] | None, target: str) -> tuple[Any, Any]:
    known = list(dataset.column_names)
    wanted = [inputs] if isinstance(inputs, str) else list(inputs or [c for c in known if c != target])
    for column in (*wanted, target):
        if column not in known:
            raise InputError(unknown("column", column, known))
    y = list(dataset[target])
    columns = [list(dataset[column]) for column in wanted]
    if len(columns) == 1 and isinstance(columns[0][0], Sequence) and not isinstance(columns[0][0], str):
        return columns[0], y
    return list(zip(*(_numbers(column, values) for column, values in zip(wanted, columns, strict=True)),
                    strict=True)), y


def _gathered(given: Any, part: str) -> tuple[Any, Any]:
    """All inputs and targets of a loader (batches) or a dataset (items), stacked."""
    import torch

    batched = hasattr(given, "batch_sampler") or hasattr(given, "batch_size")
    items: Iterable[Any] = given if batched or not hasattr(given, "__len__") else (given[i] for i in range(len(given)))
    xs, ys = [], []
    try:
        for item in items:
            if not isinstance(item, tuple | list) or len(item) != 2:
                raise expected(f"pairs (inputs, targets) in {part}", given=f"a {type(item).__name__}",
                               do="wrap the dataset so that an item is a pair of tensors")
            xs.append(torch.as_tensor(item[0]))
            ys.append(torch.as_tensor(item[1]))
    except TypeError as error:
        raise expected(f"a torch DataLoader or Dataset of tensors as {part}",
                       given=f"a {type(given).__name__} ({error})") from None
    if not xs:
        raise expected(f"at least one item in {part}", given="none")
    join = torch.cat if batched else torch.stack
    return join(xs), join(ys)


def _read_csv(path: Path) -> dict[str, list[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            separator = max((",", ";", "\t"), key=first.count)
            rows = [row for row in csv.reader(file, delimiter=separator) if row]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; expected a CSV file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file in UTF-8: {error}") from None
    if len(rows) < 2:
        raise expected("a header and at least one row", given=f"{path} with {len(rows)} lines")
    header = [column.strip() for column in rows[0]]
    if len(set(header)) < len(header):
        raise expected("different column names in the header", given=f"{path}: {', '.join(header)}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise expected(f"{len(header)} values in every line of {path}", given=f"{len(row)} in line {number}")
    return {column: [row[i].strip() for row in rows[1:]] for i, column in enumerate(header)}


def _numbers(column: str, values: Sequence[Any]) -> list[float]:
    """A column of features as numbers; one with missing values or text is refused by name."""
    if gaps := sum(_is_missing(value) for value in values):
        raise expected(f"a number in every row of column '{column}'", given=f"{gaps} of {len(values)} are missing",
                       do=f"drop those rows, fill them in, or ignore=['{column}']")
    parsed = [_parsed(value) for value in values]
    text = next((value for value in parsed if isinstance(value, str)), None)
    if text is not None:
        raise expected(f"numbers in column '{column}'", given=f"the text '{text[:30]}'",
                       do=f"encode it as numbers (one column per value), or ignore=['{column}']")
    return [float(value) for value in parsed]


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in MISSING
    return value is None or (isinstance(value, float) and value != value)


def _parsed(value: Any) -> Any:
    """Text that is a number as that number, whole if it is written so; anything else as it is."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
