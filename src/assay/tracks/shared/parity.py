"""Two rules on one network and task: the gap in accuracy with its guard, as several claims decide it."""

from __future__ import annotations

from collections.abc import Sequence

from assay import stats
from assay.protocols import Outcomes
from assay.stats import Decision
from assay.tracks.shared import recipe
from assay.tracks.shared.records import Record, paired


class Learned(Record):
    """One training on a classification task; ``rest`` is None for rules that do not relax."""

    accuracy: float
    loss: float
    history: tuple[float, ...] = ()
    rest: recipe.Rest | None = None


def gap(
    outcomes: Outcomes, ours: str, theirs: str, *, margin: float, items: int = recipe.TEST_ITEMS,
    classes: int = recipe.CLASSES, kind: str = "parity", name: str = "accuracy gap",
) -> Decision:
    """Whether the accuracies of two arms lie within ``margin`` points (or the first not below), both above chance."""
    pairs = paired(outcomes, ours, theirs, Learned)
    a, b = pairs.of(lambda record: record.accuracy)
    guards: Sequence[Decision] = ()
    if pairs.seeds:
        guards = (stats.above_chance({ours: a, theirs: b}, items=items, chance=1 / classes, scale=100.0),)
    compare = stats.parity if kind == "parity" else stats.non_inferior
    return compare(a, b, margin=margin, items=items, scale=100.0, guards=guards, unit="pp", seeds=pairs.seeds,
                   name=name)
