"""Two or more runs side by side as one self-contained HTML page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from assay.errors import expected
from assay.reports.charts import strips
from assay.reports.compare import ClaimChange, Comparison, Difference, compare, environment_changes
from assay.reports.html import asset, date, environment, policy
from assay.results import Run, Verdict

SIGNS = {"same": "= same", "better": "↑ better", "worse": "↓ worse", "added": "+ added", "missing": "− missing"}


def compare_html(runs: Sequence[Run], *, back: str = "") -> str:
    """The page for ``runs``, oldest first; the first is the baseline. ``back`` links to a list of runs."""
    if len(runs) < 2:
        raise expected("two runs or more to compare", given=f"{len(runs)}")
    css, script = asset("report.css"), asset("report.js")
    comparisons = [compare(runs[0], run) for run in runs[1:]]
    rows = _rows(comparisons)
    regressions = sum(row.last.regression for row in rows)
    return (
        environment()
        .get_template("compare.html")
        .render(
            runs=runs,
            letters=[_letter(index) for index in range(len(runs))],
            dates=[date(run.created) for run in runs],
            rows=rows,
            regressions=regressions,
            headline_text=_headline(comparisons[-1]),
            pairs=[_pair(comparison) for comparison in comparisons],
            facts=_facts(runs),
            back=back,
            policy=policy(css, script),
            css=Markup(css),
            script=Markup(script),
        )
    )


@dataclass(frozen=True)
class _ComparedRow:
    verdicts: tuple[Verdict | None, ...]
    last: ClaimChange

    @property
    def sign(self) -> str:
        return SIGNS[self.last.change]


@dataclass(frozen=True)
class _Moved:
    title: str
    difference: Difference
    picture: Markup


@dataclass(frozen=True)
class _Pair:
    moved: tuple[_Moved, ...]
    identical: int


@dataclass(frozen=True)
class _Fact:
    name: str
    cells: tuple[str, ...]


def _rows(comparisons: Sequence[Comparison]) -> list[_ComparedRow]:
    by_key = [{claim.key: claim for claim in comparison.claims} for comparison in comparisons]
    keys = dict.fromkeys(key for claims in reversed(by_key) for key in claims)
    rows = []
    for key in keys:
        known = [claims.get(key) for claims in by_key]
        some = next(claim for claim in known if claim is not None)
        # A claim that neither the first nor the last run examined was added and dropped in between.
        last = known[-1] or some.model_copy(update={"after": None})
        rows.append(_ComparedRow((some.before, *(claim.after if claim else None for claim in known)), last))
    return sorted(rows, key=lambda row: (not row.last.regression, row.last.change == "same"))


def _pair(comparison: Comparison) -> _Pair:
    moved, identical = [], 0
    for claim in comparison.claims:
        for difference in claim.differences:
            if difference.identical:
                identical += 1
            else:
                moved.append(
                    _Moved(claim.title, difference, strips.differences(difference.differences, difference.name))
                )
    moved.sort(key=lambda item: -_size(item.difference))
    return _Pair(tuple(moved), identical)


def _size(difference: Difference) -> float:
    # Relative to the earlier value, so that the largest change comes first whatever its unit.
    if difference.before is None or difference.after is None or math.isnan(difference.after - difference.before):
        return math.inf
    return abs(difference.after - difference.before) / (abs(difference.before) or 1.0)


def _facts(runs: Sequence[Run]) -> list[_Fact]:
    names: dict[str, str] = {}
    changes = []
    for run in runs[1:]:
        found = {change.name: change for change in environment_changes(runs[0], run)}
        names.update({name: change.before for name, change in found.items()})
        changes.append(found)
    return [
        _Fact(name, (before, *(found[name].after if name in found else before for found in changes)))
        for name, before in names.items()
    ]


def _headline(comparison: Comparison) -> str:
    regressions, changed = len(comparison.regressions), len(comparison.changed)
    if regressions:
        return f"{regressions} regression{'' if regressions == 1 else 's'} since the first run."
    if changed:
        return f"No regression; {changed} claim{'' if changed == 1 else 's'} changed."
    return "No verdict changed."


def _letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else f"R{index + 1}"
