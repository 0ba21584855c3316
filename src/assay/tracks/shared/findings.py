"""The shape of a finding: a decision, its numbers, one picture that decides, and what it does not show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from assay import stats
from assay.protocols import Budget, ControlArm, Trial
from assay.results import Check, Figure, Finding, Measurement, Reference, Series, Table, Verdict
from assay.stats import Decision

CONTROL_SEEDS = 3
"""The fewest on which a claim can be rejected: fewer would be INCONCLUSIVE whatever the control does."""
SUCCESS_RATE = 0.7
"""What ten successes of ten can show (their bound is 74 %)."""
VARIED = ("initialisation", "data order", "input noise", "split")
BESIDE = 0.2
"""Between columns of dots of one arm, where the next arm is 1 away."""


def arms_and_controls(
    arms: Sequence[str], controls: Iterable[ControlArm], budget: Budget, seeds: Sequence[int]
) -> list[Trial]:
    """Arms at every seed, controls at the first three."""
    names = dict.fromkeys(arm for control in controls for arm in control.arms if arm not in arms)
    return [
        *(Trial(arm, seed, budget) for seed in seeds for arm in arms),
        *(Trial(arm, seed, budget) for seed in seeds[:CONTROL_SEEDS] for arm in names),
    ]


def concluded(
    decision: Decision, *, claim: str, subject: str, told: str, figure: Figure, tables: Sequence[Table] = (),
    numbers: Sequence[Measurement] = (), checks: Sequence[Check] = (), limits: Sequence[str] = (),
    varied: Sequence[str] = VARIED,
) -> Finding:
    """The finding of a claim: ``figure`` is the picture that decides, ``told`` what was found in one sentence."""
    return Finding(
        subject=subject, claim=claim, verdict=decision.verdict, reason=decision.reason, key_finding=told,
        score=decision.score, headline=decision.measurement.name, measurements=(decision.measurement, *numbers),
        tables=tuple(tables), figures=(figure,),
        checks=(*decision.checks, decision.check("the claim"), *checks), limitations=(*limits, *decision.notes),
        varied=tuple(varied),
    )  # fmt: skip


def unfinished(claim: str, reason: str = "no seed finished in every arm of the claim") -> Finding:
    """Nothing was measured: undecided."""
    return Finding(subject="", claim=claim, verdict=Verdict.INCONCLUSIVE, reason=reason)


def aside(name: str, holds: bool, reason: str) -> Check:
    """A line that is shown and is no part of the verdict."""
    verdict = Verdict.PASS if holds else Verdict.FAIL
    return Check(name=name, verdict=verdict, reason=reason, label="not part of the verdict")


def by_arm(
    values: Mapping[str, Sequence[float]], *, key: str, question: str, label: str, references: Sequence[Reference] = (),
    log: bool = False,
) -> Figure:
    """One column of dots per arm, a dot per seed."""
    shown = {arm: tuple(map(float, found)) for arm, found in values.items() if len(found)}
    return Figure(
        key=key, question=question, y_label=label, y_scale="log" if log else "linear",
        categories=tuple(arm.removeprefix("control: ") for arm in shown),
        series=tuple(
            Series(name=arm.removeprefix("control: "), x=(float(place),) * len(found), y=found, style="dots")
            for place, (arm, found) in enumerate(shown.items())
        ),
        references=tuple(references),
    )  # fmt: skip


def by_arm_and_kind(
    values: Mapping[str, Mapping[str, Sequence[float]]], *, key: str, question: str, label: str
) -> Figure:
    """A named place per arm; in it, side by side, a column of dots per kind of number, coloured by kind."""
    shown = {arm.removeprefix("control: "): kinds for arm, kinds in values.items() if any(map(len, kinds.values()))}
    kinds = list(dict.fromkeys(kind for found in shown.values() for kind in found))
    series = []
    for number, kind in enumerate(kinds):
        aside = BESIDE * (number - (len(kinds) - 1) / 2)
        points = [(place + aside, float(y)) for place, found in enumerate(shown.values()) for y in found.get(kind, ())]
        series.append(Series(name=kind, x=tuple(x for x, _ in points), y=tuple(y for _, y in points), style="dots"))
    return Figure(key=key, question=question, y_label=label, categories=tuple(shown), series=tuple(series))


def summaries(values: Mapping[str, Sequence[float]], unit: str, *, name: str = "accuracy") -> list[Measurement]:
    """The mean of each arm with its interval; one value per seed."""
    return [stats.summarise(f"{name}, {arm}", list(found), unit=unit, of="seeds")
            for arm, found in values.items() if len(found)]  # fmt: skip


def seed_table(title: str, seeds: Sequence[int], columns: Mapping[str, Sequence[Any]], note: str = "") -> Table:
    """One row per seed and, where all are numbers, the mean."""
    rows: list[tuple[Any, ...]] = [
        (str(seed), *(column[i] for column in columns.values())) for i, seed in enumerate(seeds)
    ]
    numeric = all(isinstance(value, int | float) for column in columns.values() for value in column)
    if seeds and numeric:
        rows.append(("mean", *(fmean(column) for column in columns.values())))
    return Table(title=title, columns=("Seed", *columns), rows=tuple(rows), note=note)
