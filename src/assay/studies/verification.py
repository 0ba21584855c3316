"""Tracks in, Run out: each track is a question whose trials are cells, decided over its seeds behind the guards."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

from assay import stats
from assay.engine import content_key, fingerprint
from assay.engine.needs import checked_needs
from assay.errors import FOREIGN, InputError, expected, printable
from assay.protocols import Budget, Cell, Executor, Outcomes, Together, Trial, Watcher
from assay.registry import Track, registry
from assay.results import Failure, Finding, Run, Verdict
from assay.seeding import seeds_of
from assay.studies.arms.brought import Here
from assay.studies.looks import NO_PAST, Past
from assay.studies.measure import CELL, TOGETHER, trial_of
from assay.studies.study import Place, Planned, Question, Study, ends_badly, make_run, never
from assay.studies.where import device_facts, elsewhere, gpus_of, named_device


def verify(
    *tracks: int | str,
    every: bool = False,
    budget: Budget = "quick",
    seeds: int | None = None,
    seed: int = 42,
    workers: int | None = None,
    store: str | Path | None = None,
    fail_fast: bool = False,
    executor: Executor | None = None,
    grouping: bool = True,
    device: str | None = None,
    watcher: Watcher | None = None,
    command: str | None = None,
) -> Run:
    """The run of the named tracks, each decided over its seeds; without a name, of those not left for request.

    ``every=True`` runs every track there is.

    ``budget`` sets the cost; the evidence level is computed from what was really run. Finished cells live in ``store``
    (a folder or URL, ``assay-runs/cells`` by default): the same call after a kill redoes only what is missing, and
    asking for more seeds adds only their cells. A cell that raises, hangs or dies makes its track an ERROR; the others
    finish. With ``grouping``, trials that a track can measure together are, which changes the time and nothing else.
    ``device`` (cpu, cuda, mps, auto) is where trials train and audit unless they say otherwise themselves.

    >>> verify(0, seeds=3).verdict                                        # doctest: +SKIP
    <Verdict.PASS: 'PASS'>
    """
    seed_list = seeds_of(budget, count=seeds, first=seed)
    chosen, device = chosen_tracks(tracks, every=every), named_device(device)
    questions: list[Question] = []
    unplanned: dict[str, Finding] = {}
    for track in chosen:
        try:
            questions.append(question(track, budget, seed_list, device=device))
        except FOREIGN as error:  # a track that cannot say what it wants to run is an ERROR, and the others finish
            unplanned[str(track.number)] = _unplanned(track, error)
    study = Study(tuple(questions), stop=ends_badly if fail_fast else never)
    answers = study.answer(Place(store, executor or _here(chosen), workers, grouping, watcher))
    found = unplanned | {key: findings[0] for key, findings in answers.findings.items()}
    rerun = f"--budget {budget} --seeds {len(seed_list)} --seed {seed}" + (f" --device {device}" if device else "")
    finished = [
        found.get(str(track.number), _unfinished(track)).model_copy(
            update={"rerun": f"assay verify {track.number} {rerun}"}
        )
        for track in chosen
    ]
    if every or not tracks:
        finished += [_broken(name, failure) for name, failure in registry.broken.items()]
    return make_run(
        "verify", "Verification results", finished,
        identity={
            "tracks": [t.number for t in chosen], "budget": budget, "seeds": list(seed_list), **elsewhere(device),
        },
        command=command or f"assay verify {'--all' if every else ' '.join(map(str, tracks))} {rerun}",
        seconds=answers.seconds, budget=budget,
        config={"budget": budget, "seeds": list(seed_list), **device_facts(device), **answers.facts},
    )


def chosen_tracks(tracks: Sequence[int | str], *, every: bool = False) -> list[Track]:
    """The tracks meant by numbers and names, each once: the standing ones if none is named, all with ``every``."""
    if every:
        if tracks:
            raise expected("tracks by name or all of them, not both", given=f"{' '.join(map(str, tracks))} and all")
        return registry.ordered()
    named = [registry.find(key) for key in dict.fromkeys(map(str, tracks))] if tracks else registry.standing()
    return list({track.number: track for track in named}.values())


def _here(tracks: Iterable[Track]) -> Executor | None:
    """This process, for claims made where no other could import them: a notebook, a prompt, ``python -c``."""
    typed = any(track.module == "__main__" for track in tracks) and not hasattr(sys.modules["__main__"], "__file__")
    return Here() if typed else None


def question(track: Track, budget: Budget, seeds: tuple[int, ...], *, device: str | None = None) -> Question:
    """A track as a question: its trials, their cells, and its decision behind the central guards."""
    # By its name: other words or another margin are no other claim, and the ledger tells which was asked first.
    cells, claim = plan(track, budget, seeds, device=device), f"track {track.name}"
    return Question(
        str(track.number), track.title, tuple(Planned(trial_of(cell.payload), cell) for cell in cells),
        lambda outcomes, past: [decide(track, outcomes, seeds, past.get(claim, NO_PAST))],
        claims=() if budget == "smoke" else (claim,),  # shortened trainings decide nothing and spend nothing
        seeds=seeds,
        code=fingerprint([CELL.partition(":")[0], track.module, *track.sources], extras=track.extras),
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


def plan(track: Track, budget: Budget, seeds: Sequence[int], *, device: str | None = None) -> list[Cell]:
    """The cells of one track, each under a key of everything its result depends on.

    A track may have a method ``resources(trial)`` that returns what a cell needs to run, any of ``cpus``, ``gpus``,
    ``memory`` (bytes), ``timeout`` (seconds) and ``fresh`` (a process started for it alone). Needs do not change
    results and are not part of the key. It may also have ``measure_together(trials)``, which returns their records,
    each what ``measure`` would return, and ``siblings(trial)``, which names the trials that may go with this one (None:
    it goes alone).
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
            **elsewhere(device),
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
                **{"gpus": gpus_of(device), **checked_needs({"timeout": track.timeout}),
                   **checked_needs(resources(trial) if resources else {})},
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


def decide(track: Track, outcomes: Outcomes, seeds: tuple[int, ...], past: Past = NO_PAST) -> Finding:
    """The finding of one track from the outcomes of its trials, with the central guards applied."""
    seconds = sum(outcome.seconds for outcome in outcomes)
    failures = outcomes.failures
    try:
        finding = track.body.decide(outcomes)
        if not isinstance(finding, Finding):
            raise expected("decide to return a Finding", given=type(finding).__name__)
    except FOREIGN as error:
        message = printable(str(error) if isinstance(error, Exception) else f"{type(error).__name__}: {error}")
        failures = (
            *failures,
            Failure(
                label=f"track {track.number} decide",
                kind=type(error).__name__,
                message=message,
                traceback=printable(traceback.format_exc()),
            ),
        )
        finding = Finding(
            subject=track.title, claim=track.claim, verdict=Verdict.ERROR, reason=f"no decision: {message}"
        )
    finding = finding.model_copy(update={"failures": (*finding.failures, *failures)})
    controls = stats.judged_controls(track.body, outcomes)
    # Arms that are no subject of the claim (controls, floors measured once) do not decide which seeds are finished.
    aside = (*stats.control_arms(track.body), *getattr(track.body, "floors", ()))
    ran = past.ran(outcomes, arms=aside, controls=controls)
    finished = {outcome.trial.seed for outcome in outcomes if outcome.record is not None}
    described = _describe(track, finding, tuple(seed for seed in seeds if seed in finished), seconds)
    finding = stats.enforce(described, kind=track.kind, ran=ran)
    if any(outcome.trial.budget == "smoke" for outcome in outcomes):
        finding = stats.first_look(finding, kind=track.kind)
    return finding if finding.score is not None else finding.model_copy(update={"score": stats.headline_score(finding)})


def _describe(track: Track, finding: Finding, seeds: tuple[int, ...], seconds: float) -> Finding:
    return finding.model_copy(
        update={
            "number": track.number,
            "name": track.name,
            "title": track.title,
            "subject": finding.subject or track.title,
            "claim": track.claim,
            "experiment": finding.experiment or track.experiment,
            "seeds": seeds,
            "seconds": seconds,
        }
    )


def _unfinished(track: Track) -> Finding:
    reason = "not finished: an earlier track failed and --fail-fast stopped the run"
    undecided = Finding(subject=track.title, claim=track.claim, verdict=Verdict.INCONCLUSIVE, reason=reason)
    return _describe(track, undecided, (), 0.0)


def _unplanned(track: Track, error: BaseException) -> Finding:
    message = printable(f"{type(error).__name__}: {error}")
    failure = Failure(
        label=f"track {track.number} plan", kind=type(error).__name__, message=message,
        traceback=printable(traceback.format_exc()),
    )
    reason = f"its trials could not be planned: {message}"
    finding = Finding(
        subject=track.title, claim=track.claim, verdict=Verdict.ERROR, reason=reason, failures=(failure,))
    return _describe(track, finding, (), 0.0)


def _broken(name: str, failure: Failure) -> Finding:
    return Finding(
        subject=f"plugin {name}",
        name=name,
        claim="This plugin's tracks can be loaded.",
        verdict=Verdict.ERROR,
        reason=failure.message,
        failures=(failure,),
    )
