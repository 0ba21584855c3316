"""One study: questions in, answers out. Every question plans trials, each trial is a cell, the engine runs the cells,
and a question is decided as soon as its last outcome is in.

Verification, the benchmark, the search for settings, the reproduction and the depth baselines are studies: nothing else
calls the engine, tells the watcher or writes the head of a Run.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from assay.engine import LocalExecutor, Store, capture, describe_grouping, execute, run_id
from assay.protocols import Cell, CellEvent, CellResult, Executor, Outcome, Outcomes, Trial, Watcher
from assay.results import Finding, Run, Verdict
from assay.studies.looks import Past

DEFAULT_ROOT = Path("assay-runs")
Decide = Callable[[Outcomes, Mapping[str, Past]], Sequence[Finding]]


@dataclass(frozen=True)
class Planned:
    """A trial and the cell that measures it. Two trials may share a cell: a control that repeats an arm is that arm."""

    trial: Trial
    cell: Cell


@dataclass(frozen=True)
class Question:
    """What is asked (a track, a task of the benchmark), the trials that answer it and the decision over them.

    Without ``decide`` the outcomes are gathered and nothing is found: for whoever decides over several questions.
    """

    key: str
    title: str
    planned: tuple[Planned, ...]
    decide: Decide | None = None
    claims: tuple[str, ...] = ()
    """What the findings claim, in their order; looks at each are kept account of in the store."""
    seeds: tuple[int, ...] = ()
    code: str = ""
    """A fingerprint of what measures and decides: looks by other code are other looks."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of the trials, each once."""
        return tuple({each.cell.key: each.cell for each in self.planned}.values())


@dataclass(frozen=True)
class Place:
    """Where and how a study is computed; ``Place()`` is this machine and ``assay-runs/cells``."""

    store: str | Path | None = None
    executor: Executor | None = None
    workers: int | None = None
    grouping: bool = True
    watcher: Watcher | None = None


@dataclass(frozen=True)
class Conclusions:
    """What came of a study, by question; a question that was not finished has no findings."""

    outcomes: Mapping[str, Outcomes]
    findings: Mapping[str, tuple[Finding, ...]]
    seconds: float
    facts: Mapping[str, Any]
    """How the cells were planned, computed and found, for the configuration in a run."""


def never(finding: Finding) -> bool:
    """No finding ends the study: every question is answered."""
    del finding
    return False


def ends_badly(finding: Finding) -> bool:
    """What ``--fail-fast`` stops at."""
    return finding.verdict in (Verdict.FAIL, Verdict.ERROR)


@dataclass(frozen=True)
class Study:
    """Questions that are computed together.

    >>> Study(()).answer(Place(store="memory://nothing")).findings                          # doctest: +SKIP
    {}
    """

    questions: tuple[Question, ...]
    stop: Callable[[Finding], bool] = never
    """Whether this finding ends the study before the others are answered."""

    def answer(self, place: Place) -> Conclusions:
        """Run every cell that is not in the store yet, and decide each question when its last one is in."""
        start = time.perf_counter()
        store = Store(place.store if place.store is not None else DEFAULT_ROOT / "cells")
        ledger = store.ledger()
        pasts = {q.key: {c: Past.of(ledger, c, q.seeds, code=q.code) for c in q.claims} for q in self.questions}
        results: dict[str, CellResult] = {}
        findings: dict[str, tuple[Finding, ...]] = {}
        watcher = place.watcher
        if watcher is not None:
            watcher.planned({q.key: q.title for q in self.questions}, {q.key: q.cells for q in self.questions})
        waiting = {q.key: {cell.key for cell in q.cells} for q in self.questions}
        plan = store.write_plan({q.key: [each.cell.key for each in q.planned] for q in self.questions})
        asked_by: dict[str, list[Question]] = {}
        for question in self.questions:
            for cell in question.cells:
                asked_by.setdefault(cell.key, []).append(question)
        stream = execute(
            [cell for question in self.questions for cell in question.cells], store=store,
            executor=place.executor or LocalExecutor(place.workers), notify=watcher.event if watcher else _ignore,
            grouping=place.grouping,
        )
        for result in stream:
            results[result.cell.key] = result
            for question in asked_by[result.cell.key]:
                waiting[question.key].discard(result.cell.key)
                if waiting[question.key] or question.decide is None:
                    continue
                past = pasts[question.key]
                findings[question.key] = tuple(question.decide(_outcomes(question, results), past))
                # A smoke run has findings and no claims: it decides nothing, and no look at a claim is spent on it.
                for claim, finding in zip(question.claims, findings[question.key], strict=False):
                    complete = all(results[cell.key].record is not None for cell in question.cells)
                    past[claim].saw(ledger, finding, complete=complete)
                if watcher is not None and findings[question.key]:
                    watcher.decided(question.key, max(findings[question.key], key=lambda f: f.verdict.severity))
            if any(self.stop(finding) for found in findings.values() for finding in found):
                break
        return Conclusions(
            {question.key: _outcomes(question, results) for question in self.questions}, findings,
            time.perf_counter() - start,
            {"grouping": describe_grouping(r.together for r in results.values()), "plan": plan, **store.notes()},
        )


def make_run(
    kind: Literal["verify", "audit", "bench", "reproduce", "selftest"], title: str, findings: Iterable[Finding], *,
    identity: Mapping[str, Any], command: str, seconds: float = 0.0, **body: Any,
) -> Run:
    """A Run with its head: the name (from the time and ``identity``), the date, the environment and the command."""
    now = datetime.now(UTC)
    return Run(
        id=run_id(now, **identity), kind=kind, title=title, created=now.isoformat(timespec="seconds"), command=command,
        seconds=seconds, environment=capture(), findings=tuple(findings), **body,
    )


def command_line() -> str:
    """The command that started this process, ready to paste into a shell."""
    return shlex.join(["assay", *sys.argv[1:]])


def _outcomes(question: Question, results: Mapping[str, CellResult]) -> Outcomes:
    """The outcomes of a question so far, in the order of its plan."""
    pairs = [(each.trial, results[each.cell.key]) for each in question.planned if each.cell.key in results]
    return Outcomes(tuple(Outcome(trial, r.record, r.failure, r.seconds, r.cached) for trial, r in pairs))


def _ignore(event: CellEvent) -> None:
    del event
