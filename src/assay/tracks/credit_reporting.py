"""Block-level direct feedback alignment is trained on digits beside backprop and beside blocks frozen at their start.

Standard reporting looks at accuracy (above chance?) and at the mean cosine with the true gradient (positive?). The
protocol asks whether trained blocks beat frozen ones, with an interval over seeds and test items. Block-level FA, which
does visibly worse, is the known-bad subject; backprop is the known-good one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from assay import stats
from assay.protocols import Budget, Outcomes, Trial
from assay.registry import track
from assay.results import Check, Control, Figure, Finding, Measurement, Region, Series, Verdict
from assay.tracks import credit_training as training

ARMS = ("dfa", "frozen", "control: backprop", "control: block FA")
RULES = {"dfa": "dfa", "frozen": "frozen", "control: backprop": "backprop", "control: block FA": "fa"}


@track(
    31,
    "credit-standard-reporting",
    claim="Accuracy and cosine accept a net whose trained blocks are worse than frozen ones; the protocol does not.",
    title="What accuracy and gradient cosine miss",
    sources=training.SOURCES,
    timeout=600.0,
)
class StandardReporting:
    """DFA on digits, judged by standard reporting and by depth utility."""

    controls: ClassVar[tuple[str, ...]] = ("control: backprop", "control: block FA")

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return training.trials(ARMS, budget, seeds)

    def measure(self, trial: Trial) -> Mapping[str, Any]:
        return training.train_arm(RULES[trial.arm], trial.seed)

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if standard reporting accepts DFA at every seed and the protocol rejects it, both controls told.

        FAIL if standard reporting rejects it too, or if its blocks turn out better than frozen ones.
        """
        from assay.audits.credit.depth import judge_utility

        if gone := training.missing(outcomes, ARMS):
            return _undecided(f"no result for {', '.join(gone)}")
        standard = _standard(outcomes)
        utilities = {
            arm: judge_utility(training.baselines(outcomes, rule=arm, backprop="control: backprop", frozen="frozen"))
            for arm in ("dfa", *self.controls)
        }
        caught = utilities["dfa"].verdict is Verdict.FAIL
        misses = standard.verdict is Verdict.PASS
        gap = utilities["dfa"].gap
        useful = gap is not None and gap.interval is not None and gap.interval.low > 0
        verdict = Verdict.PASS if caught and misses else Verdict.FAIL if useful or not misses else Verdict.INCONCLUSIVE
        return Finding(
            subject="Block-level DFA on digits",
            claim="",
            verdict=verdict,
            reason=f"standard reporting: {standard.reason}; protocol: {utilities['dfa'].reason}",
            key_finding=f"{standard.reason}; {utilities['dfa'].reason}.",
            headline="DFA minus frozen",
            measurements=(
                Measurement(name="DFA minus frozen", value=gap.value, unit="accuracy", n=gap.n, interval=gap.interval,
                            region=Region(high=0.0), values=gap.values, seeds=gap.seeds, note=gap.note),
                _seedwise(outcomes, "accuracy", "DFA accuracy"),
                _seedwise(outcomes, "mean_cosine", "DFA mean cosine"),
                _seedwise(outcomes, "growth", "DFA largest growth"),
            ) if gap is not None else (),
            checks=(standard, Check(name="protocol on DFA", verdict=utilities["dfa"].verdict,
                                    reason=utilities["dfa"].reason)),
            controls=(
                Control(name="control: backprop", kind="known-good", expected="not FAIL",
                        observed=utilities["control: backprop"].verdict.value,
                        separated=utilities["control: backprop"].verdict is not Verdict.FAIL),
                Control(name="control: block FA", kind="known-bad", expected="FAIL",
                        observed=utilities["control: block FA"].verdict.value,
                        separated=utilities["control: block FA"].verdict is Verdict.FAIL),
            ),
            figures=(_figure(outcomes),),
            varied=("initialisation", "data order", "split", "feedback matrices"),
            limitations=("Small nets on digits at a high learning rate, chosen so that the effect shows in seconds; "
                         "see docs/results/fa-protocol.md for CIFAR-10.",),
        )


def _standard(outcomes: Outcomes) -> Check:
    """What a paper would report of DFA: accuracy against chance and the sign of the mean cosine, at every seed."""
    records = outcomes.arm("dfa")
    first = next(iter(records.values()))
    accuracies = [float(record["accuracy"]) for record in records.values()]
    chance = stats.above_chance({"dfa": accuracies}, items=len(first["correct"]), chance=1 / first["classes"])
    aligned = all(record["mean_cosine"] > 0 for record in records.values())
    mean = sum(r["accuracy"] for r in records.values()) / len(records)
    cosine = sum(r["mean_cosine"] for r in records.values()) / len(records)
    reason = f"accuracy {mean:.1%}, mean cosine {cosine:+.3f}"
    return Check(name="standard reporting accepts DFA", reason=reason,
                 verdict=Verdict.PASS if chance.passed and aligned else Verdict.FAIL)


def _seedwise(outcomes: Outcomes, key: str, name: str) -> Measurement:
    values = outcomes.values("dfa", key)
    return Measurement(name=name, value=sum(values) / len(values), n=len(values), values=values,
                       seeds=tuple(sorted(outcomes.arm("dfa"))))


def _figure(outcomes: Outcomes) -> Figure:
    arms = ("frozen", "dfa", "control: backprop")
    seeds = sorted(set.intersection(*(set(outcomes.arm(arm)) for arm in arms)))
    return Figure(
        key="depth-utility", question="Do trained blocks beat frozen ones?", kind="slopes", y_label="test accuracy",
        categories=("frozen", "DFA", "backprop"),
        series=tuple(Series(name=f"seed {seed}", x=(0.0, 1.0, 2.0),
                            y=tuple(float(outcomes.arm(arm)[seed]["accuracy"]) for arm in arms)) for seed in seeds),
    )


def _undecided(reason: str) -> Finding:
    return Finding(subject="Block-level DFA on digits", claim="", verdict=Verdict.INCONCLUSIVE, reason=reason)
