"""Faults of inference: numbers that look like evidence and are not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay import stats
from assay.results import Region, Verdict
from assay.tracks.honesty.faults.planted import Planted, PlantedJudgement, judge

if TYPE_CHECKING:
    from numpy.random import Generator

MARGIN = 0.03


def parity_at_chance(generator: Generator, faulty: bool) -> PlantedJudgement:
    """Two arms that guess are as equal as two arms that know."""
    items = 2000
    a, b = (generator.binomial(items, 0.1 if faulty else 0.9, (2, 10)) / items).tolist()
    guard = stats.above_chance({"candidate": a, "baseline": b}, items=items, chance=0.1)
    decision = stats.parity(a, b, margin=MARGIN, guards=[guard])
    return judge(lambda: decision, habit_accepts=_small(decision))


def zero_variance(generator: Generator, faulty: bool) -> PlantedJudgement:
    """Seeds that change nothing: the t test is certain, the test set is not."""
    items, steps = (100, 2) if faulty else (20_000, 200)
    correct = int(generator.integers(round(0.85 * items), round(0.95 * items)))
    a, b = [correct / items] * 5, [(correct - steps) / items] * 5
    decision = stats.parity(a, b, margin=MARGIN, items=items)
    return judge(lambda: decision, habit_accepts=_small(decision))


def nan_metric(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A NaN is never greater than a limit."""
    gaps = generator.normal(0.0, 0.004, 8).tolist()
    if faulty:
        gaps[int(generator.integers(8))] = math.nan
    decision = stats.parity(gaps, [0.0] * 8, margin=MARGIN)
    accepts = not any(abs(gap) > MARGIN for gap in gaps)
    return judge(lambda: decision, habit_accepts=accepts)


def peeking(generator: Generator, faulty: bool) -> PlantedJudgement:
    """Looking after every seed and stopping at the first success, where the true gap is the margin itself."""
    plan = stats.planned_looks((5, 10, 20))
    if not faulty:
        gaps = generator.normal(0.0, MARGIN / 4, 10).tolist()
        return judge(lambda: stats.parity(gaps, [0.0] * 10, margin=MARGIN, looks=plan), habit_accepts=True)
    while True:
        gaps = generator.normal(MARGIN, MARGIN / 2, 20).tolist()
        for n in sorted(set(range(3, 21)) - set(plan.looks)):
            interval = stats.mean_interval(gaps[:n], confidence=0.90)
            if stats.relation(interval, Region(low=-MARGIN, high=MARGIN)) is Verdict.PASS:
                decision = stats.parity(gaps[:n], [0.0] * n, margin=MARGIN, looks=plan)
                return judge(lambda: decision, habit_accepts=True)  # noqa: B023 - called at once


def best_of_many(generator: Generator, faulty: bool) -> PlantedJudgement:
    """The luckiest of twenty claims, shown alone. Planted: significant alone, not among twenty."""
    claims, seeds = 20, 6
    while True:
        centre, spread = (MARGIN, MARGIN / 2) if faulty else (0.0, MARGIN / 6)
        data = generator.normal(centre, spread, (claims, seeds)).tolist()
        decisions = [stats.parity(gaps, [0.0] * seeds, margin=MARGIN) for gaps in data]
        p_values = [1.0 if d.p_value is None else d.p_value for d in decisions]
        best = p_values.index(min(p_values))
        if not faulty or 0.05 / claims < p_values[best] < 0.05:
            corrected = stats.holm_decisions(decisions)[best]
            return judge(lambda: corrected, habit_accepts=decisions[best].passed)  # noqa: B023 - called at once


def average_over_tasks(generator: Generator, faulty: bool) -> PlantedJudgement:
    """One task that collapsed, hidden in a mean over tasks."""
    centres = (0.022, 0.022, 0.022, 0.022, -0.10) if faulty else (0.004, -0.004, 0.002, -0.002, 0.0)
    tasks = [generator.normal(centre, 0.003, 8).tolist() for centre in centres]
    whole = stats.all_hold(
        [stats.parity(gaps, [0.0] * 8, margin=MARGIN, name=f"task {number}") for number, gaps in enumerate(tasks, 1)]
    )
    average = math.fsum(map(math.fsum, tasks)) / (8 * len(tasks))
    return judge(lambda: whole, habit_accepts=abs(average) < MARGIN)


def supremum_from_one_estimate(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A norm of 1.2 that one random direction does not show."""
    import numpy as np

    size, largest = 16, 1.2 if faulty else 0.95
    left, right = (np.linalg.qr(generator.normal(size=(size, size)))[0] for _ in range(2))
    weight = left @ np.diag([largest, *generator.uniform(0.1, 0.6, size - 1)]) @ right
    direction = generator.normal(size=size)
    estimate = float(np.linalg.norm(weight @ direction) / np.linalg.norm(direction))
    if faulty:
        return judge(lambda: stats.constrained(estimate, None, 1.0), habit_accepts=estimate <= 1.0)
    for _ in range(100):
        direction = weight.T @ (weight @ direction)
        direction /= np.linalg.norm(direction)
    attacked, certified = float(np.linalg.norm(weight @ direction)), float(np.linalg.norm(weight, 2))
    decision = stats.constrained(attacked, certified, 1.0, rounding=size * float(np.finfo(float).eps))
    return judge(lambda: decision, habit_accepts=estimate <= 1.0)


def vacuous_tolerance(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A kernel that returns zeros, compared with small numbers under a round tolerance."""
    import numpy as np

    size = 64
    reference = 1e-5 * generator.normal(size=(20, size))
    computed = np.zeros_like(reference) if faulty else reference.astype(np.float32).astype(np.float64)
    magnitude = float(np.sqrt(np.mean(reference**2)))
    errors = np.abs(computed - reference).max(axis=1).tolist()
    tolerance = 1e-4 if faulty else float(np.abs(reference).max() * np.finfo(np.float32).eps)
    decision = stats.numeric_match(errors, tolerance, magnitude=magnitude)
    return judge(lambda: decision, habit_accepts=max(errors) <= tolerance)


def lost_pairing(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A crashed seed dropped from one arm only."""
    a, b = generator.normal(0.95, 0.004, (2, 8)).tolist()
    b = b[:-1] if faulty else b
    accepts = abs(math.fsum(a) / len(a) - math.fsum(b) / len(b)) < MARGIN
    return judge(lambda: stats.parity(a, b, margin=MARGIN), habit_accepts=accepts)


def repeated_seed(generator: Generator, faulty: bool) -> PlantedJudgement:
    """One run, copied until there are enough."""
    seeds = [42, 43] * 4 if faulty else list(range(42, 50))
    drawn = generator.normal(0.0, 0.004, 8).tolist()
    gaps = drawn[:2] * 4 if faulty else drawn
    accepts = abs(math.fsum(gaps) / 8) < MARGIN
    return judge(lambda: stats.parity(gaps, [0.0] * 8, margin=MARGIN, seeds=seeds), habit_accepts=accepts)


def mixed_units(generator: Generator, faulty: bool) -> PlantedJudgement:
    """Per cent where a share is meant: ninety-seven is far above a chance of 0.1, and so is a guess of ten."""
    accuracy = float(generator.uniform(0.90, 0.97)) * (100 if faulty else 1)
    call = lambda: stats.above_chance({"candidate": [accuracy] * 3}, items=1000, chance=0.1)  # noqa: E731
    return judge(call, habit_accepts=accuracy > 0.1)


def _small(decision: stats.Decision) -> bool:
    """The habit: the mean gap is smaller than the margin."""
    value = decision.measurement.value
    return value is not None and abs(value) < MARGIN


STATISTICS = (
    Planted(
        "parity at chance", "the gap is below 3 points", Verdict.INCONCLUSIVE, "not above chance", parity_at_chance
    ),
    Planted("zero variance", "p = 0: the seeds agree exactly", Verdict.INCONCLUSIVE, "item-level", zero_variance),
    Planted("NaN metric", "no gap exceeds the limit", Verdict.INCONCLUSIVE, "NaN or infinite", nan_metric),
    Planted("peeking", "add seeds until it holds", Verdict.INCONCLUSIVE, "not a planned look", peeking),
    Planted("best of many", "p < 0.05", Verdict.INCONCLUSIVE, "after Holm", best_of_many),
    Planted("average over tasks", "the mean gap is small", Verdict.FAIL, "worst: task 5", average_over_tasks),
    Planted(
        "supremum from one estimate",
        "the estimated norm is below 1",
        Verdict.INCONCLUSIVE,
        "a certified upper bound missing",
        supremum_from_one_estimate,
    ),
    Planted("vacuous tolerance", "the error is below 1e-4", Verdict.INCONCLUSIVE, "could not fail", vacuous_tolerance),
    Planted("lost pairing", "compare the means", "REFUSED", "equal length, paired by seed", lost_pairing),
    Planted("repeated seed", "eight runs agree", "REFUSED", "distinct seeds", repeated_seed),
    Planted("mixed units", "97 is above 0.1", "REFUSED", "pass scale=100", mixed_units),
)
