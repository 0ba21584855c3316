"""Faults of judgement: verdicts that claim more than was run."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assay import stats
from assay.engine.workers.process import WorkerProcess, result_of
from assay.engine.workers.worker import run_cell
from assay.protocols import Cell, Outcome, Outcomes, Trial
from assay.results import SCHEMA_VERSION, Control, Failure, Finding, Interval, Measurement, Region, Run, Verdict
from assay.tracks.honesty.faults.planted import Planted, PlantedJudgement, judge

if TYPE_CHECKING:
    from numpy.random import Generator

MARGIN = 0.03
SEEDS = (42, 43, 44, 45, 46)


def crashed_track(generator: Generator, faulty: bool) -> PlantedJudgement:
    """One trial of five raises; the others look fine."""
    gaps = generator.normal(0.0, 0.004, len(SEEDS)).tolist()
    crash = int(generator.integers(len(SEEDS))) if faulty else None
    outcomes = []
    for index, seed in enumerate(SEEDS):
        payload = {"gap": gaps[index], "crash": index == crash}
        outcome = run_cell(f"{__name__}:planted_cell", payload)
        outcomes.append(as_outcome(seed, outcome.get("record"), outcome))
    return _judge_outcomes(outcomes)


def killed_worker(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A worker process that dies without a word; a healthy one returns its record."""
    gaps = generator.normal(0.0, 0.004, len(SEEDS)).tolist()
    outcomes = [as_outcome(seed, {"gap": gap}, {}) for seed, gap in zip(SEEDS[1:], gaps[1:], strict=True)]
    payload = {"gap": gaps[0], "kill": faulty}
    cell = Cell(key="0" * 32, target=f"{__name__}:planted_cell", payload=payload, label="seed 42", group="planted")
    worker = WorkerProcess()
    try:
        worker.start(cell)
        while (outcome := worker.poll()) is None:
            time.sleep(0.01)
    finally:
        worker.stop()
    result = result_of(cell, outcome)
    outcomes.append(Outcome(Trial(arm="subject", seed=SEEDS[0]), result.record, result.failure))
    return _judge_outcomes(outcomes)


def one_seed_called_proof(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A single run inside the margin."""
    seeds = SEEDS[:1] if faulty else SEEDS
    gaps = generator.normal(0.0, 0.004, len(seeds)).tolist()
    return enforced(lenient(seeds, gaps), seeds)


def uncalibrated_check(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A check that accepts its known-bad control as readily as its known-good one."""
    tolerance = 1e6 if faulty else 1e-6
    good, bad = generator.uniform(1e-9, 1e-7, 10).tolist(), generator.uniform(1e-2, 1.0, 10).tolist()
    verdicts = [stats.numeric_match(errors, tolerance).verdict for errors in (good, bad)]
    controls = (
        as_control("exact copy", "known-good", Verdict.PASS, verdicts[0]),
        as_control("perturbed copy", "known-bad", Verdict.FAIL, verdicts[1]),
    )
    gaps = generator.normal(0.0, 0.004, len(SEEDS)).tolist()
    return enforced(lenient(SEEDS, gaps), SEEDS, controls)


def interval_outside_region(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A mean inside the margin whose interval is not: "pass" by the point estimate."""
    value = float(generator.uniform(0.010, 0.012))
    half = 0.03 if faulty else 0.01
    interval = Interval(low=value - half, high=value + half, confidence=0.9, method="paired t")
    region = Region(low=-MARGIN, high=MARGIN)
    measurement = Measurement(name="gap", value=value, n=len(SEEDS), interval=interval, region=region)
    subject = lenient(SEEDS, [value] * len(SEEDS)).model_copy(update={"measurements": (measurement,)})
    return enforced(subject, SEEDS)


def crash_left_out(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A run reported by the checks that finished."""
    findings = [lenient(SEEDS, generator.normal(0.0, 0.004, len(SEEDS)).tolist()) for _ in range(4)]
    if faulty:
        crash = Failure(label="track 4", kind="MemoryError", message="out of memory")
        findings.append(
            stats.enforce(findings[0].model_copy(update={"failures": (crash,)}), kind="statistical", ran=ran_on(SEEDS))
        )
    run = Run(id="planted", created="", findings=tuple(findings))
    counts = ", ".join(f"{count} {verdict}" for verdict, count in run.counts.items() if count)
    finished = [finding for finding in findings if not finding.failures]
    return PlantedJudgement(str(run.verdict), counts, habit_accepts=all(finding.passed for finding in finished))


def run_from_the_future(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A run file whose schema this version cannot know."""
    return _reopened(generator, {"schema_version": SCHEMA_VERSION + 1} if faulty else {})


def run_with_unknown_verdict(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A run file edited by hand to a verdict that does not exist."""
    gaps = generator.normal(0.0, 0.004, len(SEEDS)).tolist()
    finding = json.loads(lenient(SEEDS, gaps).model_dump_json())
    return _reopened(generator, {"findings": [finding | {"verdict": "ALL GOOD"}]} if faulty else {})


def planted_cell(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The work of one planted trial: returns its gap, raises or dies as told."""
    if payload.get("crash"):
        raise FloatingPointError("planted crash")
    if payload.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    return {"gap": payload["gap"]}


def as_outcome(seed: int, record: Mapping[str, Any] | None, raw: Mapping[str, Any]) -> Outcome:
    failure = None
    if record is None:
        failure = Failure(label=f"seed {seed}", kind=raw["kind"], message=raw["message"], traceback=raw["traceback"])
    return Outcome(Trial(arm="subject", seed=seed), record, failure)


def _judge_outcomes(outcomes: Sequence[Outcome]) -> PlantedJudgement:
    """What becomes of a track that decides from whatever finished."""
    gathered = Outcomes(tuple(outcomes))
    finished = gathered.arm("subject")
    seeds = tuple(sorted(finished))
    subject = lenient(seeds, [finished[seed]["gap"] for seed in seeds])
    return enforced(subject.model_copy(update={"failures": gathered.failures}), SEEDS)


def lenient(seeds: Sequence[int], gaps: Sequence[float], *, alpha: float = 0.05) -> Finding:
    """A finding as a careless track makes it: PASS because the mean gap is small."""
    measurement = stats.parity(gaps, [0.0] * len(gaps), margin=MARGIN, seeds=seeds, alpha=alpha).measurement
    small = measurement.value is not None and abs(measurement.value) < MARGIN
    return Finding(
        subject="planted",
        claim="parity",
        verdict=Verdict.PASS if small else Verdict.FAIL,
        reason="the mean gap is small",
        headline="gap",
        measurements=(measurement,),
        score=100.0,
    )


def as_control(name: str, kind: Any, expected: Verdict, observed: Verdict) -> Control:
    return Control(name=name, kind=kind, expected=expected, observed=observed, separated=expected is observed)


CALIBRATED = (
    as_control("same arm twice", "known-good", Verdict.PASS, Verdict.PASS),
    as_control("shuffled labels", "known-bad", Verdict.FAIL, Verdict.FAIL),
)
"""Controls as they come out where calibration is not what is planted."""


def ran_on(seeds: Sequence[int] | Mapping[int, str], controls: tuple[Control, ...] = CALIBRATED) -> stats.Ran:
    records = dict(seeds) if isinstance(seeds, Mapping) else {seed: f"record {seed}" for seed in seeds}
    return stats.Ran(records, controls=controls, planned=True)


def enforced(
    subject: Finding, seeds: Sequence[int] | Mapping[int, str], controls: tuple[Control, ...] = CALIBRATED
) -> PlantedJudgement:
    return judge(
        lambda: stats.enforce(subject, kind="statistical", ran=ran_on(seeds, controls)),
        habit_accepts=subject.verdict is Verdict.PASS,
    )


def _reopened(generator: Generator, altered: Mapping[str, Any]) -> PlantedJudgement:
    """What comes of opening a run file in which some fields were altered; a lenient reader would take it as it is."""
    gaps = generator.normal(0.0, 0.004, len(SEEDS)).tolist()
    run = Run(id="planted", created="", findings=(lenient(SEEDS, gaps),))
    text = json.dumps(json.loads(run.to_json()) | dict(altered))

    def reopen() -> Finding:
        again = Run.from_json(text)
        same = again.findings == run.findings and again.id == run.id  # not the runs: a file also carries its own digest
        return again.findings[0] if same else again.findings[0].model_copy(update={"verdict": Verdict.ERROR})

    return judge(reopen, habit_accepts=True)


VERDICTS = (
    Planted("crashed track", "the trials that finished agree", Verdict.ERROR, "planted crash", crashed_track),
    Planted("killed worker", "the trials that finished agree", Verdict.ERROR, "seed 42 failed", killed_worker),
    Planted(
        "one seed called proof", "the gap is below the margin", Verdict.INCONCLUSIVE, "1 seed(s)", one_seed_called_proof
    ),
    Planted("uncalibrated check", "the check passed", Verdict.INCONCLUSIVE, "not calibrated", uncalibrated_check),
    Planted(
        "interval outside region",
        "the mean is inside",
        Verdict.INCONCLUSIVE,
        "does not lie inside",
        interval_outside_region,
    ),
    Planted("crash left out", "all finished checks passed", Verdict.ERROR, "1 ERROR", crash_left_out),
    Planted("run from the future", "the file opens", "REFUSED", "this Assay reads up to", run_from_the_future),
    Planted("run with unknown verdict", "the file opens", "REFUSED", "the file was altered", run_with_unknown_verdict),
)
