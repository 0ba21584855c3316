"""Typed records: what one trial measured, frozen, stored as JSON by the engine and read back by the decision."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from assay.frozen import Frozen
from assay.protocols import Outcomes


class Record(Frozen):
    """Base of the records of a claim; unknown and missing fields are refused when it is read."""


class Answered(Record, ABC):
    """Which test items a training got right (``assay.learning.answers.answered``), so that items are a sample too."""

    correct: str | None = None
    items: int | None = None
    test_set: str | None = None
    test_items: str | None = None


R = TypeVar("R", bound=Record)


def recorded(outcomes: Outcomes, arm: str, kind: type[R]) -> dict[int, R]:
    """The records of an arm by seed, in order of seed."""
    return {seed: kind.model_validate(found) for seed, found in sorted(outcomes.arm(arm).items())}


def values_by_arm(
    outcomes: Outcomes, arms: Iterable[str], kind: type[R], value: Callable[[R], float]
) -> dict[str, list[float]]:
    """One number of every record, by arm and in order of seed; what a picture of all arms shows."""
    return {arm: [value(record) for record in recorded(outcomes, arm, kind).values()] for arm in arms}


@dataclass(frozen=True)
class Pairs(Generic[R]):
    """Two arms at the seeds both finished."""

    seeds: tuple[int, ...]
    first: tuple[R, ...]
    second: tuple[R, ...]

    def of(self, value: Callable[[R], float]) -> tuple[list[float], list[float]]:
        """One number of each arm, seed by seed."""
        return [value(record) for record in self.first], [value(record) for record in self.second]


def paired(outcomes: Outcomes, first: str, second: str, kind: type[R]) -> Pairs[R]:
    """The records of two arms at the seeds that both finished."""
    a, b = recorded(outcomes, first, kind), recorded(outcomes, second, kind)
    seeds = tuple(seed for seed in a if seed in b)  # in one order for both: the numbers are compared place by place
    return Pairs(seeds, tuple(a[seed] for seed in seeds), tuple(b[seed] for seed in seeds))
