"""What every evaluation log comes down to: scores by task, metric and item."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.errors import expected

WORDS = {"c": 1.0, "i": 0.0, "p": 0.5, "n": 0.0, "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0,
         "correct": 1.0, "incorrect": 0.0}
"""Scores as texts; the letters are inspect_ai's: correct, incorrect, partial, no answer."""


@dataclass(frozen=True)
class Item:
    """One test item as a log has it: its scores by metric, what it is (a digest, if told), and what it belongs to."""

    scores: Mapping[str, float]
    digest: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)
    repeats: int = 1


@dataclass(frozen=True)
class EvalLog:
    """A system's answers: items by task, in the order of the log; ``unscored`` are those that crashed, by task."""

    name: str
    tasks: Mapping[str, Mapping[str, Item]]
    unscored: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def scored(value: Any) -> float | None:
    """A score as a number; None for what is none.

    >>> scored("C"), scored(True), scored("0.5"), scored([1])
    (1.0, 1.0, 0.5, None)
    """
    if isinstance(value, bool | int | float):
        number = float(value)
        return number if math.isfinite(number) else None
    if isinstance(value, str):
        text = value.strip().lower()
        if text in WORDS:
            return WORDS[text]
        try:
            return scored(float(text))
        except ValueError:
            return None
    return None


def averaged(repeats: list[Item]) -> Item:
    """The item whose scores are the means over its repeats (epochs of one question are not new questions)."""
    names = set.intersection(*(set(each.scores) for each in repeats))
    means = {name: math.fsum(each.scores[name] for each in repeats) / len(repeats)
             for name in repeats[0].scores if name in names}
    return Item(means, repeats[0].digest, repeats[0].about, len(repeats))


def label_of(item: Item, path: str) -> Any:
    """What ``path`` (a column, or ``passage.id`` for nested ones) says of an item; InputError with what there is."""
    found: Any = item.about
    for step in path.split("."):
        if not isinstance(found, Mapping) or step not in found:
            there = ", ".join(map(str, item.about)) or "none"
            raise expected("a field of the items to cluster by", given=f"'{path}'", do=f"there are: {there}")
        found = found[step]
    return found if isinstance(found, str | int | float | bool) else repr(found)
