"""The evidence behind a finding, fetched from the store and judged again, without running anything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay.engine import Store
from assay.engine.store.cells import StoredCell
from assay.engine.store.keys import UNKNOWN
from assay.engine.store.plans import StoredPlan
from assay.errors import FOREIGN, AssayError, InputError
from assay.protocols import BUDGETS, Cell, Outcome, Outcomes, Trial
from assay.registry import registry
from assay.results import Evidence, Finding, Measurement, Run
from assay.studies.bench.cells import RESTARTED, SHUFFLED
from assay.studies.bench.decide import name_of
from assay.studies.bench.run import Matrix
from assay.studies.looks import Past
from assay.studies.study import Question
from assay.studies.verification import question

WITH_CELLS = ("verify", "selftest", "bench")
"""Kinds of runs whose findings were decided from cells."""
ROUNDING = 1e-9
"""Relative difference of two numbers computed from the same records: libraries of another build may sum otherwise."""


@dataclass(frozen=True)
class Piece:
    """One trial that a finding rests on: its cell as planned, the key it was stored under, and what the store holds."""

    trial: Trial
    cell: Cell
    key: str
    stored: StoredCell | None
    altered: bool = False
    """Whether there is a file of this cell that is not what was written."""

    @property
    def vouched(self) -> bool:
        """Whether somebody known signed it."""
        return self.stored is not None and not self.stored.signer.startswith(UNKNOWN)


@dataclass(frozen=True)
class TracedFinding:
    """A finding of a run with all that could be found of its evidence; ``obstacle`` says why there is none."""

    finding: Finding
    question: Question | None = None
    controls: tuple[str, ...] = ()
    """The arms whose answer is known beforehand."""
    pieces: tuple[Piece, ...] = ()
    plan: StoredPlan | None = None
    other_code: bool = False
    """Whether the cells were computed by code that is not the code here."""
    obstacle: str = ""
    pasts: Mapping[str, Past] = field(default_factory=dict)
    """By claim, the looks that had gone before when the finding was made."""

    @property
    def missing(self) -> tuple[Piece, ...]:
        return tuple(piece for piece in self.pieces if piece.stored is None)

    def again(self) -> Finding:
        """The finding, decided anew from the stored cells."""
        assert self.question is not None and self.question.decide is not None
        found = [
            Outcome(piece.trial, piece.stored.record, None, piece.stored.seconds)
            for piece in self.pieces if piece.stored is not None
        ]
        decided = self.question.decide(Outcomes(tuple(found)), self.pasts)
        return next((each for each in decided if each.name == self.finding.name), decided[0])


@dataclass(frozen=True)
class Discrepancy:
    """Something the page says and the cells do not."""

    what: str
    page: str
    cells: str


def trace(run: Run, finding: Finding, store: Store | None) -> TracedFinding:
    """The cells of a finding: by the plan that was written before them, else by the plan its question makes here."""
    if store is None or run.kind not in WITH_CELLS:
        command = finding.rerun or run.command
        again = f"; issue the command that made it again: {command}" if command else ""
        obstacle = f"a run of kind {run.kind} keeps no cells to decide this again from{again}"
        return TracedFinding(finding, obstacle=obstacle)
    try:
        asked, controls = _asked(run, finding)
    except AssayError as error:
        return TracedFinding(finding, obstacle=str(error))
    except FOREIGN as error:
        return TracedFinding(finding, obstacle=f"its trials cannot be planned here: {type(error).__name__}: {error}")
    kept = store.read_plan(str(run.config.get("plan", "")))
    keys = [each.cell.key for each in asked.planned]
    written = kept.cells.get(asked.key) if kept else None
    if written is not None and len(written) == len(keys):
        keys = list(written)
    found = store.get_all(keys)
    altered = {text.partition(".")[0] for text in store.damaged}
    pieces = tuple(
        Piece(each.trial, each.cell, key, stored, key in altered)
        for each, key, stored in zip(asked.planned, keys, found, strict=True)
    )
    other = any(piece.cell.key != piece.key for piece in pieces)
    ledger = store.ledger()
    pasts = {claim: Past.again(ledger, claim, asked.seeds, code=asked.code) for claim in asked.claims}
    return TracedFinding(finding, asked, controls, pieces, kept if written is not None else None, other, pasts=pasts)


def _asked(run: Run, finding: Finding) -> tuple[Question, tuple[str, ...]]:
    """The question a finding answers, and the arms of it whose answer is known beforehand."""
    if run.kind == "bench":
        matrix, tasks = Matrix.of(run)
        names = {name_of(task.name, arm): task for task in tasks for arm in matrix.compared}
        task = names.get(finding.name)
        if task is None:
            raise InputError(f"the run did not ask for the task of '{finding.name}'")
        asked = matrix.question(task)
        known = (each.trial.arm for each in asked.planned if each.cell.payload["twist"] in (RESTARTED, SHUFFLED))
        return asked, tuple(dict.fromkeys(known))
    if finding.number is None:
        raise InputError("it names no track that could decide it again")
    track = registry.find(finding.number)
    budget = next((budget for budget in BUDGETS if budget == run.budget), None)
    if track.name != finding.name or budget is None or not finding.seeds:
        here = f"track {track.number} is called {track.name} here"
        raise InputError(f"{here}; the run has '{finding.name}', budget '{run.budget}'")
    controls = (str(arm) for control in track.body.controls for arm in getattr(control, "arms", (control,)))
    # The page names the seeds that were run; the plan was made for those that were asked for.
    asked_for = run.config.get("seeds")
    seeds = tuple(map(int, asked_for)) if isinstance(asked_for, list) and asked_for else finding.seeds
    return question(track, budget, seeds), tuple(controls)


def differences(page: Finding, cells: Finding) -> list[Discrepancy]:
    """Where a finding says something else than the same finding decided anew."""
    found = []
    if page.verdict is not cells.verdict:
        found.append(Discrepancy("verdict", str(page.verdict), f"{cells.verdict}: {cells.reason}"))
    if _level(page.evidence) > _level(cells.evidence):
        found.append(Discrepancy("evidence level", str(page.evidence), str(cells.evidence)))
    if page.headline != cells.headline:
        found.append(Discrepancy("deciding measurement", str(page.headline), str(cells.headline)))
    found += _measurements(page.measurements, cells.measurements)
    told = {control.name: control.separated for control in cells.controls}
    for control in page.controls:
        if told.get(control.name) != control.separated:
            here = {True: "told apart", False: "not told apart", None: "was not run"}
            found.append(Discrepancy(
                f"control {control.name}", here[control.separated], here[told.get(control.name)]))
    return found


def _measurements(page: Sequence[Measurement], cells: Sequence[Measurement]) -> list[Discrepancy]:
    found = []
    known = {measurement.name: measurement for measurement in cells}
    for said in page:
        here = known.pop(said.name, None)
        if here is None:
            found.append(Discrepancy(said.name, _said(said), "not measured"))
            continue
        same = _close(said.value, here.value) and said.n == here.n
        if said.interval is not None and here.interval is not None:
            same = same and _close(said.interval.low, here.interval.low)
            same = same and _close(said.interval.high, here.interval.high)
        elif said.interval is not here.interval:
            same = False
        if not same:
            found.append(Discrepancy(said.name, _said(said), _said(here)))
    found += [Discrepancy(left.name, "left out", _said(left)) for left in known.values() if left.region is not None]
    return found


def _said(measurement: Measurement) -> str:
    value = "none" if measurement.value is None else f"{measurement.value:.6g}"
    return f"{value} (n = {measurement.n})" + (f" {measurement.interval}" if measurement.interval else "")


def _close(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return first == second or (math.isnan(first) and math.isnan(second)) or math.isclose(
        first, second, rel_tol=ROUNDING, abs_tol=1e-300)


def _level(evidence: Evidence | None) -> int:
    return -1 if evidence is None else list(Evidence).index(evidence)


def records_by_arm(pieces: Sequence[Piece]) -> Mapping[str, int]:
    """How many records the store holds of each arm that was planned."""
    counts: dict[str, int] = {}
    for piece in pieces:
        counts[piece.trial.arm] = counts.get(piece.trial.arm, 0) + (piece.stored is not None)
    return counts
