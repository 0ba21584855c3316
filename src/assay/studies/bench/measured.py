"""What was measured on one task, put where the decisions look for it, and the margin in units of its metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from assay.errors import expected
from assay.protocols import ACCURACY, Budget, Metric, Outcome, Outcomes, Trial
from assay.results import Failure
from assay.studies.bench.cells import FLOORS

Claim = Literal["parity", "non-inferior", "better"]
Records = Mapping[int, Mapping[str, Any]]


@dataclass
class Measured:
    """Everything measured on one task: records by what and seed, the floors, and what failed."""

    task: str
    budget: Budget
    margin: float
    seeds: tuple[int, ...]
    records: dict[str, dict[int, Mapping[str, Any]]] = field(default_factory=dict)
    floors: Mapping[str, Any] | None = None
    failures: dict[str, list[Failure]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    metric: Metric = ACCURACY
    claim: Claim = "parity"
    outcomes: Outcomes = field(default_factory=lambda: Outcomes(()))
    settings_from: Path | None = None
    """The folder of the settings, where it is not the package's own."""

    @staticmethod
    def of_outcomes(
        outcomes: Outcomes, *, task: str, budget: Budget, margin: float | str, seeds: tuple[int, ...],
        metric: Metric = ACCURACY, claim: Claim = "parity", settings_from: Path | None = None,
    ) -> Measured:
        """The outcomes of a task's trials, put where the decision looks for them.

        A margin in per cent ("5%") is relative to the floor everybody must beat: the error of the mean predictor, or
        what chance leaves to gain.
        """
        found = Measured(task, budget, math.nan, seeds, metric=metric, claim=claim, outcomes=outcomes,
                         settings_from=settings_from)
        for outcome in outcomes:
            what = outcome.trial.arm
            found.seconds[what] = found.seconds.get(what, 0.0) + outcome.seconds
            if outcome.failure is not None:
                found.failures.setdefault(what, []).append(outcome.failure)
            elif outcome.record is not None and what == FLOORS:
                found.floors = outcome.record
            elif outcome.record is not None:
                found.records.setdefault(what, {})[outcome.trial.seed] = outcome.record
        found.margin = in_units(margin, found)
        return found

    def outcomes_of(self, *arms: str) -> Outcomes:
        """What became of the trials of some arms; records that came without outcomes are outcomes all the same."""
        if self.outcomes.all:
            return Outcomes(tuple(outcome for outcome in self.outcomes if outcome.trial.arm in arms))
        return Outcomes(tuple(
            Outcome(Trial(arm, seed, self.budget), record) for arm in arms for seed, record in self.of(arm).items()
        ))

    def told(self, values: Sequence[float]) -> list[float]:
        """Scores as they are told: accuracies in per cent, errors as they are."""
        return [self.metric.factor * value for value in values]

    def scores(self, what: str) -> list[float]:
        """The scores of an arm in order of seed, as they are told."""
        return self.told([float(record[self.metric.key]) for _, record in sorted(self.of(what).items())])

    @property
    def bound(self) -> str:
        """The margin with its unit."""
        return f"{self.margin:.4g} {self.metric.gap_unit}"

    def of(self, what: str) -> Records:
        """Records of an arm or a control by seed."""
        return self.records.get(what, {})


def in_units(margin: float | str, evidence: Measured) -> float:
    """A margin in units of the gap; text such as "5%" is a share of the floor that everybody must beat."""
    if not isinstance(margin, str):
        return float(margin)
    floors = evidence.floors or {}
    if evidence.metric.key == "accuracy":
        return share_of(margin) * 100.0
    return share_of(margin) * float(floors.get("mean", math.nan))


def share_of(margin: str) -> float:
    """The share that a relative margin names.

    >>> share_of("5%")
    0.05
    """
    try:
        share = float(margin.strip().removesuffix("%")) / 100
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise expected("a margin as a number, or as a share such as '5%'", given=f"margin={margin!r}")
    return share
