"""The numbers a benchmark keeps of an arm beside its gap: score, time, memory, and credit layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any

from assay import stats
from assay.results import Measurement
from assay.studies.arms import Arm

if TYPE_CHECKING:
    from assay.studies.bench.decide import Evidence

FLOOR_NAMES = ("chance", "majority", "logistic", "mean", "ridge", "neighbour")
CREDIT = "cosine with the gradient at weight"
"""How the credit of one weight is called; its number, from 1 at the input, and the arm follow."""

Records = Mapping[int, Mapping[str, Any]]


def measured(evidence: Evidence, arm: Arm) -> tuple[Measurement, ...]:
    """The numbers of an arm and of its baseline, over the seeds each finished."""
    found: list[Measurement] = []
    for owner in dict.fromkeys((arm, arm.baseline)):
        records = evidence.of(owner.name)
        seeds = tuple(sorted(records))
        for key, name, unit, factor in (
            (evidence.metric.key, evidence.metric.name, evidence.metric.unit, evidence.metric.factor),
            ("return_mean", "return", "reward", 1.0),
            ("seconds", "training time", "s", 1.0), ("gradient_agreement", "cosine with the true gradient", "1", 1.0),
            ("residual", "largest residual of the last epoch", "1", 1.0),
            ("reached", "share of the weights given an update", "%", 100.0),
            ("peak_bytes", "peak memory of a step", "kB", 1e-3),
        ):
            values = tuple(factor * float(records[s][key]) for s in seeds if records[s].get(key) is not None)
            if not values or len(values) != len(seeds):
                continue
            found.append(Measurement(
                name=f"{name}, {owner.name}", value=sum(values) / len(values), unit=unit, n=len(values),
                interval=stats.mean_interval(values), values=values, seeds=seeds, note="seeds",
            ))
        found += _credit(records, seeds, owner)
    for key, name in (("seconds", "wall-clock time ratio"), ("cpu_seconds", "processor time ratio")):
        if (ratio := time_ratio(evidence, arm, key)) is not None:
            found.append(Measurement(name=name, value=ratio, unit="x", source="derived",
                                     note=f"training, {arm.name} over {arm.baseline.name}, summed over paired seeds"))
    for key, value in (evidence.floors or {}).items():
        if key in FLOOR_NAMES:
            found.append(Measurement(name=f"floor: {key}", value=evidence.metric.factor * value,
                                     unit=evidence.metric.unit, note=f"test {evidence.metric.name}"))
    return tuple(found)


def _credit(records: Records, seeds: tuple[int, ...], owner: Arm) -> list[Measurement]:
    """The cosine of a step's update with the gradient at every weight of the trained network, from the input up."""
    profiles = [records[seed].get("credit") or [] for seed in seeds]
    depths = min((len(profile) for profile in profiles), default=0)
    found = []
    for depth in range(depths):
        values = [profile[depth] for profile in profiles]
        if all(value is not None for value in values):
            found.append(Measurement(
                name=f"{CREDIT} {depth + 1} of {depths}, {owner.name}", value=fmean(values), unit="1", n=len(values),
                interval=stats.mean_interval(values), values=tuple(values), seeds=seeds, note="seeds",
            ))
    return found


def time_ratio(evidence: Evidence, arm: Arm, key: str = "seconds") -> float | None:
    """Training time of an arm over that of its baseline, summed over paired seeds."""
    _, ours, theirs = paired(evidence.of(arm.name), evidence.of(arm.baseline.name), key)
    return sum(ours) / sum(theirs) if theirs and sum(theirs) > 0 else None


def paired(ours: Records, theirs: Records, key: str) -> tuple[tuple[int, ...], list[float], list[float]]:
    """Seeds both arms finished, and a number of each at those seeds."""
    seeds = tuple(sorted(ours.keys() & theirs.keys()))
    return seeds, [float(ours[s][key]) for s in seeds], [float(theirs[s][key]) for s in seeds]
