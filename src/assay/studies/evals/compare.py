"""Two evaluation logs compared item by item: one claim per task, corrected over tasks (Holm), with power."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from assay import stats
from assay.environment import capture
from assay.errors import InputError, expected, unknown
from assay.results import Check, Finding, Measurement, Run, Table, Verdict
from assay.stats.items import ItemClaim, ItemComparison, compare_items
from assay.studies.evals.log import EvalLog, Item, label_of
from assay.studies.evals.read import read_log

Missing = Literal["refuse", "wrong", "drop"]
PREFERRED = ("acc", "accuracy", "correct", "score", "exact_match", "match")
"""Which metric is compared where a log has several and nobody says: the first of these, else the first there is."""
FEW_CLUSTERS = 20


def compare_evals(
    a: str | Path | EvalLog, b: str | Path | EvalLog, *, margin: float | None = None, claim: ItemClaim | None = None,
    metric: str | None = None, tasks: Sequence[str] | None = None, cluster: str | None = None,
    missing: Missing = "refuse", alpha: float = 0.05,
) -> Run:
    """The run of one claim per task about two systems that answered the same items.

    Without a ``margin`` the claim is that A is better than B; with one (percentage points, or units of a score beyond
    0 to 1) that they are at parity, or what ``claim`` says. ``cluster`` names a field of the items (a CSV column, a key
    of lm-eval's ``doc`` or of inspect_ai's ``metadata``) whose equal values belong together. Items that one log lacks
    are refused, unless ``missing`` counts them as "wrong" or leaves them out ("drop"), which the finding then says.
    """
    first, second = (log if isinstance(log, EvalLog) else read_log(log) for log in (a, b))
    chosen: ItemClaim = claim or ("better" if margin is None else "parity")
    if chosen != "better" and margin is None:
        raise expected("a margin for this claim", given=f"claim {chosen} without one", do="for example --margin 2")
    if missing not in ("refuse", "wrong", "drop"):
        raise InputError(unknown("way with missing items", missing, ("refuse", "wrong", "drop")))
    names = _common(first, second, tasks)
    pairs = {task: _Paired(first, second, task, metric=metric, cluster=cluster, missing=missing) for task in names}
    results = {task: pair.compared(chosen, margin or 0.0, alpha) for task, pair in pairs.items()}
    decided = stats.holm_decisions([results[task].decision for task in names])
    findings = tuple(_finding(pairs[task], results[task], decision, chosen, tests=len(names))
                     for task, decision in zip(names, decided, strict=True))
    words = [str(part) for part in (a, b) if not isinstance(part, EvalLog)]
    options = {"margin": margin, "claim": claim, "metric": metric, "cluster": cluster,
               "missing": None if missing == "refuse" else missing}
    told = [part for name, value in options.items() if value is not None for part in (f"--{name}", str(value))]
    command = shlex.join(["assay", "compare-evals", *words, *told]) if len(words) == 2 else ""
    digest = hashlib.sha256("".join(f.model_dump_json() for f in findings).encode()).hexdigest()[:12]
    return Run(
        id=f"evals-{digest}", kind="audit", title=f"{_label(first, second, 0)} against {_label(first, second, 1)}",
        created=datetime.now(UTC).isoformat(timespec="seconds"), command=command, environment=capture(),
        findings=tuple(finding.model_copy(update={"rerun": command}) for finding in findings),
        tables=(_overview(pairs, results, decided),),
        config={"claim": chosen, "margin": margin, "alpha": alpha, "cluster": cluster, "missing": missing},
    )


class _Paired:
    """The items of one task that both logs answered, by one metric."""

    def __init__(self, a: EvalLog, b: EvalLog, task: str, *, metric: str | None, cluster: str | None,
                 missing: Missing) -> None:
        self.task, self.names = task, (_label(a, b, 0), _label(a, b, 1))
        one, two = a.tasks[task], b.tasks[task]
        common = [name for name in one if name in two]
        lacking = [name for name in (*one, *two, *a.unscored.get(task, ()), *b.unscored.get(task, ()))
                   if name not in one or name not in two]
        self.lacking, self.missing = tuple(dict.fromkeys(lacking)), missing
        if self.lacking and missing == "refuse":
            raise expected("the same scored items in both logs",
                           given=f"{len(self.lacking)} of {len(common) + len(self.lacking)} items of '{task}' without "
                                 f"a score in one of them, such as '{self.lacking[0]}'",
                           do="count them as wrong (--missing wrong) or leave them out (--missing drop)")
        if not common:
            raise expected(f"items of '{task}' that both logs have", given="none: their identities differ")
        _same_documents(one, two, common, task)
        self.metric = _metric([one[name] for name in common] + [two[name] for name in common], metric, task)
        items = common if missing != "wrong" else [*common, *self.lacking]
        self.first, self.second = ([log[name].scores[self.metric] if name in log else 0.0 for name in items]
                                   for log in (one, two))
        seen = {**two, **one}
        self.clusters = None if cluster is None else [
            label_of(seen[name], cluster) if name in seen else name for name in items]
        self.cluster = cluster
        share = all(0.0 <= value <= 1.0 for value in (*self.first, *self.second))
        self.scale, self.unit = (100.0, "pp") if share else (1.0, "1")

    def compared(self, claim: ItemClaim, margin: float, alpha: float) -> ItemComparison:
        return compare_items(self.first, self.second, claim=claim, margin=margin, clusters=self.clusters, alpha=alpha,
                             scale=self.scale, unit=self.unit)

    def mean(self, which: int) -> float:
        values = (self.first, self.second)[which]
        return self.scale * sum(values) / len(values)


def _finding(
    pair: _Paired, result: ItemComparison, decision: stats.Decision, claim: ItemClaim, *, tests: int
) -> Finding:
    one, two = pair.names
    of = "clusters" if pair.cluster else "items"
    unit = "%" if pair.unit == "pp" else "1"
    observed = decision.measurement.model_copy(update={
        "values": (), "of": of,
        "note": f"{one} minus {two}, paired by item" + (f", clustered by {pair.cluster}" if pair.cluster else "")})
    means = [Measurement(name=f"{pair.metric} of {name}", value=pair.mean(which), unit=unit, n=result.items, of="items")
             for which, name in enumerate(pair.names)]
    limits = ["Items are a sample of questions; other prompts, seeds and decoding settings of the systems are not."]
    if pair.cluster and result.clusters < FEW_CLUSTERS:
        limits.insert(0, f"{result.clusters} clusters: the interval is too narrow if their sizes differ much.")
    if pair.lacking and pair.missing != "refuse":
        how = "counted as wrong" if pair.missing == "wrong" else "left out"
        limits.insert(0, f"{len(pair.lacking)} items without a score in one log were {how}.")
    words = {"better": f"{one} scores higher than {two}", "parity": f"{one} and {two} are at parity",
             "non-inferior": f"{one} is not worse than {two}"}[claim]
    return Finding(
        subject=f"{pair.task}: {one} against {two}", name=pair.task, verdict=decision.verdict,
        claim=f"On {pair.task}, {words} ({decision.claim}).", reason=decision.reason.replace("seeds", of),
        key_finding=_counts(result, pair), headline=observed.name, score=decision.score,
        measurements=(observed, *means), tables=(_numbers(pair, result, decision),),
        checks=(*decision.checks, *_holm_check(decision, tests)), limitations=tuple(limits),
    )


def _numbers(pair: _Paired, result: ItemComparison, decision: stats.Decision) -> Table:
    """What the comparison rests on, beside the interval."""
    flipped = "whole clusters swapped" if pair.cluster else "McNemar" if result.only_first is not None else "swaps"
    reach = decision.minimal_margin
    rows = [
        (f"{pair.metric} of {pair.names[0]}", f"{pair.mean(0):.4g}"),
        (f"{pair.metric} of {pair.names[1]}", f"{pair.mean(1):.4g}"),
        ("items, clusters", f"{result.items}, {result.clusters}"),
        *([] if result.only_first is None else
          [("only the first right, only the second", f"{result.only_first}, {result.only_second}")]),
        (f"p of no difference, paired ({flipped})", f"{result.p_value:.3g}"),
        ("p of no difference, pairs ignored (z test: wrong here)", f"{result.unpaired_p_value:.3g}"),
        ("p that the claim is wrong", "none" if decision.p_value is None else f"{decision.p_value:.3g}"),
        *([] if decision.power is None else
          [("power to show the claim if the true gap is 0", f"{100 * decision.power:.3g} %")]),
        *([] if reach is None else
          [("smallest gap shown 8 times in 10", f"{reach:.3g} {pair.unit}".removesuffix(" 1"))]),
    ]
    return Table(title=f"{pair.task}, item by item", columns=("", "value"), rows=tuple(rows))


def _holm_check(decision: stats.Decision, tests: int) -> tuple[Check, ...]:
    if tests < 2 or decision.p_value is None:
        return ()
    held = decision.p_value <= decision.alpha
    return (Check(name=f"Holm over {tests} tasks", verdict=Verdict.PASS if held else Verdict.INCONCLUSIVE,
                  reason=f"adjusted p = {decision.p_value:.3g}"),)


def _counts(result: ItemComparison, pair: _Paired) -> str:
    grouped = f" in {result.clusters} clusters" if pair.cluster else ""
    if result.only_first is None:
        return f"{result.items} items{grouped}"
    return (f"{result.items} items{grouped}: {result.only_first} that only {pair.names[0]} got right, "
            f"{result.only_second} that only {pair.names[1]} did")


def _overview(
    pairs: Mapping[str, _Paired], results: Mapping[str, ItemComparison], decided: Sequence[stats.Decision]
) -> Table:
    rows: list[tuple[Any, ...]] = []
    for (task, pair), decision in zip(pairs.items(), decided, strict=True):
        result, interval = results[task], decision.measurement.interval
        rows.append((
            task, pair.metric, result.items, result.clusters, round(pair.mean(0), 3), round(pair.mean(1), 3),
            result.only_first, result.only_second, decision.measurement.value,
            None if interval is None else f"[{interval.low:.3g}, {interval.high:.3g}]", result.p_value,
            result.unpaired_p_value, decision.p_value, decision.power, decision.verdict.value))
    columns = ("task", "metric", "items", "clusters", "A", "B", "only A right", "only B right", "gap", "interval",
               "McNemar p", "unpaired z p", "claim p (Holm)", "power", "verdict")
    return Table(title="Paired comparison by task", columns=columns, rows=tuple(rows),
                 note="A and B in the order given. The unpaired z test takes the same items for different ones.")


def _common(a: EvalLog, b: EvalLog, asked: Sequence[str] | None) -> list[str]:
    both = [task for task in a.tasks if task in b.tasks]
    if not both and len(a.tasks) == len(b.tasks) == 1:
        raise expected("the same task in both logs", given=f"'{next(iter(a.tasks))}' and '{next(iter(b.tasks))}'",
                       do="CSV files need a column task, or the same file name")
    alone = [task for task in (*a.tasks, *b.tasks) if task not in both]
    if asked is None and alone:
        raise expected("the same tasks in both logs", given=f"only one has {', '.join(alone)}",
                       do="choose with --tasks those to compare")
    for task in asked or ():
        if task not in both:
            raise InputError(unknown("task of both logs", task, both))
    return list(asked) if asked else both


def _metric(items: Sequence[Item], asked: str | None, task: str) -> str:
    there = [name for name in items[0].scores if all(name in item.scores for item in items)]
    if asked is not None:
        if asked not in there:
            raise InputError(unknown(f"metric of every item of '{task}'", asked, there))
        return asked
    if not there:
        raise expected(f"a metric that every item of '{task}' has", given="none")
    return next((name for name in PREFERRED if name in there), there[0])


def _same_documents(a: Mapping[str, Item], b: Mapping[str, Item], names: Sequence[str], task: str) -> None:
    other = [name for name in names if a[name].digest and b[name].digest and a[name].digest != b[name].digest]
    if other:
        raise expected("the same documents in both logs",
                       given=f"{len(other)} of {len(names)} items of '{task}' differ, first '{other[0]}'",
                       do="evaluate both systems on one version of the task")


def _label(a: EvalLog, b: EvalLog, which: int) -> str:
    """The name of a system; two logs of one model are A and B."""
    log = (a, b)[which]
    return log.name if a.name != b.name else f"{log.name} ({'AB'[which]})"
