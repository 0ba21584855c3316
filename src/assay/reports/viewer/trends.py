"""How each claim fared over the runs of a folder, oldest first, named by git revision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from assay.reports import words
from assay.reports.compare import claim_key
from assay.results import Figure, Finding, Measurement, Reference, Run, Series, Verdict

MOST_COLUMNS = 24
"""Runs side by side; older ones are counted, not shown."""


@dataclass(frozen=True)
class TrendPoint:
    """One run's word on a claim."""

    run: str
    revision: str
    verdict: Verdict | None


@dataclass(frozen=True)
class Trend:
    """One claim over the runs, and the picture of its deciding number if it has one."""

    title: str
    claim: str
    steps: tuple[TrendPoint, ...]
    figure: Figure | None

    @property
    def changes(self) -> int:
        """How often the verdict changed between runs that examined the claim."""
        seen = [step.verdict for step in self.steps if step.verdict is not None]
        return sum(a is not b for a, b in pairwise(seen))


@dataclass(frozen=True)
class Column:
    """One run at the head of the matrix."""

    run: str
    revision: str
    day: str


@dataclass(frozen=True)
class ClaimsByRuns:
    """Claims by runs, oldest first; ``left_out`` counts older runs that have no column."""

    title: str
    columns: tuple[Column, ...]
    trends: tuple[Trend, ...]
    left_out: int = 0


def matrices(runs: Sequence[tuple[str, Run]]) -> list[ClaimsByRuns]:
    """One matrix for what was verified and measured, one for audits: they are run for other reasons at other times."""
    kinds = (("Verifications and benchmarks", False), ("Audits", True))
    found = []
    for title, audits in kinds:
        mine = sorted((item for item in runs if (item[1].kind == "audit") is audits), key=lambda item: item[1].created)
        shown = mine[-MOST_COLUMNS:]
        if shown:
            columns = tuple(Column(name, _head(run), run.created[:10]) for name, run in shown)
            found.append(ClaimsByRuns(title, columns, tuple(trends(shown)), len(mine) - len(shown)))
    return found


def trends(runs: Sequence[tuple[str, Run]]) -> list[Trend]:
    """The trend of every claim in ``runs`` (name and run), those that changed most first."""
    ordered = sorted(runs, key=lambda item: item[1].created)
    by_claim: dict[str, dict[int, Finding]] = {}
    for index, (_, run) in enumerate(ordered):
        for finding in run.findings:
            by_claim.setdefault(claim_key(finding), {}).setdefault(index, finding)
    found = [_trend(ordered, findings) for findings in by_claim.values()]
    return sorted(found, key=lambda trend: -trend.changes)


def revision(run: Run) -> str:
    """The short git revision with a star if the tree was dirty, else the day of the run."""
    environment = run.environment
    if not environment.git_revision:
        return run.created[:10]
    return environment.git_revision[:7] + ("*" if environment.git_dirty else "")


def _head(run: Run) -> str:
    """The revision, or the time of day of a run that knows none: the day stands below."""
    return revision(run) if run.environment.git_revision else run.created[11:16] or run.created


def _trend(runs: Sequence[tuple[str, Run]], findings: dict[int, Finding]) -> Trend:
    last = findings[max(findings)]
    steps = tuple(
        TrendPoint(name, revision(run), findings[index].verdict if index in findings else None)
        for index, (name, run) in enumerate(runs)
    )
    return Trend(words.named(last), last.claim, steps, _figure(runs, findings, last))


def _figure(runs: Sequence[tuple[str, Run]], findings: dict[int, Finding], last: Finding) -> Figure | None:
    decided = words.headline(last)
    if decided is None or len(findings) < 2:
        return None
    points: list[tuple[int, Measurement]] = []
    for index, finding in findings.items():
        measured = words.headline(finding)
        if measured and measured.name == decided.name and measured.unit == decided.unit and measured.value is not None:
            points.append((index, measured))
    if len(points) < 2:
        return None
    values = tuple(m.value if m.value is not None else 0.0 for _, m in points)
    low = tuple(m.interval.low if m.interval else v for (_, m), v in zip(points, values, strict=True))
    high = tuple(m.interval.high if m.interval else v for (_, m), v in zip(points, values, strict=True))
    limits = decided.region
    edges = [value for value in (limits.low, limits.high) if value is not None] if limits else []
    seen = [*values, *low, *high, *edges]
    wide = min(seen) > 0 and max(seen) > 100 * min(seen)
    bounds = (("lower limit", limits.low), ("upper limit", limits.high)) if limits else ()
    return Figure(
        key="trend",
        question=f"How did the {decided.name} move over the runs?",
        x_label="git revision",
        y_label=words.with_unit(decided.name, f"({decided.unit})" if decided.unit != "1" else ""),
        y_scale="log" if wide else "linear",
        categories=tuple(revision(run) for _, run in runs),
        series=(Series(name=decided.name, x=tuple(i for i, _ in points), y=values, low=low, high=high, style="dots"),),
        references=tuple(Reference(value=value, label=label) for label, value in bounds if value is not None),
    )
