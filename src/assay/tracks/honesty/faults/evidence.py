"""Faults of evidence: a verdict that rests on less than it says, on controls nobody ran, or on the luckiest look."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay import stats
from assay.protocols import ControlArm, Outcome, Outcomes, Trial, known_bad, known_good
from assay.results import Evidence, Finding, Verdict
from assay.stats.looks import spending
from assay.tracks.honesty.faults.planted import REFUSED, Planted, PlantedJudgement, judge
from assay.tracks.honesty.faults.verdicts import CALIBRATED, MARGIN, SEEDS, as_control, as_outcome, enforced, lenient

if TYPE_CHECKING:
    from numpy.random import Generator


def seeds_asked_for(generator: Generator, faulty: bool) -> PlantedJudgement:
    """Ten seeds asked for; the track runs one trial and repeats its number ten times."""
    seeds = tuple(range(42, 52))
    gaps = generator.normal(0.0, 0.004, len(seeds)).tolist()
    run = [(seeds[0], gaps[0])] if faulty else list(zip(seeds, gaps, strict=True))
    outcomes = Outcomes(tuple(as_outcome(seed, {"gap": gap}, {}) for seed, gap in run))
    return enforced(lenient(seeds, gaps), stats.finished(outcomes))


def seed_ignored(generator: Generator, faulty: bool) -> PlantedJudgement:
    """Ten trials whose records differ in the clock alone: the track never looked at its seed."""
    seeds = tuple(range(42, 52))
    gaps = generator.normal(0.0, 0.004, len(seeds)).tolist()
    seconds = generator.uniform(1.0, 2.0, len(seeds)).tolist()
    outcomes = Outcomes(tuple(
        as_outcome(seed, {"gap": gaps[0] if faulty else gap, "seconds": spent}, {})
        for seed, gap, spent in zip(seeds, gaps, seconds, strict=True)
    ))  # fmt: skip
    return enforced(lenient(seeds, gaps), stats.finished(outcomes))


def number_without_interval(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A mean a hair above its limit: no interval, so nobody knows about other seeds."""
    seeds = tuple(range(42, 52))
    values = (0.5 + generator.normal(0.0001 if faulty else 0.05, 0.004, len(seeds))).tolist()
    decision = stats.better(values, [0.5] * len(seeds), seeds=seeds)
    excess = math.fsum(values) / len(values) - 0.5
    bare: dict[str, Any] = {"interval": None, "value": abs(excess)} if faulty else {}
    number = decision.measurement.model_copy(update=bare)
    subject = lenient(seeds, values).model_copy(update={"measurements": (number,), "verdict": Verdict.PASS})
    return enforced(subject, seeds)


def values_without_records(generator: Generator, faulty: bool) -> PlantedJudgement:
    """Four seeds run, their numbers handed in three times: the interval is as narrow as twelve seeds would make it."""
    seeds = tuple(range(42, 46))
    gaps = generator.normal(0.0, 0.004, len(seeds)).tolist()
    outcomes = Outcomes(tuple(as_outcome(seed, {"gap": gap}, {}) for seed, gap in zip(seeds, gaps, strict=True)))
    subject = lenient(seeds, gaps)
    if faulty:
        many = stats.parity(gaps * 3, [0.0] * 3 * len(gaps), margin=MARGIN)
        subject = subject.model_copy(update={"measurements": (many.measurement,), "headline": many.measurement.name})
    return enforced(subject, stats.finished(outcomes))


def moved_margin(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A margin chosen after these seeds were seen not to meet a narrower one."""
    seeds = tuple(range(42, 52))
    gaps = generator.normal(0.0, MARGIN / 6, len(seeds)).tolist()
    subject = lenient(seeds, gaps)
    before = stats.asked(subject) if not faulty else f"{subject.headline} within {MARGIN / 100:g}"
    look = stats.Look(seeds, "2026-01-01", verdict=Verdict.INCONCLUSIVE, asked=before)
    ran = stats.Ran({seed: str(seed) for seed in seeds}, CALIBRATED, planned=True, earlier=(look,))
    judged = stats.enforce(subject, kind="statistical", ran=ran)
    if judged.evidence is Evidence.CONFIRMED:
        return PlantedJudgement("PASS", judged.reason, True)
    return PlantedJudgement(REFUSED, "; ".join(judged.limitations), subject.verdict is Verdict.PASS)


def constant_controls(generator: Generator, faulty: bool) -> PlantedJudgement:
    """Controls that a track hands in as told apart without ever having run them."""
    gaps = generator.normal(0.0, 0.004, len(SEEDS)).tolist()
    subject = lenient(SEEDS, gaps).model_copy(
        update={
            "controls": (
                as_control("same arm twice", "known-good", Verdict.PASS, Verdict.PASS),
                as_control("shuffled labels", "known-bad", Verdict.FAIL, Verdict.FAIL),
            )
        }
    )
    trials = [as_outcome(seed, {"gap": gap}, {}) for seed, gap in zip(SEEDS, gaps, strict=True)]
    if not faulty:
        shift = float(generator.uniform(0.1, 0.2))
        for arm, by in (("control: same arm twice", 0.0), ("control: shuffled labels", shift)):
            trials += [
                Outcome(Trial(arm, seed), {"gap": gap - by}) for seed, gap in zip(SEEDS[:3], gaps[:3], strict=True)
            ]
    outcomes = Outcomes(tuple(trials))
    body = _Controlled(NAMED if faulty else RUN)
    ran = stats.Ran(
        stats.finished(outcomes, controls=stats.control_arms(body)), stats.judged_controls(body, outcomes), planned=True
    )
    return judge(lambda: stats.enforce(subject, kind="statistical", ran=ran), habit_accepts=True)


def shopped_seeds(generator: Generator, faulty: bool) -> PlantedJudgement:
    """The root seed at which it holds, where the true gap is the margin itself and four others did not."""
    n = 10
    before: list[stats.Look] = []
    while True:
        first = 1000 * (len(before) + 1)
        seeds = tuple(range(first, first + n))
        gaps = generator.normal(MARGIN if faulty else 0.0, MARGIN / (2 if faulty else 6), n).tolist()
        subject = lenient(seeds, gaps, alpha=0.05)
        lone = stats.parity(gaps, [0.0] * n, margin=MARGIN, seeds=seeds)
        granted = stats.spending(seeds, before)
        p_value = 1.0 if lone.p_value is None else lone.p_value
        # By what looks may spend, not by what the protection under test grants: without it, too, the search ends.
        if lone.passed and (not faulty or (len(before) >= 1 and p_value > spending(seeds, before).level)):
            ran = stats.Ran({seed: str(seed) for seed in seeds}, CALIBRATED, planned=True, look=granted)
            return judge(lambda: stats.enforce(subject, kind="statistical", ran=ran), habit_accepts=True)  # noqa: B023
        if not lone.passed:
            before.append(stats.Look(seeds, "", verdict=lone.verdict))


NAMED = ("control: same arm twice", "control: shuffled labels")
"""Controls by name alone, whose outcome is handed in."""
RUN = (known_good(NAMED[0], "subject"), known_bad(NAMED[1], "subject"))
"""The same as arms that are run."""


@dataclass(frozen=True)
class _Controlled:
    """A track with these controls."""

    controls: tuple[str | ControlArm, ...]

    def decide(self, outcomes: Outcomes) -> Finding:
        found = outcomes.arm("subject")
        seeds = tuple(sorted(found))
        return lenient(seeds, [found[seed]["gap"] for seed in seeds])


EVIDENCE = (
    Planted("seeds asked for", "ten seeds agree", Verdict.INCONCLUSIVE, "1 seed(s) finished", seeds_asked_for),
    Planted("seed ignored", "ten seeds agree", Verdict.INCONCLUSIVE, "1 seed(s) finished", seed_ignored),
    Planted(
        "number without interval",
        "the mean is above the limit",
        Verdict.INCONCLUSIVE,
        "has no interval",
        number_without_interval,
    ),
    Planted(
        "constant controls",
        "the controls were told apart",
        Verdict.INCONCLUSIVE,
        "no control was run",
        constant_controls,
    ),
    Planted("values without records", "the interval is narrow", Verdict.INCONCLUSIVE, "rests on 12 values",
            values_without_records),
    Planted("moved margin", "it holds at this margin", REFUSED, "not fixed beforehand", moved_margin),
    Planted("shopped seeds", "it holds at this root seed", Verdict.INCONCLUSIVE, "other root seeds", shopped_seeds),
)
