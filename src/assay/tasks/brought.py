"""Tasks of your own: arrays and tensors, with the split drawn by a seed, stratified, in groups, or given.

Features are standardised and a regression target is scaled by what the training part alone shows. The same rows are
split anew for every seed of an experiment (``redrawn``); parts that were given stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from assay.errors import expected
from assay.protocols import Split
from assay.seeding import derive
from assay.tasks.base import ArrayTask, digest

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

Kind = Literal["classification", "regression"]
PARTS = ("train", "validation", "test")
MANY_CLASSES = 50
"""More different whole numbers than this are as likely amounts as classes: then somebody has to say."""


@dataclass(frozen=True, eq=False)
class BroughtRows:
    """Every row of a dataset before it is split: features, targets (class indices or floats), groups."""

    x: Tensor
    y: Tensor
    groups: tuple[Any, ...] | None
    labels: tuple[Any, ...]
    """What class index i was called; empty for regression."""
    hash: str

    @property
    def kind(self) -> Kind:
        return "classification" if self.labels else "regression"


@dataclass(frozen=True)
class BroughtTask(ArrayTask):
    """A task made from a user's rows; ``redrawn(seed)`` splits them again unless the parts were given."""

    rows: BroughtRows | None = None
    shares: tuple[float, float] = (0.1, 0.2)
    standardised: bool = True
    labels: tuple[Any, ...] = ()

    def redrawn(self, seed: int) -> ArrayTask:
        """The same data under another seed: split again, or the very same parts if they were given."""
        if self.rows is None:
            return replace(self, seed=seed)
        return split_rows(self.name, self.rows, seed=seed, shares=self.shares, standardise=self.standardised,
                          note=self.note)


def from_arrays(
    x: Any, y: Any, *, name: str = "data", kind: Kind | None = None, groups: Any = None, seed: int = 0,
    validation: float = 0.1, test: float = 0.2, standardise: bool = True,
) -> BroughtTask:
    """A task from inputs (rows, ...) and targets (rows), as NumPy arrays, tensors, lists or pandas objects.

    Text, booleans and up to 50 different whole numbers are classes, anything else is a regression target; ``kind``
    says otherwise. The seed draws ``validation`` and ``test`` shares, stratified by class; rows of one of the
    ``groups`` stay in one part. ``standardise`` scales the features by the mean and deviation of the training part.

    >>> task = from_arrays([[float(i), i % 3] for i in range(30)], [i % 2 for i in range(30)])
    >>> len(task.train), len(task.validation), len(task.test), task.classes, task.inputs
    (21, 3, 6, 2, 2)
    """
    inputs = features(x)
    targets, labels = target(y, kind=kind)
    if len(inputs) != len(targets):
        raise expected("as many rows of inputs as of targets", given=f"{len(inputs)} and {len(targets)}")
    kept = None if groups is None else tuple(_listed(groups))
    if kept is not None and len(kept) != len(targets):
        raise expected("one group for every row", given=f"{len(kept)} groups and {len(targets)} rows")
    inputs, note = without_constants(inputs)
    rows = BroughtRows(inputs, targets, kept, labels, digest("rows", inputs, targets, repr(kept)))
    return split_rows(name, rows, seed=seed, shares=(validation, test), standardise=standardise, note=note)


def from_parts(
    name: str, parts: Mapping[str, tuple[Any, Any]], *, kind: Kind | None = None, standardise: bool = True
) -> BroughtTask:
    """A task whose train, validation and test parts are given as pairs (inputs, targets)."""
    import torch

    if missing := [part for part in PARTS if part not in parts]:
        raise expected("the parts train, validation and test", given=f"no {' and no '.join(missing)} part")
    inputs = {part: features(parts[part][0]) for part in PARTS}
    sizes = [len(inputs[part]) for part in PARTS]
    whole, labels = target(_joined([parts[part][1] for part in PARTS]), kind=kind)
    if sum(sizes) != len(whole):
        raise expected("as many inputs as targets", given=f"{sum(sizes)} and {len(whole)}")
    hashed = digest("parts", name, *(inputs[part] for part in PARTS), whole)
    splits = [Split(inputs[part], y) for part, y in zip(PARTS, torch.split(whole, sizes), strict=True)]
    return _task(name, splits, labels, data_hash=hashed, seed=0, standardise=standardise, rows=None, shares=(0.0, 0.0),
                 note="the parts were given: seeds vary initialisation and order, not the split")


def split_rows(
    name: str, rows: BroughtRows, *, seed: int, shares: tuple[float, float], standardise: bool, note: str = ""
) -> BroughtTask:
    """The rows split by a seed: whole groups if there are any, else by class, else at random."""
    import torch

    sizes = _sizes(len(rows.y), shares)
    order = _by_groups(rows, sizes, seed) if rows.groups is not None else _by_class(rows, sizes, seed)
    splits = [Split(rows.x[index], rows.y[index]) for index in map(torch.as_tensor, order)]
    if rows.labels:
        unseen = set(range(len(rows.labels))) - set(splits[0].y.tolist())
        if unseen:
            names = ", ".join(repr(rows.labels[index]) for index in sorted(unseen)[:3])
            raise expected("every class in the training part", given=f"seed {seed} leaves out {names}",
                           do="give more rows or groups, or smaller validation and test shares")
    hashed = digest(rows.hash, f"seed={seed} shares={shares} standardise={standardise}")
    return _task(name, splits, rows.labels, data_hash=hashed, seed=seed, standardise=standardise, rows=rows,
                 shares=shares, note=note)


def _task(
    name: str, splits: Sequence[Split], labels: tuple[Any, ...], *, data_hash: str, seed: int, standardise: bool,
    rows: BroughtRows | None, shares: tuple[float, float], note: str,
) -> BroughtTask:
    train = splits[0]
    scale = 1.0
    if standardise and train.x.is_floating_point():
        mean, spread = train.x.mean(0), train.x.std(0, correction=0)
        spread[spread == 0] = 1.0  # constant in training: centred, and left as it is elsewhere
        splits = [Split((part.x - mean) / spread, part.y) for part in splits]
    if not labels:
        centre, spread = train.y.mean(0), train.y.std(0, correction=0)
        if bool((spread == 0).any()):
            raise expected("a target that varies", given=f"'{name}', whose training targets are all equal")
        splits = [Split(part.x, (part.y - centre) / spread) for part in splits]
        scale = float(spread[0]) if train.y.shape[1] == 1 else 1.0
    train, validation, test = splits
    return BroughtTask(
        name, len(labels), train, validation, test, data_hash=data_hash, seed=seed, note=note, target_scale=scale,
        rows=rows, shares=shares, standardised=standardise, labels=labels,
    )


def features(x: Any) -> Tensor:
    """Inputs as a float32 tensor (rows, ...), whole numbers of two or more axes as tokens stay as they are."""
    import torch

    array = _array(x, "inputs")
    if array.dtype.kind not in "fiub":
        raise expected("numbers as inputs", given="text or mixed columns",
                       do="encode text as numbers first (one column per value)")
    if array.ndim < 2:
        raise expected("inputs of shape (rows, features ...)", given=f"shape {array.shape}", do="reshape to (rows, 1)")
    if array.dtype.kind == "f":
        bad = int((~_finite(array)).sum())
        if bad:
            raise expected("inputs without missing or infinite values", given=f"{bad} of them",
                           do="drop those rows or fill them in")
    return torch.tensor(array, dtype=torch.float32)


def target(y: Any, *, kind: Kind | None = None) -> tuple[Tensor, tuple[Any, ...]]:
    """Class indices and labels, or float targets (rows, columns) and no labels."""
    import numpy as np
    import torch

    array = _array(y, "targets")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if kind not in (None, "classification", "regression"):
        raise expected("kind 'classification' or 'regression'", given=f"kind={kind!r}")
    if array.dtype.kind == "f" and not _finite(array).all():
        raise expected("targets without missing or infinite values", given=f"{int((~_finite(array)).sum())} of them",
                       do="drop those rows")
    if array.dtype.kind == "O" and any(value is None or value == "" for value in array.ravel()):
        raise expected("targets without missing values", given="some are empty", do="drop those rows")
    if (kind or _guessed(array)) == "regression":
        if array.dtype.kind not in "fiub":
            raise expected("numbers as a regression target", given="text")
        return torch.tensor(array.reshape(len(array), -1), dtype=torch.float32), ()
    if array.ndim != 1:
        raise expected("one class per row", given=f"targets of shape {array.shape}", do="say kind='regression'")
    labels, index = np.unique(array.astype(str) if array.dtype.kind == "O" else array, return_inverse=True)
    if len(labels) < 2:
        raise expected("at least two classes", given=f"one ({labels[0] if len(labels) else 'no row'})")
    if len(array) < 3 * len(labels):
        raise expected("at least three rows per class", given=f"{len(array)} rows and {len(labels)} classes",
                       do="say kind='regression' if the target is an amount")
    return torch.tensor(index, dtype=torch.int64), tuple(labels.tolist())


def without_constants(x: Tensor) -> tuple[Tensor, str]:
    """The features that vary, and a note about those that do not; pictures are left whole."""
    if x.ndim != 2:
        return x, ""
    varies = (x != x[:1]).any(0)
    if not bool(varies.any()):
        raise expected("at least one feature that varies", given="all columns are constant")
    dropped = (~varies).nonzero().flatten().tolist()
    note = f"constant columns left out: {', '.join(map(str, dropped))}" if dropped else ""
    return x[:, varies], note


def _guessed(array: np.ndarray) -> Kind:
    import numpy as np

    if array.ndim > 1:
        return "regression"
    if array.dtype.kind in "OUSb":
        return "classification"
    distinct = np.unique(array)
    whole = bool((distinct == np.round(distinct)).all())
    if array.dtype.kind == "f":
        return "classification" if whole and len(distinct) <= 20 else "regression"
    if len(distinct) > MANY_CLASSES:
        raise expected("kind='classification' or kind='regression'",
                       given=f"{len(distinct)} different whole numbers as targets", do="say which they are")
    return "classification"


def _by_class(rows: BroughtRows, sizes: tuple[int, int, int], seed: int) -> list[Any]:
    from sklearn.model_selection import train_test_split

    state = derive(seed, "brought", "split") % 2**32
    everything = list(range(len(rows.y)))
    classes = rows.y if rows.labels else None
    rarest = None if classes is None else int(classes.bincount().min())
    # A class of two rows cannot be in all three parts; then the split is random, and a class may be missing from one.
    by = classes if rarest is not None and rarest >= 3 and min(sizes[1:]) >= len(rows.labels) else None
    rest, test = train_test_split(everything, test_size=sizes[2], stratify=by, random_state=state)
    try:
        train, validation = train_test_split(
            rest, test_size=sizes[1], stratify=None if by is None else by[rest], random_state=state)
    except ValueError:  # too few of a class are left to divide again
        train, validation = train_test_split(rest, test_size=sizes[1], random_state=state)
    return [train, validation, test]


def _by_groups(rows: BroughtRows, sizes: tuple[int, int, int], seed: int) -> list[Any]:
    """Whole groups in random order: into test until it is full, then validation, the rest is for training."""
    from assay.seeding import numpy_generator

    assert rows.groups is not None
    members: dict[Any, list[int]] = {}
    for index, group in enumerate(rows.groups):
        members.setdefault(group, []).append(index)
    if len(members) < 3:
        raise expected("at least three groups, one for each part", given=f"{len(members)}")
    names = list(members)
    order = [names[i] for i in numpy_generator(seed, "brought", "groups").permutation(len(names))]
    parts: list[list[int]] = [[], [], []]
    for position, group in enumerate(order):
        left = len(order) - position
        place = next((p for p in (2, 1) if len(parts[p]) < sizes[p] and (left > p or not parts[p])), 0)
        parts[place] += members[group]
    return parts


def _sizes(rows: int, shares: tuple[float, float]) -> tuple[int, int, int]:
    for share, part in zip(shares, PARTS[1:], strict=True):
        if not 0 < share < 1:
            raise expected(f"a {part} share between 0 and 1", given=f"{part}={share!r}")
    validation, test = (max(1, round(rows * share)) for share in shares)
    if rows - validation - test < 2:
        raise expected("rows for training beside validation and test", given=f"{rows} rows, shares {shares}")
    return rows - validation - test, validation, test


def _array(values: Any, what: str) -> np.ndarray:
    """Anything with rows as an array: tensors, arrays, pandas objects, lists."""
    import numpy as np

    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    elif hasattr(values, "to_numpy"):
        values = values.to_numpy()
    try:
        array = np.asarray(values)
    except ValueError:
        raise expected(f"{what} whose rows have one shape", given=f"a {type(values).__name__} of uneven rows") from None
    if array.ndim == 0 or len(array) == 0:
        raise expected(f"{what} with at least one row", given=f"shape {array.shape}")
    return array


def _finite(array: np.ndarray) -> np.ndarray:
    import numpy as np

    found: np.ndarray = np.isfinite(array)
    return found


def _listed(values: Any) -> list[Any]:
    return list(_array(values, "groups").tolist())


def _joined(parts: Sequence[Any]) -> np.ndarray:
    import numpy as np

    return np.concatenate([_array(part, "targets") for part in parts])
