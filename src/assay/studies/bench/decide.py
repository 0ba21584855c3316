"""From records to findings: each arm against its baseline, over paired seeds, with guards, floors and controls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from assay import stats
from assay.results import Check, Control, Figure, Finding, Measurement, Reference, Region, Series, Verdict
from assay.stats.intervals import deviation as spread
from assay.studies.arms import Arm, chosen
from assay.studies.bench.cells import FLOORS, LARGE, REFERENCE, RESTARTED, SHUFFLED
from assay.studies.bench.credit import credit_by_weight
from assay.studies.bench.limits import limitations
from assay.studies.bench.measured import Claim, Measured, Records
from assay.studies.looks import NO_PAST, Past

RETURN_MARGIN = 5.0
"""Steps of an episode by which the return of a clone may differ from its baseline's."""
P_VALUE = "p-value of parity"

POSSIBLE = {
    "seconds": Region(low=0.0), "residual": Region(low=0.0), "gradient_agreement": Region(low=-1.0, high=1.0),
    "least_agreement": Region(low=-1.0, high=1.0),
}  # fmt: skip
"""What a quantity can be at all, beside percentages; a t interval does not know."""

FLOOR_NAMES = ("chance", "majority", "logistic", "mean", "ridge", "neighbour")

def claimed(evidence: Measured, name: str, baseline: str) -> str:
    """The claim in words."""
    where = f"{baseline} on {evidence.task}"
    if evidence.claim == "parity":
        return f"{name} is within ± {evidence.bound} of {where}"
    if evidence.claim == "non-inferior":
        return f"{name} is worse than {where} by less than {evidence.bound}"
    return f"{name} is better than {where} by more than {evidence.bound}"


def decide(evidence: Measured, arm: Arm, past: Past = NO_PAST) -> Finding:
    """The finding of one arm on one task: does its score stand to its baseline's as claimed?"""
    baseline = arm.baseline
    seeds, ours, theirs = paired(evidence.of(arm.name), evidence.of(baseline.name), evidence.metric.key)
    answers = _answers(evidence.of(arm.name), evidence.of(baseline.name))
    decision = _compare(evidence, arm.name, ours=ours, theirs=theirs, seeds=seeds, answers=answers)
    failures = [failure for name in (arm.name, baseline.name, FLOORS) for failure in evidence.failures.get(name, [])]
    extra = _diverged(evidence, arm) + _return_checks(evidence, arm)
    verdict, reason = decision.verdict, decision.reason
    worse = [check for check in extra if check.verdict is not Verdict.PASS]
    if verdict is Verdict.PASS and worse:
        verdict, reason = Verdict.PARTIAL, f"{reason}; but {worse[0].reason}"
    controls = _controls(evidence, baseline)
    finding = Finding(
        subject=f"{arm.name} on {evidence.task}",
        name=name_of(evidence.task, arm),
        claim=claimed(evidence, arm.name, baseline.name),
        experiment=_experiment(evidence, arm),
        verdict=verdict,
        reason=reason,
        key_finding=_key_finding(evidence, arm, ours, theirs),
        score=decision.score,
        headline=decision.measurement.name,
        measurements=(decision.measurement, *_p_value(decision), *_measurements(evidence, arm)),
        figures=_slopes(evidence, arm, seeds, ours=ours, theirs=theirs),
        checks=(*decision.checks, *extra),
        controls=controls,
        failures=tuple(failures),
        limitations=limitations(evidence, arm, decision),
        varied=("initialisation", "data order", "input noise", *_split_varied(evidence.task)),
        seeds=seeds,
        seconds=evidence.seconds.get(arm.name, 0.0) + evidence.seconds.get(baseline.name, 0.0),
    )
    both = evidence.outcomes_of(arm.name, baseline.name)
    ran = past.ran(both, arms=(), controls=controls)
    return stats.enforce(finding, kind="statistical", ran=ran)


def name_of(task: str, arm: Arm) -> str:
    """What the finding of an arm on a task is called."""
    return f"{task}/{arm.name}"


def equals(evidence: Measured, first: str, second: str) -> stats.Decision:
    """How two arms stand to each other as equals, whatever else is claimed of them."""
    ours, theirs = evidence.of(first), evidence.of(second)
    seeds, mine, others = paired(ours, theirs, evidence.metric.key)
    return _compare(
        evidence, first, ours=mine, theirs=others, seeds=seeds, claim="parity", answers=_answers(ours, theirs)
    )


def not_measured(task: str, arm: Arm, *, margin: float | str, reason: str) -> Finding:
    """The finding of an arm whose task could not be had: kept, undecided, with the way to get it."""
    told = margin if isinstance(margin, str) else f"{margin:g} pp"
    return Finding(
        subject=f"{arm.name} on {task}", name=name_of(task, arm),
        claim=f"{arm.name} is within ± {told} of {arm.baseline.name} on {task}",
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


def time_ratio(evidence: Measured, arm: Arm, key: str = "seconds") -> float | None:
    """Training time of an arm over that of its baseline, summed over paired seeds."""
    _, ours, theirs = paired(evidence.of(arm.name), evidence.of(arm.baseline.name), key)
    return sum(ours) / sum(theirs) if theirs and sum(theirs) > 0 else None


def _compare(
    evidence: Measured, name: str, *, ours: list[float], theirs: list[float], seeds: tuple[int, ...],
    claim: Claim | None = None, answers: stats.Answers | None = None,
) -> stats.Decision:
    items = _items(evidence)
    guards: list[stats.Decision | Check] = []
    told, others = evidence.told(ours), evidence.told(theirs)
    accuracy = evidence.metric.key == "accuracy"
    if evidence.floors is None:
        guards.append(Check(name="floors known", verdict=Verdict.INCONCLUSIVE, reason="the floors were not measured"))
    elif ours and accuracy and items >= 2:
        guards.append(stats.above_chance(
            {name: told, "baseline": others}, items=items, chance=evidence.floors["chance"],
            majority=evidence.floors["majority"], scale=100.0,
        ))
    elif ours and not accuracy:
        guards += [_below_mean(evidence, label, values) for label, values in ((name, told), ("baseline", others))]
    if not evidence.metric.higher_is_better:  # the gap is ours minus theirs of what is better when larger
        told, others = [-value for value in told], [-value for value in others]
    options: dict[str, Any] = {
        "margin": evidence.margin, "guards": guards, "unit": evidence.metric.gap_unit, "seeds": seeds,
        "name": f"{'accuracy' if accuracy else 'error'} gap",
    }
    if accuracy:
        options |= {"items": items if items >= 2 else None, "scale": 100.0, "answers": answers}
    compare: dict[str, Callable[..., stats.Decision]] = {
        "parity": stats.parity, "non-inferior": stats.non_inferior, "better": stats.better,
    }
    return compare[claim or evidence.claim](told, others, **options)


def _answers(first: Records, second: Records) -> stats.Answers | None:
    """Which items each arm got right, where at least two seeds kept it."""
    return stats.recorded_answers(first, second) if len(first.keys() & second.keys()) >= 2 else None


def _below_mean(evidence: Measured, name: str, errors: Sequence[float]) -> Check:
    """Whether an arm of a regression does better than the mean of the training targets at every seed."""
    floor = float((evidence.floors or {}).get("mean", math.nan))
    below = bool(errors) and max(errors) < floor
    return Check(name=f"{name} beats the mean predictor", verdict=Verdict.PASS if below else Verdict.INCONCLUSIVE,
                 reason=f"largest error of {name} {max(errors, default=math.nan):.4g}, of the mean {floor:.4g}"
                        + ("" if below else ": not below it"))


def _p_value(decision: stats.Decision) -> tuple[Measurement, ...]:
    """The p-value of "the gap is outside the margin", kept so that the report need not decide again."""
    if decision.p_value is None:
        return ()
    note = f"{decision.method}; small is evidence for parity"
    return (Measurement(name=P_VALUE, value=decision.p_value, n=decision.n, source="derived", note=note),)


def _items(evidence: Measured) -> int:
    return next((int(record["items"]) for records in evidence.records.values() for record in records.values()), 0)


def _diverged(evidence: Measured, arm: Arm) -> tuple[Check, ...]:
    ended = {seed: record["diverged"] for seed, record in evidence.of(arm.name).items() if record["diverged"]}
    if not ended:
        return ()
    first = min(ended)
    reason = f"training stopped early on {len(ended)} seed(s), first {first}: {ended[first]}"
    return (Check(name="training finished", verdict=Verdict.FAIL, reason=reason),)


def _return_checks(evidence: Measured, arm: Arm) -> tuple[Check, ...]:
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


def _controls(evidence: Measured, baseline: Arm) -> tuple[Control, ...]:
    """A restarted baseline must not be told from the baseline; one trained on shuffled labels must."""
    found = []
    for label, kind, wanted, bad in (
        (RESTARTED, "known-good", "not FAIL", Verdict.FAIL), (SHUFFLED, "known-bad", "not PASS", Verdict.PASS),
    ):
        records = evidence.of(f"{label}/{baseline.model}")
        reference = evidence.of(f"{REFERENCE}/{baseline.model}")
        seeds, ours, theirs = paired(records, reference, evidence.metric.key)
        if not seeds:
            continue
        # Known-good subjects must not be rejected and known-bad ones not accepted, as equals: whatever is claimed here.
        decision = _compare(
            evidence, label, ours=ours, theirs=theirs, seeds=seeds, claim="parity", answers=_answers(records, reference)
        )
        mean = fmean(evidence.told(ours))
        found.append(Control(
            name=label, kind="known-good" if kind == "known-good" else "known-bad", expected=wanted,
            observed=f"{decision.verdict} ({mean:.4g} {evidence.metric.unit}, {_seeds(seeds)})",
            separated=decision.verdict is not bad,
        ))
    return tuple(found)


def _measurements(evidence: Measured, arm: Arm) -> tuple[Measurement, ...]:
    found: list[Measurement] = []
    for owner in dict.fromkeys((arm, arm.baseline)):
        records = evidence.of(owner.name)
        seeds = tuple(sorted(records))
        for key, name, unit, factor in (
            (evidence.metric.key, evidence.metric.name, evidence.metric.unit, evidence.metric.factor),
            ("return_mean", "return", "reward", 1.0),
            ("seconds", "training time", "s", 1.0), ("gradient_agreement", "cosine with the true gradient", "1", 1.0),
            ("residual", "largest residual of the training", "1", 1.0),
            ("least_agreement", "smallest cosine along the training", "1", 1.0),
            ("reached", "share of the weights given an update", "%", 100.0),
            ("peak_bytes", "peak memory of a step", "kB", 1e-3),
        ):
            values = tuple(factor * float(records[s][key]) for s in seeds if records[s].get(key) is not None)
            if not values or len(values) != len(seeds):
                continue
            found.append(Measurement(
                name=f"{name}, {owner.name}", value=sum(values) / len(values), unit=unit, n=len(values),
                interval=stats.mean_interval(values), values=values, seeds=seeds, of="seeds",
                possible=POSSIBLE.get(key, stats.levels(values, unit)),
            ))
        found += credit_by_weight(records, owner.name)
    for key, name in (("seconds", "wall-clock time ratio"), ("cpu_seconds", "processor time ratio")):
        if (ratio := time_ratio(evidence, arm, key)) is not None:
            found.append(Measurement(name=name, value=ratio, unit="x", source="derived",
                                     note=f"training, {arm.name} over {arm.baseline.name}, summed over paired seeds"))
    for key, value in (evidence.floors or {}).items():
        if key in FLOOR_NAMES:
            found.append(Measurement(name=f"floor: {key}", value=evidence.metric.factor * value,
                                     unit=evidence.metric.unit, note=f"test {evidence.metric.name}"))
    return tuple(found)


def _slopes(
    evidence: Measured, arm: Arm, seeds: tuple[int, ...], *, ours: list[float], theirs: list[float]
) -> tuple[Figure, ...]:
    if not seeds:
        return ()
    lines = tuple(
        Series(name=f"seed {seed}", x=(0.0, 1.0), y=(b, a))
        for seed, a, b in zip(seeds, evidence.told(ours), evidence.told(theirs), strict=True)
    )
    floors, factor = evidence.floors or {}, evidence.metric.factor
    lowest, highest = factor * min([*ours, *theirs]), factor * max([*ours, *theirs])
    linear = {name: factor * floors[name] for name in ("logistic", "ridge") if name in floors}
    shown = [(name, value) for name, value in linear.items()
             if (value > lowest - 5 if name == "logistic" else value < 2 * highest)]
    return (Figure(
        key=f"slopes-{evidence.task}-{arm.rule}-{arm.model}",
        question=f"Does {arm.name} reach {arm.baseline.name} on {evidence.task}, seed by seed?", kind="slopes",
        y_label=f"test {evidence.metric.name} [{evidence.metric.unit}]", series=lines,
        categories=(arm.baseline.name, arm.name),
        references=tuple(Reference(value=value, label=f"{name} regression") for name, value in shown),
        caption="One line per seed: the two arms share split, data order and initial weights.",
    ),)


def _key_finding(evidence: Measured, arm: Arm, ours: list[float], theirs: list[float]) -> str:
    if not ours:
        return ""
    mean, base = fmean(evidence.told(ours)), fmean(evidence.told(theirs))
    ratio = time_ratio(evidence, arm)
    spent = f", {ratio:.2g} times the training time" if ratio else ""
    unit, gap = evidence.metric.unit, evidence.metric.gap_unit
    form = ".2f" if evidence.metric.key == "accuracy" else ".4g"
    return f"{mean:{form}} {unit} against {base:{form}} {unit}: {mean - base:+{form}} {gap} over {_seeds(ours)}{spent}"


def _experiment(evidence: Measured, arm: Arm) -> str:
    source = chosen(evidence.task, arm, evidence.settings_from)
    record = next(iter(evidence.of(arm.name).values()), {})
    size = f"{record['train_items']:,} training and {record['items']:,} test items. " if record else ""
    return (
        f"{size}Train {arm.name} and {arm.baseline.name} from the same initial weights, on the same split in the same "
        f"order, and compare test {evidence.metric.name} by a paired test. Settings: {source.source}"
        f"{' (' + source.note + ')' if source.note else ''}; chosen on validation, never on test."
    )


def _split_varied(task: str) -> tuple[str, ...]:
    return ("train/validation split",) if task in LARGE else ("train/validation/test split",)


def _seeds(values: Sequence[float]) -> str:
    return "1 seed" if len(values) == 1 else f"{len(values)} seeds"
