"""The concrete task: three splits, a name, a fingerprint, and the floors that any result on it must beat."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from assay.errors import AssayError, expected
from assay.protocols import ACCURACY, ERROR, Metric, Split
from assay.seeding import torch_generator

if TYPE_CHECKING:
    from torch import Tensor

    from assay.tasks.floors import Floors, RegressionFloors


@dataclass(frozen=True)
class ArrayTask:
    """Data in memory, split into train, validation and test.

    ``x`` is float (or integer tokens for sequences), ``y`` int64. ``data_hash`` covers the data and the split, so two
    results are comparable only where it agrees. Settings are chosen on ``validation``; ``for_tuning()`` takes ``test``
    out of reach.

    >>> from assay.tasks import digits
    >>> task = digits(seed=0)
    >>> len(task.train), len(task.validation), len(task.test), task.classes
    (1257, 180, 360, 10)
    """

    name: str
    classes: int
    train: Split
    validation: Split
    test: Split
    data_hash: str
    seed: int = 0
    note: str = ""
    target_scale: float = 1.0
    """What one unit of a regression target stands for: errors are reported times this."""

    def __post_init__(self) -> None:
        for part in ("train", "validation", "test"):
            split = getattr(self, part)
            if len(split.x) != len(split.y) or len(split) == 0:
                raise expected(f"as many inputs as targets in {part}, and at least one",
                               given=f"{len(split.x)} inputs and {len(split.y)} targets in task '{self.name}'")

    def floors(self) -> Floors | RegressionFloors:
        """What little learning reaches on the test part, in the task's metric; computed on the first call.

        Chance, the majority class and logistic regression, or the mean, ridge regression and the nearest neighbours.
        """
        return self._floors

    @cached_property
    def _floors(self) -> Floors | RegressionFloors:
        from assay.tasks.floors import measure_floors

        return measure_floors(self)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.train.x.shape[1:])

    @property
    def inputs(self) -> int:
        """Numbers in one input: the width of a first linear layer."""
        return math.prod(self.input_shape)

    @property
    def outputs(self) -> int:
        """Numbers a model must give per row: one per class, or one per column of a regression target."""
        return self.classes or int(self.train.y.shape[-1])

    @property
    def metric(self) -> Metric:
        """How answers are scored: accuracy, or the root mean squared error in units of the target."""
        return ACCURACY if self.classes else ERROR

    def redrawn(self, seed: int) -> ArrayTask:
        """The same task under another seed; this one knows no other data."""
        return replace(self, seed=seed)

    def subset(self, *, train: int | None = None, validation: int | None = None) -> Self:
        """The same task with fewer training and validation items (seeded choice); the test set stays whole."""
        kept = _choose(self.train, train, seed=self.seed, name="train")
        held = _choose(self.validation, validation, seed=self.seed, name="validation")
        fingerprint = digest(self.data_hash, "subset", f"{len(kept)}/{len(held)}")
        return replace(self, train=kept, validation=held, data_hash=fingerprint)

    def for_tuning(self) -> TuningView:
        """This task without its test set: what a search over settings is allowed to see."""
        return TuningView(self.name, self.classes, self.train, self.validation, self.data_hash, self.seed,
                          self.metric, self.inputs, self.outputs, self.target_scale)


@dataclass(frozen=True)
class TuningView:
    """A task whose test set does not exist: no reference to it is kept, and asking for it is an error.

    >>> from assay.tasks import digits
    >>> digits(seed=0).for_tuning().test
    Traceback (most recent call last):
    assay.errors.AssayError: task 'digits' was opened for tuning: its test set is out of reach; use validation
    """

    name: str
    classes: int
    train: Split
    validation: Split
    data_hash: str
    seed: int = 0
    metric: Metric = ACCURACY
    inputs: int = 0
    outputs: int = 0
    target_scale: float = 1.0

    @property
    def test(self) -> Split:
        raise AssayError(f"task '{self.name}' was opened for tuning: its test set is out of reach; use validation")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.train.x.shape[1:])


def digest(*parts: str | Tensor) -> str:
    """A sha256 over texts and tensors (their shape, dtype and bytes), in order."""
    state = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            state.update(b"text:" + part.encode() + b"\0")
        else:
            state.update(f"tensor:{part.dtype}:{tuple(part.shape)}:".encode())
            state.update(part.detach().cpu().contiguous().numpy().tobytes())
    return state.hexdigest()


def split_digest(name: str, *splits: Split) -> str:
    """The fingerprint of generated data: a digest of every tensor of every split."""
    return digest(name, *(tensor for split in splits for tensor in (split.x, split.y)))


def from_splits(name: str, classes: int, splits: Sequence[Split], *, seed: int, note: str = "") -> ArrayTask:
    """A task made of (train, validation, test), with their digest as its fingerprint."""
    train, validation, test = splits
    return ArrayTask(name, classes, train, validation, test, split_digest(name, *splits), seed, note)


def check_count(name: str, value: int, *, low: int, high: int | None = None) -> int:
    """``value`` if it is an integer in the range; an InputError that names it otherwise."""
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= low and (high is None or value <= high)
    if not fits:
        limits = f">= {low}" if high is None else f"from {low} to {high}"
        raise expected(f"{name} to be an integer {limits}", given=repr(value))
    return value


def _choose(split: Split, count: int | None, *, seed: int, name: str) -> Split:
    if count is None:
        return split
    check_count(f"the number of {name} items", count, low=1, high=len(split))
    import torch

    chosen = torch.randperm(len(split), generator=torch_generator(seed, "subset", name))[:count]
    return Split(split.x[chosen], split.y[chosen])
