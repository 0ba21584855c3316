"""Whether the reading chosen on some published figures foretells the others: what choosing among many cannot fake.

Among hundreds of readings some lies close to almost any table, so closeness says little. A figure that was held out
while the reading was chosen is another matter: if the source used anything like that reading, its figure comes nearer
too; if closeness was luck, it does not. Made-up tables, whose figures have nothing to do with each other, tell how
often luck alone does as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.seeding import numpy_generator
from assay.studies.reproduce.published import PublishedNumber
from assay.studies.reproduce.readings import Reading, from_levels
from assay.studies.reproduce.search_effects import CHECKED, ReadingTable, Record, figure_table, greedy, made_up_tables

TABLES = 1000


@dataclass(frozen=True)
class HeldOut:
    """One held-out figure: published, ours, and as foretold by the reading that the other figures chose."""

    figure: PublishedNumber
    published: float
    ours: float
    foretold: float
    reading: Reading


@dataclass(frozen=True)
class Foretelling:
    """The held-out figures, what share of our distance from the source is left, and how often luck leaves as little."""

    figures: tuple[HeldOut, ...]
    left: float
    by_chance: float


def one_by_one(records: Sequence[Record], ours: Mapping[PublishedNumber, float]) -> Foretelling | None:
    """Each figure foretold by the reading that all the others choose."""
    return _foretell(records, ours, lambda figures: [[other is not one for other in figures] for one in figures])


def by_accuracy(records: Sequence[Record], ours: Mapping[PublishedNumber, float]) -> Foretelling | None:
    """Sizes, growth and cosines foretold by the reading that the accuracies choose."""
    return _foretell(records, ours, lambda figures: [[f.quantity == "accuracy" for f in figures]])


def _foretell(
    records: Sequence[Record], ours: Mapping[PublishedNumber, float],
    choose: Callable[[Sequence[PublishedNumber]], list[list[bool]]],
) -> Foretelling | None:
    table, targets = figure_table(records, ours, CHECKED)
    masks = [np.array(mask, bool) for mask in choose(table.figures)]
    if not masks or not all(0 < mask.sum() < len(mask) for mask in masks):
        return None
    figures = []
    for mask in masks:
        levels = _chosen(table, targets, mask)
        foretold = table.start + table.slopes @ np.array(levels, float)
        figures += [HeldOut(table.figures[int(i)], float(targets[i]), float(table.start[i]), float(foretold[i]),
                            from_levels(levels)) for i in np.flatnonzero(~mask)]
    left = _left(table, targets, masks)
    luck = [_left(table, made, masks) for made in made_up_tables(records, table, TABLES,
                                                                 numpy_generator(0, "held-out tables"))]
    return Foretelling(tuple(figures), left, float(np.mean([other <= left for other in luck])))


def _left(table: ReadingTable, targets: Any, masks: list[Any]) -> float:
    """Root mean square of the held-out gaps, as a share of what it is for our reading."""
    before, after = [], []
    for mask in masks:
        foretold = table.start + table.slopes @ np.array(_chosen(table, targets, mask), float)
        before += list(((table.start - targets) / table.scale)[~mask])
        after += list(((foretold - targets) / table.scale)[~mask])
    ours = float(np.sqrt(np.mean(np.square(before))))
    return float(np.sqrt(np.mean(np.square(after)))) / ours if ours > 0 else 1.0


def _chosen(table: ReadingTable, targets: Any, mask: Any) -> list[bool]:
    return greedy(table.start[mask], table.slopes[mask], table.scale[mask], targets[mask])[-1][0]
