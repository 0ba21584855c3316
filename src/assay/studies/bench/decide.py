"""From records to findings: each arm against its baseline, over paired seeds, with guards, floors and controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay import stats
from assay.protocols import Budget, Outcomes
from assay.results import Check, Control, Failure, Figure, Finding, Measurement, Reference, Series, Verdict
from assay.stats.intervals import deviation as spread
from assay.studies.arms import Arm, chosen
from assay.studies.bench.cells import FLOORS, LARGE, QUICK_ITEMS, REFERENCE, RESTARTED, SHUFFLED
from assay.studies.looks import NO_PAST, Past

RETURN_MARGIN = 5.0
"""Steps of an episode by which the return of a clone may differ from its baseline's."""
P_VALUE = "p-value of parity"

Records = Mapping[int, Mapping[str, Any]]


@dataclass
class Evidence:
    """Everything measured on one task: records by what and seed, the floors, and what failed."""

    task: str
    budget: Budget
    margin: float
    seeds: tuple[int, ...]
    records: dict[str, dict[int, Mapping[str, Any]]] = field(default_factory=dict)
    floors: Mapping[str, Any] | None = None
    failures: dict[str, list[Failure]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    outcomes: Outcomes = field(default_factory=lambda: Outcomes(()))

    @staticmethod
    def of_outcomes(
        outcomes: Outcomes, *, task: str, budget: Budget, margin: float, seeds: tuple[int, ...]
    ) -> Evidence:
        """The outcomes of a task's trials, put where the decision looks for them."""
        found = Evidence(task, budget, margin, seeds, outcomes=outcomes)
        for outcome in outcomes:
            what = outcome.trial.arm
            found.seconds[what] = found.seconds.get(what, 0.0) + outcome.seconds
            if outcome.failure is not None:
                found.failures.setdefault(what, []).append(outcome.failure)
            elif outcome.record is not None and what == FLOORS:
                found.floors = outcome.record
            elif outcome.record is not None:
                found.records.setdefault(what, {})[outcome.trial.seed] = outcome.record
        return found

    def of(self, what: str) -> Records:
        """Records of an arm or a control by seed."""
        return self.records.get(what, {})


def decide(evidence: Evidence, arm: Arm, past: Past = NO_PAST) -> Finding:
    """The finding of one arm on one task: is its accuracy within the margin of its baseline's?"""
    baseline = arm.baseline
    seeds, ours, theirs = paired(evidence.of(arm.name), evidence.of(baseline.name), "accuracy")
    decision = _compare(evidence, arm.name, evidence.of(arm.name), evidence.of(baseline.name))
    failures = [failure for name in (arm.name, baseline.name, FLOORS) for failure in evidence.failures.get(name, [])]
    extra = _diverged(evidence, arm) + _return_checks(evidence, arm)
    verdict, reason = decision.verdict, decision.reason
    worse = [check for check in extra if check.verdict is not Verdict.PASS]
    if verdict is Verdict.PASS and worse:
        verdict, reason = Verdict.PARTIAL, f"{reason}; but {worse[0].reason}"
    controls = _controls(evidence, baseline)
    finding = Finding(
        subject=f"{arm.name} on {evidence.task}",
        name=f"{evidence.task}/{arm.name}",
        claim=f"{arm.name} is within ± {evidence.margin:g} pp of {baseline.name} on {evidence.task}",
        experiment=_experiment(evidence, arm),
        verdict=verdict,
        reason=reason,
        key_finding=_key_finding(evidence, arm, ours, theirs),
        score=decision.score,
        headline=decision.measurement.name,
        measurements=(decision.measurement, *_p_value(decision), *_measurements(evidence, arm)),
        figures=_slopes(evidence, arm, seeds, ours, theirs),
        checks=(*decision.checks, *extra),
        controls=controls,
        failures=tuple(failures),
        limitations=_limitations(evidence, arm, decision),
        varied=("initialisation", "data order", "input noise", *_split_varied(evidence.task)),
        seeds=seeds,
        seconds=evidence.seconds.get(arm.name, 0.0) + evidence.seconds.get(baseline.name, 0.0),
    )
    both = Outcomes(tuple(o for o in evidence.outcomes if o.trial.arm in (arm.name, baseline.name)))
    ran = past.ran(both, arms=(), controls=controls)
    return stats.enforce(finding, kind="statistical", ran=ran)


def not_measured(task: str, arm: Arm, *, margin: float, reason: str) -> Finding:
    """The finding of an arm whose task could not be had: kept, undecided, with the way to get it."""
    return Finding(
        subject=f"{arm.name} on {task}", name=f"{task}/{arm.name}",
        claim=f"{arm.name} is within ± {margin:g} pp of {arm.baseline.name} on {task}",
        verdict=Verdict.INCONCLUSIVE, reason=f"not measured: {reason}", improvements=(reason,),
    )


def paired(ours: Records, theirs: Records, key: str) -> tuple[tuple[int, ...], list[float], list[float]]:
    """Seeds both arms finished, and a number of each at those seeds."""
    seeds = tuple(sorted(ours.keys() & theirs.keys()))
    return seeds, [float(ours[s][key]) for s in seeds], [float(theirs[s][key]) for s in seeds]


def percent(values: Sequence[float]) -> list[float]:
    """Shares as per cent."""
    return [100 * value for value in values]


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation over seeds; None for one seed, which has none."""
    return spread(values) if len(values) >= 2 else None


def time_ratio(evidence: Evidence, arm: Arm, key: str = "seconds") -> float | None:
    """Training time of an arm over that of its baseline, summed over paired seeds."""
    _, ours, theirs = paired(evidence.of(arm.name), evidence.of(arm.baseline.name), key)
    return sum(ours) / sum(theirs) if theirs and sum(theirs) > 0 else None


def _compare(evidence: Evidence, name: str, first: Records, second: Records) -> stats.Decision:
    seeds, ours, theirs = paired(first, second, "accuracy")
    items = _items(evidence)
    guards: list[stats.Decision | Check] = []
    if evidence.floors is None:
        guards.append(Check(name="floors known", verdict=Verdict.INCONCLUSIVE, reason="the floors were not measured"))
    elif ours and items >= 2:
        guards.append(stats.above_chance(
            {name: percent(ours), "baseline": percent(theirs)}, items=items, chance=evidence.floors["chance"],
            majority=evidence.floors["majority"], scale=100.0,
        ))
    return stats.parity(
        percent(ours), percent(theirs), margin=evidence.margin, items=items if items >= 2 else None, scale=100.0,
        guards=guards, name="accuracy gap", unit="pp", seeds=seeds,
        answers=stats.recorded_answers(first, second) if len(seeds) >= 2 else None,
    )


def _p_value(decision: stats.Decision) -> tuple[Measurement, ...]:
    """The p-value of "the gap is outside the margin", kept so that the report need not decide again."""
    if decision.p_value is None:
        return ()
    note = f"{decision.method}; small is evidence for parity"
    return (Measurement(name=P_VALUE, value=decision.p_value, n=decision.n, source="derived", note=note),)


def _items(evidence: Evidence) -> int:
    return next((int(record["items"]) for records in evidence.records.values() for record in records.values()), 0)


def _diverged(evidence: Evidence, arm: Arm) -> tuple[Check, ...]:
    ended = {seed: record["diverged"] for seed, record in evidence.of(arm.name).items() if record["diverged"]}
    if not ended:
        return ()
    first = min(ended)
    reason = f"training stopped early on {len(ended)} seed(s), first {first}: {ended[first]}"
    return (Check(name="training finished", verdict=Verdict.FAIL, reason=reason),)


def _return_checks(evidence: Evidence, arm: Arm) -> tuple[Check, ...]:
    """On a control task: is the return in the environment within RETURN_MARGIN of the baseline's?"""
    ours, theirs = evidence.of(arm.name), evidence.of(arm.baseline.name)
    if not any("return_mean" in record for record in ours.values()):
        return ()
    seeds, first, second = paired(ours, theirs, "return_mean")
    name = f"return within ± {RETURN_MARGIN:g} of {arm.baseline.name}"
    perfect = [record["best_episodes"] == record["episodes"] for s in seeds for record in (ours[s], theirs[s])]
    if perfect and all(perfect):
        episodes = sum(int(ours[s]["episodes"]) for s in seeds)
        bound = 1 - stats.binomial_interval(episodes, episodes, confidence=0.9).low
        reason = (f"all {episodes} episodes of both arms are as good as the expert's best ({first[0]:g}); "
                  f"worse ones are rarer than {bound:.1%} (95 %)")
        return (Check(name=name, verdict=Verdict.PASS, reason=reason),)
    decision = stats.parity(first, second, margin=RETURN_MARGIN, name="return gap", unit="reward", seeds=seeds)
    return (decision.check(name),)


def _controls(evidence: Evidence, baseline: Arm) -> tuple[Control, ...]:
    """A restarted baseline must not be told from the baseline; one trained on shuffled labels must."""
    found = []
    for label, kind, expected, bad in (
        (RESTARTED, "known-good", "not FAIL", Verdict.FAIL), (SHUFFLED, "known-bad", "not PASS", Verdict.PASS),
    ):
        records = evidence.of(f"{label}/{baseline.model}")
        reference = evidence.of(f"{REFERENCE}/{baseline.model}")
        seeds, ours, _ = paired(records, reference, "accuracy")
        if not seeds:
            continue
        decision = _compare(evidence, label, records, reference)
        mean = 100 * sum(ours) / len(ours)
        found.append(Control(
            name=label, kind="known-good" if kind == "known-good" else "known-bad", expected=expected,
            observed=f"{decision.verdict} ({mean:.2f} %, {_seeds(seeds)})", separated=decision.verdict is not bad,
        ))
    return tuple(found)


def _measurements(evidence: Evidence, arm: Arm) -> tuple[Measurement, ...]:
    found: list[Measurement] = []
    for owner in dict.fromkeys((arm, arm.baseline)):
        records = evidence.of(owner.name)
        seeds = tuple(sorted(records))
        for key, name, unit, factor in (
            ("accuracy", "accuracy", "%", 100.0), ("return_mean", "return", "reward", 1.0),
            ("seconds", "training time", "s", 1.0), ("gradient_agreement", "cosine with the true gradient", "1", 1.0),
            ("residual", "largest residual of the last epoch", "1", 1.0),
        ):
            values = tuple(factor * float(records[s][key]) for s in seeds if records[s].get(key) is not None)
            if not values or len(values) != len(seeds):
                continue
            found.append(Measurement(
                name=f"{name}, {owner.name}", value=sum(values) / len(values), unit=unit, n=len(values),
                interval=stats.mean_interval(values), values=values, seeds=seeds, note="seeds",
            ))
    for key, name in (("seconds", "wall-clock time ratio"), ("cpu_seconds", "processor time ratio")):
        if (ratio := time_ratio(evidence, arm, key)) is not None:
            found.append(Measurement(name=name, value=ratio, unit="x", source="derived",
                                     note=f"training, {arm.name} over {arm.baseline.name}, summed over paired seeds"))
    for key, value in (evidence.floors or {}).items():
        if key in ("chance", "majority", "logistic"):
            found.append(Measurement(name=f"floor: {key}", value=100 * value, unit="%", note="test accuracy"))
    return tuple(found)


def _slopes(
    evidence: Evidence, arm: Arm, seeds: tuple[int, ...], ours: list[float], theirs: list[float]
) -> tuple[Figure, ...]:
    if not seeds:
        return ()
    lines = tuple(
        Series(name=f"seed {seed}", x=(0.0, 1.0), y=(100 * b, 100 * a))
        for seed, a, b in zip(seeds, ours, theirs, strict=True)
    )
    floors = evidence.floors or {}
    lowest = 100 * min([*ours, *theirs])
    shown = [(name, 100 * floors[name]) for name in ("logistic",) if name in floors and 100 * floors[name] > lowest - 5]
    return (Figure(
        key=f"slopes-{evidence.task}-{arm.rule}-{arm.model}",
        question=f"Does {arm.name} reach {arm.baseline.name} on {evidence.task}, seed by seed?", kind="slopes",
        y_label="test accuracy [%]", series=lines, categories=(arm.baseline.name, arm.name),
        references=tuple(Reference(value=value, label=f"{name} regression") for name, value in shown),
        caption="One line per seed: the two arms share split, data order and initial weights.",
    ),)


def _key_finding(evidence: Evidence, arm: Arm, ours: list[float], theirs: list[float]) -> str:
    if not ours:
        return ""
    mean, base = 100 * sum(ours) / len(ours), 100 * sum(theirs) / len(theirs)
    ratio = time_ratio(evidence, arm)
    spent = f", {ratio:.2g} times the training time" if ratio else ""
    return f"{mean:.2f} % against {base:.2f} %: {mean - base:+.2f} pp over {_seeds(ours)}{spent}"


def _experiment(evidence: Evidence, arm: Arm) -> str:
    source = chosen(evidence.task, arm)
    record = next(iter(evidence.of(arm.name).values()), {})
    size = f"{record['train_items']:,} training and {record['items']:,} test items. " if record else ""
    return (
        f"{size}Train {arm.name} and {arm.baseline.name} from the same initial weights, on the same split in the same "
        f"order, and compare test accuracy by a paired test. Settings: {source.source}"
        f"{' (' + source.note + ')' if source.note else ''}; chosen on validation, never on test."
    )


def _limitations(evidence: Evidence, arm: Arm, decision: stats.Decision) -> tuple[str, ...]:
    notes = list(decision.notes)
    if evidence.budget in ("smoke", "quick") and evidence.task in LARGE:
        notes.append(f"quick budget: {QUICK_ITEMS:,} training items and half the epochs; use --budget standard for all")
    floors = evidence.floors
    ours = [float(record["accuracy"]) for record in evidence.of(arm.name).values()]
    if floors and ours and sum(ours) / len(ours) <= floors["logistic"]:
        notes.append(f"logistic regression does as well ({100 * floors['logistic']:.2f} %): accuracy shows little here")
    return tuple(notes)


def _split_varied(task: str) -> tuple[str, ...]:
    return ("train/validation split",) if task in LARGE else ("train/validation/test split",)


def _seeds(values: Sequence[float]) -> str:
    return "1 seed" if len(values) == 1 else f"{len(values)} seeds"
