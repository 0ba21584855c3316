"""Planted faults, each beside its healthy twin, are given to the statistics, the verdict logic and the store.

A fault counts as told apart only if it deceives the habit it stands for, gets the expected verdict and gets it for the
right reason; its twin, the same experiment done right, must pass. Seeds draw other data. Sensitivity and specificity
count faults and twins, not trials: repeating one fault is not another fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Check, Control, Figure, Finding, Measurement, Region, Table, Verdict
from assay.seeding import numpy_generator
from assay.tracks.honesty.faults import PLANTED, Planted
from assay.tracks.shared.records import Record, recorded

Arms = Mapping[str, Mapping[int, "Told"]]
FAULT, TWIN, SUBJECT = "fault", "twin", "subject"
CLAIM = "The framework tells truth from error: planted faults are caught, their healthy twins pass."


class Told(Record):
    """What the library said of one planted subject, and whether that is what it is."""

    verdict: str
    reason: str
    habit_accepts: bool
    told: bool
    accepted: bool


@track(0, "honesty", claim=CLAIM, title="The framework tells truth from error", kind="deterministic", timeout=300.0)
class Honesty:
    """Every planted pair, once per seed."""

    arms: ClassVar[tuple[str, ...]] = tuple(f"{side}: {planted.name}" for planted in PLANTED for side in (FAULT, TWIN))
    controls: ClassVar[tuple[ControlArm, ...]] = tuple(
        (known_bad if arm.startswith(FAULT) else known_good)(arm, SUBJECT) for arm in arms
    )

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        """One trial per fault, per twin and per seed."""
        return [Trial(arm=arm, seed=seed, budget=budget) for seed in seeds for arm in self.arms]

    def measure(self, trial: Trial) -> Told:
        """The library's judgement of one planted subject."""
        side, _, name = trial.arm.partition(": ")
        planted = next(candidate for candidate in PLANTED if candidate.name == name)
        # One stream for both sides: a fault and its twin differ in the fault alone wherever the draws agree.
        judgement = planted.run(numpy_generator(trial.seed, "honesty", name), side == FAULT)
        told = planted.told(judgement, faulty=side == FAULT)
        return Told(
            verdict=judgement.verdict,
            reason=judgement.reason,
            habit_accepts=judgement.habit_accepts,
            told=told,
            accepted=told is not (side == FAULT),
        )

    def judge(self, outcomes: Outcomes) -> Check:
        """Whether the library accepts the planted subject at every seed; a fault is rejected for the right reason."""
        records = recorded(outcomes, SUBJECT, Told).values()
        accepted = [record.accepted for record in records]
        verdict = Verdict.PASS if all(accepted) else Verdict.INCONCLUSIVE if any(accepted) else Verdict.FAIL
        said = ", ".join(sorted({record.verdict for record in records}))
        return Check(name=SUBJECT, verdict=verdict, reason=f"{said} ({sum(accepted)} of {len(accepted)} accepted)")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if every fault was caught and every twin accepted, at every seed."""
        arms = {arm: recorded(outcomes, arm, Told) for arm in self.arms}
        controls = tuple(_control(planted, side, arms) for planted in PLANTED for side in (FAULT, TWIN))
        caught, accepted = stats.sensitivity(controls), stats.specificity(controls)
        records = [record for found in arms.values() for record in found.values()]
        wrong = sum(not record.told for record in records)
        unfinished = [control.name for control in controls if control.observed == "no result"]
        mistaken = [control.name for control in controls if not control.separated]
        verdict = Verdict.FAIL if wrong else Verdict.INCONCLUSIVE if mistaken or not records else Verdict.PASS
        rates = f"sensitivity {_rate(caught)}, specificity {_rate(accepted)}"
        reason = rates if not mistaken else f"{rates}; not told apart: {', '.join(mistaken)}"
        return Finding(
            subject="Assay",
            claim=CLAIM,
            verdict=verdict,
            reason=reason,
            key_finding=f"{rates}.",
            headline="cases told wrongly",
            score=100.0 if verdict is Verdict.PASS else 50.0 * (1 - len(mistaken) / len(controls)),
            measurements=(
                Measurement(
                    name="cases told wrongly",
                    value=float(wrong) if records else None,
                    unit="cases",
                    n=len(records),
                    region=Region(high=0.0),
                    of="trials",
                    note="faults and twins at every seed",
                ),
                caught,
                accepted,
            ),
            tables=(_table(arms),),
            figures=(_figure(arms),),
            varied=("planted data",),
            limitations=(
                f"{len(PLANTED)} kinds of fault are planted. Even if they were a random sample of all faults, up to "
                f"{1 - (caught.interval.low if caught.interval else 0.0):.0%} of all could go unseen (95 %, exact).",
                "The faults were planted by those who wrote the checks; faults nobody thought of are not among them.",
            ),
            improvements=tuple(f"find out why '{name}' has no result" for name in unfinished),
        )


def _control(planted: Planted, side: str, arms: Arms) -> Control:
    records = arms[f"{side}: {planted.name}"].values()
    verdicts = sorted({record.verdict for record in records})
    return Control(
        name=f"{side}: {planted.name}",
        kind="known-bad" if side == FAULT else "known-good",
        expected=str(planted.caught_as) if side == FAULT else "PASS",
        observed=", ".join(verdicts) or "no result",
        separated=bool(records) and all(record.told for record in records),
    )


def _table(arms: Arms) -> Table:
    rows = []
    for planted in PLANTED:
        fault, twin = (next(iter(arms[f"{side}: {planted.name}"].values()), None) for side in (FAULT, TWIN))
        rows.append(
            (
                planted.name,
                planted.habit,
                fault.verdict if fault else "no result",
                fault.reason if fault else "",
                twin.verdict if twin else "no result",
            )
        )
    return Table(
        title="Planted faults and their healthy twins",
        columns=("planted fault", "the habit says", "Assay says", "because", "healthy twin"),
        rows=tuple(rows),
        note="Reasons of the first seed. REFUSED: a clear error, or not used. REDONE: set aside, done again.",
    )


def _figure(arms: Arms) -> Figure:
    def share(arm: str) -> float:
        told = [record.told for record in arms[arm].values()]
        return sum(told) / len(told) if told else 0.0

    return Figure(
        key="planted-faults",
        question="Which planted faults were told from their healthy twins?",
        kind="heatmap",
        row_names=tuple(planted.name for planted in PLANTED),
        categories=("fault caught", "twin accepted"),
        grid=tuple((share(f"{FAULT}: {p.name}"), share(f"{TWIN}: {p.name}")) for p in PLANTED),
        caption="Share of seeds at which the subject was told for what it is; 1 everywhere is the claim.",
    )


def _rate(measurement: Measurement) -> str:
    if measurement.value is None:
        return "not measured"
    told = round(measurement.value * measurement.n)
    bounds = f", at least {measurement.interval.low:.1%} (95 %, exact)" if measurement.interval else ""
    return f"{told}/{measurement.n}{bounds}"
