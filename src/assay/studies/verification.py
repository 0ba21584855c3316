"""Tracks in, Run out: look tracks up, expand them to cells, run the cells, decide each track, gather the findings."""

from __future__ import annotations

import shlex
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from assay import stats
from assay.engine import LocalExecutor, Store, capture, content_key, describe_grouping, execute, fingerprint, run_id
from assay.errors import InputError, expected
from assay.protocols import (
    Budget,
    Cell,
    CellEvent,
    CellResult,
    Executor,
    Outcome,
    Outcomes,
    Together,
    Trial,
    Watcher,
)
from assay.registry import Track, registry
from assay.results import Failure, Finding, Run, Verdict
from assay.seeding import seeds_of
from assay.studies.measure import CELL, TOGETHER, measure_cell, measure_together, trial_of

DEFAULT_ROOT = Path("assay-runs")


def verify(
    *tracks: int | str,
    budget: Budget = "quick",
    seeds: int | None = None,
    seed: int = 42,
    workers: int | None = None,
    store: str | Path | None = None,
    fail_fast: bool = False,
    executor: Executor | None = None,
    grouping: bool = True,
    watcher: Watcher | None = None,
    command: str | None = None,
) -> Run:
    """The run of the named tracks (all of them by default), each decided over its seeds.

    ``budget`` sets the cost; the evidence level is computed from what was really run. Finished cells live in ``store``
    (a folder or URL, ``assay-runs/cells`` by default): the same call after a kill redoes only what is missing, and
    asking for more seeds adds only their cells. A cell that raises, hangs or dies makes its track an ERROR; the others
    finish. With ``grouping``, trials that a track can measure together are, which changes the time and nothing else.

    >>> verify(0, seeds=3).verdict                                        # doctest: +SKIP
    <Verdict.PASS: 'PASS'>
    """
    start = time.perf_counter()
    seed_list = seeds_of(budget, count=seeds, first=seed)
    chosen = [registry.find(key) for key in dict.fromkeys(map(str, tracks))] if tracks else registry.ordered()
    chosen = list({track.number: track for track in chosen}.values())
    planned = {track.number: plan(track, budget, seed_list) for track in chosen}
    place = Store(store if store is not None else DEFAULT_ROOT / "cells")
    results: dict[str, CellResult] = {}
    findings = _run(
        chosen, planned, place, executor or LocalExecutor(workers), watcher, fail_fast, seed_list, grouping, results
    )
    rerun = f"--budget {budget} --seeds {len(seed_list)} --seed {seed}"
    finished = [findings[t.number].model_copy(update={"rerun": f"assay verify {t.number} {rerun}"}) for t in chosen]
    if not tracks:
        finished += [_broken(name, failure) for name, failure in registry.broken.items()]
    now = datetime.now(UTC)
    return Run(
        id=run_id(now, tracks=[t.number for t in chosen], budget=budget, seeds=list(seed_list)),
        kind="verify",
        title="Verification results",
        created=now.isoformat(timespec="seconds"),
        command=command or f"assay verify {' '.join(map(str, tracks))} {rerun}",
        budget=budget,
        seconds=time.perf_counter() - start,
        environment=capture(),
        config={
            "budget": budget,
            "seeds": list(seed_list),
            "grouping": describe_grouping(result.together for result in results.values()),
            "damaged cells redone": place.damaged,
        },
        findings=tuple(finished),
    )


def trials_of(track: Track, budget: Budget, seeds: Sequence[int]) -> list[Trial]:
    """What a track wants to run; a track that wants nothing, or something else than trials, is an InputError."""
    wanted: object = track.body.trials(budget, seeds)
    trials = list(wanted) if isinstance(wanted, Iterable) else [wanted]
    found = [trial for trial in trials if isinstance(trial, Trial)]
    if not found or len(found) < len(trials):
        strange = [type(trial).__name__ for trial in trials if not isinstance(trial, Trial)]
        what = f"trials of track {track.number} ({track.name}) to be one Trial or more"
        raise expected(what, given=strange[0] if strange else "none")
    return found


def plan(track: Track, budget: Budget, seeds: Sequence[int]) -> list[Cell]:
    """The cells of one track, each under a key of everything its result depends on.

    A track may have a method ``resources(trial)`` that returns what a cell needs to run, any of ``cpus``, ``gpus``,
    ``memory`` (bytes) and ``timeout`` (seconds); needs do not change results and are not part of the key. It may also
    have ``measure_together(trials)``, which returns their records, each what ``measure`` would return, and
    ``siblings(trial)``, which names the trials that may go with this one (None: it goes alone).
    """
    code = fingerprint([CELL.partition(":")[0], track.module, *track.sources], extras=track.extras)
    data_hash = getattr(track.body, "data_hash", None)
    resources = getattr(track.body, "resources", None)
    siblings = getattr(track.body, "siblings", None)
    cells = []
    for trial in trials_of(track, budget, seeds):
        payload = {
            "module": track.module,
            "track": track.number,
            "arm": trial.arm,
            "seed": trial.seed,
            "budget": trial.budget,
            "config": dict(trial.config),
        }
        identity = {
            **payload,
            "name": track.name,
            "version": track.version,
            "code": code,
            "data": data_hash(trial) if data_hash else "",
        }
        cells.append(
            Cell(
                key=content_key(identity),
                target=CELL,
                payload=payload,
                label=f"track {track.number} {trial.arm} seed {trial.seed}",
                group=f"{track.name}/{trial.budget}/{trial.arm}",
                together=_together(track, trial, siblings(trial)) if siblings else None,
                **{"timeout": track.timeout, **(resources(trial) if resources else {})},
            )
        )
    if not cells:
        raise InputError(f"track {track.number} '{track.name}' planned no trials for budget {budget}")
    return cells


def _together(track: Track, trial: Trial, family: str | None) -> Together | None:
    if family is None:
        return None
    # Trials of one call share the budget and the configuration, whatever the track says.
    identity = {"track": track.number, "family": family, "budget": trial.budget, "config": dict(trial.config)}
    return Together(TOGETHER, content_key(identity))


def _run(
    tracks: Sequence[Track],
    planned: Mapping[int, Sequence[Cell]],
    store: Store,
    executor: Executor,
    watcher: Watcher | None,
    fail_fast: bool,
    seeds: tuple[int, ...],
    grouping: bool,
    results: dict[str, CellResult],
) -> dict[int, Finding]:
    """Every track's finding by number, each decided as soon as its last cell is in; ``results`` are left by key."""
    if watcher is not None:
        watcher.planned(
            {str(track.number): track.title for track in tracks},
            {str(number): cells for number, cells in planned.items()},
        )
    findings: dict[int, Finding] = {}
    missing = {track.number: {cell.key for cell in planned[track.number]} for track in tracks}
    every_cell = [cell for track in tracks for cell in planned[track.number]]
    notify = watcher.event if watcher else _ignore
    stream = execute(every_cell, store=store, executor=executor, notify=notify, grouping=grouping)
    for result in stream:
        results[result.cell.key] = result
        for track in tracks:
            waiting = missing[track.number]
            waiting.discard(result.cell.key)
            if waiting or track.number in findings:
                continue
            finding = decide(track, [results[cell.key] for cell in planned[track.number]], seeds)
            findings[track.number] = finding
            if watcher is not None:
                watcher.decided(str(track.number), finding)
        if fail_fast and any(f.verdict in (Verdict.FAIL, Verdict.ERROR) for f in findings.values()):
            break
    for track in tracks:
        if track.number not in findings:
            findings[track.number] = _describe(
                track,
                Finding(
                    subject=track.title,
                    claim=track.claim,
                    verdict=Verdict.INCONCLUSIVE,
                    reason="not finished: an earlier track failed and --fail-fast stopped the run",
                ),
                (),
                0.0,
            )
    return findings


def decide(track: Track, results: Sequence[CellResult], seeds: tuple[int, ...]) -> Finding:
    """The finding of one track from the results of its cells, with the central guards applied."""
    outcomes = Outcomes(tuple(Outcome(trial_of(r.cell.payload), r.record, r.failure, r.seconds) for r in results))
    seconds = sum(result.seconds for result in results)
    failures = outcomes.failures
    try:
        finding = track.body.decide(outcomes)
        if not isinstance(finding, Finding):
            raise expected("decide to return a Finding", given=type(finding).__name__)
    except Exception as error:
        failures = (
            *failures,
            Failure(
                label=f"track {track.number} decide",
                kind=type(error).__name__,
                message=str(error),
                traceback=traceback.format_exc(),
            ),
        )
        finding = Finding(subject=track.title, claim=track.claim, verdict=Verdict.ERROR, reason=f"no decision: {error}")
    finding = finding.model_copy(update={"failures": (*finding.failures, *failures)})
    records = stats.finished(outcomes, controls=stats.control_arms(track.body))
    ran = stats.Ran(records, controls=stats.judged_controls(track.body, outcomes), planned=True)
    return stats.enforce(_describe(track, finding, seeds, seconds), kind=track.kind, ran=ran)


def _describe(track: Track, finding: Finding, seeds: tuple[int, ...], seconds: float) -> Finding:
    return finding.model_copy(
        update={
            "number": track.number,
            "name": track.name,
            "subject": finding.subject or track.title,
            "claim": track.claim,
            "experiment": finding.experiment or track.experiment,
            "seeds": seeds,
            "seconds": seconds,
        }
    )


def _broken(name: str, failure: Failure) -> Finding:
    return Finding(
        subject=f"plugin {name}",
        name=name,
        claim="This plugin's tracks can be loaded.",
        verdict=Verdict.ERROR,
        reason=failure.message,
        failures=(failure,),
    )


def _ignore(event: CellEvent) -> None:
    del event


def command_line() -> str:
    """The command that started this process, ready to paste into a shell."""
    return shlex.join(["assay", *sys.argv[1:]])


__all__ = ["DEFAULT_ROOT", "command_line", "decide", "measure_cell", "measure_together", "plan", "verify"]
