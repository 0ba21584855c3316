"""The evidence behind a finding, fetched from the store and judged again, without running anything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay.engine import Store
from assay.engine.store.cells import StoredCell
from assay.engine.store.plans import StoredPlan
from assay.errors import FOREIGN, AssayError
from assay.protocols import BUDGETS, Cell, Outcome, Outcomes, Trial
from assay.registry import registry
from assay.results import Evidence, Finding, Measurement, Run
from assay.studies.looks import Past
from assay.studies.study import Question
from assay.studies.verification import question

ROUNDING = 1e-9
"""Relative difference of two numbers computed from the same records: libraries of another build may sum otherwise."""


@dataclass(frozen=True)
class Piece:
    """One trial that a finding rests on: its cell as planned, the key it was stored under, and what the store holds."""

    trial: Trial
    cell: Cell
    key: str
    stored: StoredCell | None


@dataclass(frozen=True)
class Traced:
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
        return self.question.decide(Outcomes(tuple(found)), self.pasts)[0]


@dataclass(frozen=True)
class Difference:
    """Something the page says and the cells do not."""

    what: str
    page: str
    cells: str


def trace(run: Run, finding: Finding, store: Store) -> Traced:
    """The cells of a finding: by the plan that was written before them, else by the plan its track makes here."""
    if finding.number is None or run.kind not in ("verify", "selftest"):
        return Traced(finding, obstacle=f"a {run.kind} run has no track to decide this again")
    try:
        track = registry.find(finding.number)
    except AssayError as error:
        return Traced(finding, obstacle=str(error))
    if track.name != finding.name or run.budget not in BUDGETS or not finding.seeds:
        here = f"track {track.number} is called {track.name} here"
        return Traced(finding, obstacle=f"{here}; the run has '{finding.name}', budget '{run.budget}'")
    try:
        asked = question(track, next(budget for budget in BUDGETS if budget == run.budget), finding.seeds)
    except FOREIGN as error:
        return Traced(finding, obstacle=f"its trials cannot be planned here: {type(error).__name__}: {error}")
    kept = store.read_plan(str(run.config.get("plan", "")))
    keys = [each.cell.key for each in asked.planned]
    written = kept.cells.get(asked.key) if kept else None
    if written is not None and len(written) == len(keys):
        keys = list(written)
    pieces = tuple(
        Piece(each.trial, each.cell, key, stored)
        for each, key, stored in zip(asked.planned, keys, store.get_all(keys), strict=True)
    )
    other = any(piece.cell.key != piece.key for piece in pieces)
    controls = tuple(str(arm) for control in track.body.controls for arm in getattr(control, "arms", (control,)))
    ledger = store.ledger()
    pasts = {claim: Past.again(ledger, claim, asked.seeds, code=asked.code) for claim in asked.claims}
    return Traced(finding, asked, controls, pieces, kept if written is not None else None, other, pasts=pasts)


def differences(page: Finding, cells: Finding) -> list[Difference]:
    """Where a finding says something else than the same finding decided anew."""
    found = []
    if page.verdict is not cells.verdict:
        found.append(Difference("verdict", str(page.verdict), f"{cells.verdict}: {cells.reason}"))
    if _level(page.evidence) > _level(cells.evidence):
        found.append(Difference("evidence level", str(page.evidence), str(cells.evidence)))
    if page.headline != cells.headline:
        found.append(Difference("deciding measurement", str(page.headline), str(cells.headline)))
    found += _measurements(page.measurements, cells.measurements)
    told = {control.name: control.separated for control in cells.controls}
    for control in page.controls:
        if told.get(control.name) != control.separated:
            here = {True: "told apart", False: "not told apart", None: "was not run"}
            found.append(Difference(
                f"control {control.name}", here[control.separated], here[told.get(control.name)]))
    return found


def _measurements(page: Sequence[Measurement], cells: Sequence[Measurement]) -> list[Difference]:
    found = []
    known = {measurement.name: measurement for measurement in cells}
    for said in page:
        here = known.pop(said.name, None)
        if here is None:
            found.append(Difference(said.name, _said(said), "not measured"))
            continue
        same = _close(said.value, here.value) and said.n == here.n
        if said.interval is not None and here.interval is not None:
            same = same and _close(said.interval.low, here.interval.low)
            same = same and _close(said.interval.high, here.interval.high)
        elif said.interval is not here.interval:
            same = False
        if not same:
            found.append(Difference(said.name, _said(said), _said(here)))
    found += [Difference(left.name, "left out", _said(left)) for left in known.values() if left.region is not None]
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
