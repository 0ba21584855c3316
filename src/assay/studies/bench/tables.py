"""What a benchmark shows: the results matrix, the statistical report, the published table row by row, and pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from assay import stats
from assay.results import Figure, Finding, Measurement, Table
from assay.studies.arms import Arm
from assay.studies.bench.decide import P_VALUE, deviation, paired, percent, time_ratio
from assay.studies.bench.measured import Measured

PUBLISHED: Mapping[str, tuple[float, float, float, float]] = {
    "digits": (97.04, 0.35, 94.63, 0.73),
    "mnist": (94.91, 0.05, 94.22, 0.08),
    "fashion-mnist": (83.25, 0.33, 83.32, 0.21),
    "cartpole-bc": (99.80, 0.08, 97.13, 1.64),
    "acrobot-bc": (97.97, 0.47, 96.83, 1.17),
}
"""The published table, in per cent: backprop mean and sd, LoopedMLP with spectral normalisation mean and sd."""
PUBLISHED_SEEDS = 3


def results_matrix(evidence: Mapping[str, Measured], arms: Sequence[Arm], findings: Mapping[str, Finding]) -> Table:
    """One row per task and arm: mean ± sd, gap with its interval and verdict, time, worst seed, floors, return."""
    rows: list[tuple[object, ...]] = []
    for task, found in evidence.items():
        for arm in arms:
            values = found.scores(arm.name)
            finding = findings.get(f"{task}/{arm.name}")
            rows.append((task, arm.name, *_accuracy(values), *_gap(finding), *_worst(found, arm, values),
                         _rounded(time_ratio(found, arm) if arm != arm.baseline else None, 2), _returns(found, arm),
                         *_floors(found), _rounded(finding.score if finding else None, 0)))
    mixed = any(found.metric.key != "accuracy" for found in evidence.values())
    columns = ("task", "arm", "score" if mixed else "accuracy [%]", "sd", "n", "gap [pp]", "interval", "verdict",
               "worst seed [%]", "at seed",
               "time ratio", "return", "chance", "majority", "logistic", "score")
    note = ("Gap: arm minus its baseline over paired seeds. Verdict: two one-sided tests at the declared margin. Time: "
            "training, wall clock, arm over baseline. Floors: test accuracy in per cent of guessing, of the commonest "
            "class and of logistic regression (at most 10,000 training items).")
    if mixed:
        note += (" Regression tasks: root mean squared error in units of the target; their floors are the mean "
                 "predictor, nearest neighbours and ridge regression.")
    return Table(title="Results matrix", columns=columns, rows=tuple(rows), note=note)  # type: ignore[arg-type]


def statistical_report(findings: Sequence[Finding], *, margin: float | Mapping[str, float]) -> Table:
    """One row per comparison: n, interval, p, Holm's p over all comparisons, spread, power and seeds it would take."""
    judged = [(finding, _named(finding, P_VALUE)) for finding in findings]
    adjusted = stats.holm([p.value if p and p.value is not None else 1.0 for _, p in judged])
    rows = []
    for (finding, p_value), holm in zip(judged, adjusted, strict=True):
        limit = margin.get(finding.name, math.nan) if isinstance(margin, Mapping) else margin
        gap = _named(finding, finding.headline)
        # Gaps that vary less than one test item are judged item by item: their spread over seeds says nothing of power.
        by_items = gap is not None and gap.interval is not None and "item" in gap.interval.method
        spread = deviation(gap.values) if gap and not by_items else None
        rows.append((
            finding.name, gap.n if gap else 0, finding.verdict.value, str(finding.evidence or ""),
            _rounded(gap.value if gap else None, 3), str(gap.interval) if gap and gap.interval else "",
            _figures(p_value.value if p_value else None), _figures(holm if p_value else None),
            _rounded(spread, 3),
            _rounded(stats.power(limit, spread, gap.n) if gap and spread and limit > 0 else None, 2),
            _rounded(stats.minimal_margin(spread, gap.n) if gap and spread else None, 2),
            stats.seeds_needed(limit, spread) if spread and limit > 0 else None,
        ))
    columns = ("comparison", "n", "verdict", "evidence", "gap [pp]", "interval", "p (TOST)", "p (Holm)",
               "sd of the paired gap", "power at gap 0", "smallest margin at 80 % power", "seeds for 80 % power")
    told = sorted({f"{each:.4g}" for each in (margin.values() if isinstance(margin, Mapping) else [margin])})
    note = (f"Claim: |gap| < {' or '.join(told) or 'margin'}, each at alpha 0.05. 'All tasks hold' is an "
            "intersection-union claim and needs no correction; as separate discoveries, read Holm's p. Power and "
            "margins assume the spread seen.")
    return Table(title="Statistical report", columns=columns, rows=tuple(rows), note=note)


def over_tasks(evidence: Mapping[str, Measured], arms: Sequence[Arm], *, seed: int) -> Table:
    """Each arm over all tasks: interquartile mean of accuracy and of the gap, with an interval from 10 seeds on."""
    rows = []
    evidence = {task: found for task, found in evidence.items() if found.metric.key == "accuracy"}
    for arm in arms:
        runs = {t: percent([float(r["accuracy"]) for r in e.of(arm.name).values()]) for t, e in evidence.items()}
        gaps = {}
        for task, found in evidence.items():
            _, ours, theirs = paired(found.of(arm.name), found.of(arm.baseline.name), "accuracy")
            gaps[task] = [a - b for a, b in zip(percent(ours), percent(theirs), strict=True)]
        runs, gaps = ({k: v for k, v in table.items() if v} for table in (runs, gaps))
        if not runs:
            continue
        accuracy, gap = stats.iqm(runs, seed=seed), stats.iqm(gaps, seed=seed) if gaps else None
        worst = min(((sum(v) / len(v), k) for k, v in gaps.items()), default=None)
        rows.append((
            arm.name, len(runs), accuracy.n, _rounded(accuracy.value, 2), str(accuracy.interval or ""),
            _rounded(gap.value if gap else None, 2), str(gap.interval or "") if gap else "",
            f"{worst[0]:+.2f} ({worst[1]})" if worst and arm != arm.baseline else "",
        ))
    columns = ("arm", "tasks", "runs", "IQM accuracy [%]", "interval", "IQM gap [pp]", "gap interval",
               "worst task gap [pp]")
    note = "Interquartile mean: the mean of the middle half of all runs. Fewer than ten seeds per task: no interval."
    return Table(title="Over all tasks", columns=columns, rows=tuple(rows), note=note)


def against_published(evidence: Mapping[str, Measured], *, margin: float) -> Table | None:
    """The published table beside ours, row by row; None if no task of it was run with one of its arms."""
    rows: list[tuple[object, ...]] = []
    for task, (base, base_sd, looped, looped_sd) in PUBLISHED.items():
        found = evidence.get(task)
        if found is None:
            continue
        for name, claimed, claimed_sd in (("backprop/mlp", base, base_sd), ("original/looped", looped, looped_sd),
                                          ("eqprop/mlp", looped, looped_sd)):
            values = percent([float(record["accuracy"]) for record in found.of(name).values()])
            if not values:
                continue
            decision = stats.reproduces(values, claimed, margin=margin, reference_sd=claimed_sd,
                                        reference_n=PUBLISHED_SEEDS, unit="pp")
            mean = sum(values) / len(values)
            rows.append((task, name, claimed, claimed_sd, *_accuracy(values), _rounded(mean - claimed, 2),
                         decision.verdict.value))
    if not rows:
        return None
    columns = ("task", "our arm", "published [%]", "sd", "ours [%]", "our sd", "n", "difference [pp]",
               f"within ± {margin:g} pp")
    note = ("Published with 3 seeds. The published LoopedMLP is set beside our LoopedMLP with its settings "
            "(original/looped) and beside the tuned EnergyMLP. Hidden sizes, epochs and the experts' data of the "
            "published table are not all stated, so a difference need not be an error of either.")
    title = "The published table, row by row"
    return Table(title=title, columns=columns, rows=tuple(rows), note=note)  # type: ignore[arg-type]


def gap_heatmap(
    evidence: Mapping[str, Measured], arms: Sequence[Arm], findings: Mapping[str, Finding]
) -> Figure | None:
    """Mean gaps of every arm on every task with the verdict on each; None where no comparison was finished."""
    compared = [arm for arm in arms if arm != arm.baseline]
    grid, names, notes = [], [], []
    for task, found in evidence.items():
        if found.metric.key != "accuracy":
            continue
        row = []
        for arm in compared:
            _, ours, theirs = paired(found.of(arm.name), found.of(arm.baseline.name), "accuracy")
            row.append(100 * (sum(ours) - sum(theirs)) / len(ours) if ours else float("nan"))
        if any(value == value for value in row):
            grid.append(tuple(row))
            names.append(task)
            notes.append(tuple(findings[f"{task}/{arm.name}"].verdict.value for arm in compared))
    margins = {found.margin for found in evidence.values() if found.metric.key == "accuracy"}
    if not grid or not compared:
        return None
    return Figure(
        key="gaps", question="Where does each rule stand against backprop?", kind="heatmap", grid=tuple(grid),
        row_names=tuple(names), categories=tuple(arm.name for arm in compared), notes=tuple(notes),
        margin=margins.pop() if len(margins) == 1 else None,
        caption="Mean test accuracy minus that of backprop, in percentage points; paired seeds. What lies beyond the "
        "margin is framed.",
    )


def _named(finding: Finding, name: str | None) -> Measurement | None:
    return next((m for m in finding.measurements if m.name == name), None)


def _accuracy(values: Sequence[float]) -> tuple[float | None, float | None, int]:
    if not values:
        return None, None, 0
    return _rounded(sum(values) / len(values), 2), _rounded(deviation(values), 2), len(values)


def _gap(finding: Finding | None) -> tuple[float | None, str, str]:
    if finding is None:
        return None, "", "baseline"
    gap = _named(finding, finding.headline)
    if gap is None:
        return None, "", finding.verdict.value
    ends = f"[{gap.interval.low:+.2f}, {gap.interval.high:+.2f}]" if gap.interval else ""
    return _rounded(gap.value, 2), ends, finding.verdict.value


def _worst(found: Measured, arm: Arm, values: Sequence[float]) -> tuple[float | None, int | None]:
    if not values:
        return None, None
    seeds, worst = sorted(found.of(arm.name)), min if found.metric.higher_is_better else max
    return _rounded(worst(values), 2), seeds[values.index(worst(values))]


def _returns(found: Measured, arm: Arm) -> str:
    values = [float(r["return_mean"]) for r in found.of(arm.name).values() if "return_mean" in r]
    if not values:
        return ""
    worst = min(float(r["return_worst"]) for r in found.of(arm.name).values())
    return f"{sum(values) / len(values):.1f} (worst episode {worst:g})"


def _floors(found: Measured) -> tuple[float | None, ...]:
    """Chance, majority and logistic regression, or the mean predictor, nearest neighbours and ridge regression."""
    floors, factor = found.floors, found.metric.factor
    keys = ("chance", "majority", "logistic") if found.metric.key == "accuracy" else ("mean", "neighbour", "ridge")
    return tuple(_rounded(factor * floors[key], 2) if floors else None for key in keys)


def _figures(value: float | None) -> float | None:
    """Three significant figures: a small p-value is not 0."""
    return None if value is None else float(f"{value:.3g}")


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(float(value), digits)
