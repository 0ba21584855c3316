"""The credit profile of an arm: how near its update is to the gradient at every weight of the trained network."""

from __future__ import annotations

from statistics import fmean

from assay import stats
from assay.results import Measurement
from assay.studies.bench.measured import Records

CREDIT = "cosine with the gradient at weight"
"""How the credit of one weight is called; its number, from 1 at the input, and the arm follow."""


def credit_by_weight(records: Records, arm: str) -> list[Measurement]:
    """One measurement per weight, from the input up, over the seeds of an arm; none where a seed has no profile."""
    seeds = tuple(sorted(records))
    profiles = [records[seed].get("credit") or [] for seed in seeds]
    depths = min((len(profile) for profile in profiles), default=0)
    found = []
    for depth in range(depths):
        values = [profile[depth] for profile in profiles]
        if all(value is not None for value in values):
            found.append(Measurement(
                name=f"{CREDIT} {depth + 1} of {depths}, {arm}", value=fmean(values), unit="1", n=len(values),
                interval=stats.mean_interval(values), values=tuple(values), seeds=seeds, note="seeds",
            ))
    return found
