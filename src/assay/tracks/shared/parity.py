"""Two rules on one network and task: the gap in accuracy with its guard, as several claims decide it."""

from __future__ import annotations

from collections.abc import Sequence

from assay import stats
from assay.protocols import Outcomes
from assay.stats import Decision
from assay.tracks.shared import recipe
from assay.tracks.shared.records import Answered, paired


class Learned(Answered):
    """One training on a classification task; ``rest`` is None for rules that do not relax.

    ``residual`` is the largest of all steps, for claims that ask it.
    """

    accuracy: float
    loss: float
    history: tuple[float, ...] = ()
    rest: recipe.Rest | None = None
    residual: float | None = None


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
    several = len(pairs.seeds) >= 2
    answers = stats.recorded_answers(outcomes.arm(ours), outcomes.arm(theirs)) if several else None
    compare = stats.parity if kind == "parity" else stats.non_inferior
    return compare(a, b, margin=margin, items=items, answers=answers, scale=100.0, guards=guards, unit="pp",
                   seeds=pairs.seeds, name=name)
