"""Block-level direct feedback alignment is trained on digits beside backprop and beside blocks frozen at their start.

Standard reporting looks at accuracy (above chance?) and at the mean cosine with the true gradient (positive?). The
protocol asks whether trained blocks beat frozen ones, with an interval over seeds and test items. Block-level FA, which
does visibly worse, is the known-bad subject; backprop is the known-good one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Check, Figure, Finding, Measurement, Series, Verdict
from assay.tracks.credit import training
from assay.tracks.credit.training import Arms, TrainedBlocks

if TYPE_CHECKING:
    from assay.audits.credit.depth import Utility

RULES = {"dfa": "dfa", "frozen": "frozen", "control: backprop": "backprop", "control: block FA": "fa"}
ARMS = tuple(RULES)
SUBJECT = "Block-level DFA on digits"
CLAIM = "Accuracy and cosine accept a net whose trained blocks are worse than frozen ones; the protocol does not."


@track(131, "credit-standard-reporting", claim=CLAIM, title="What accuracy and gradient cosine miss", timeout=600.0)
class StandardReporting:
    """DFA on digits, judged by standard reporting and by depth utility."""

    controls: ClassVar[tuple[ControlArm, ...]] = (
        known_good("control: backprop", "dfa"),
        known_bad("control: block FA", "dfa"),
    )

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return training.trials(ARMS, budget, seeds)

    def measure(self, trial: Trial) -> TrainedBlocks:
        return training.train_arm(RULES[trial.arm], trial.seed, budget=trial.budget)

    def judge(self, outcomes: Outcomes) -> Utility:
        """The protocol on DFA: do its trained blocks beat frozen ones?"""
        return training.judged(training.of_arms(outcomes, ARMS), "dfa", backprop="control: backprop")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if standard reporting accepts DFA, its blocks end below frozen ones, and the protocol rejects it.

        FAIL if standard reporting rejects it too, or if its blocks turn out better than frozen ones.
        """
        arms = training.of_arms(outcomes, ARMS)
        if reason := training.undecidable(arms, accuracy=_accuracy, mean_cosine=_cosine):
            return Finding(subject=SUBJECT, claim=CLAIM, verdict=Verdict.INCONCLUSIVE, reason=reason)
        standard = _standard(arms["dfa"])
        dfa, gap = self.judge(outcomes), training.gap(arms, "dfa", backprop="control: backprop")
        worse = stats.relation(gap.interval, training.BELOW_FROZEN)
        verdict = training.verdict(
            holds=standard.verdict is Verdict.PASS and worse is Verdict.PASS and dfa.verdict is Verdict.FAIL,
            refuted=standard.verdict is Verdict.FAIL or worse is Verdict.FAIL,
            seeds=gap.seeds,
        )
        return Finding(
            subject=SUBJECT,
            claim=CLAIM,
            verdict=verdict,
            reason=f"standard reporting: {standard.reason}; protocol: {dfa.reason}",
            key_finding=f"{standard.reason}; {dfa.reason}.",
            headline="DFA minus frozen",
            measurements=(
                training.shown(gap, "DFA minus frozen", training.BELOW_FROZEN),
                _seedwise("DFA accuracy", arms["dfa"], _accuracy),
                _seedwise("DFA mean cosine", arms["dfa"], _cosine),
                _seedwise("DFA largest growth", arms["dfa"], lambda record: record.growth),
            ),
            checks=(standard, Check(name="protocol on DFA", verdict=dfa.verdict, reason=dfa.reason)),
            figures=(_figure(arms),),
            varied=("initialisation", "data order", "split", "feedback matrices"),
            limitations=("Small nets on digits at a high learning rate, chosen so that the effect shows in seconds; "
                         "see docs/results/fa-protocol.md for CIFAR-10.",),
        )


def _accuracy(record: TrainedBlocks) -> float:
    return record.accuracy


def _cosine(record: TrainedBlocks) -> float:
    return record.mean_cosine


def _standard(dfa: Mapping[int, TrainedBlocks]) -> Check:
    """What a paper would report of DFA: mean accuracy against chance, and the sign of the mean cosine at every seed."""
    accuracies, cosines = [_accuracy(record) for record in dfa.values()], [_cosine(record) for record in dfa.values()]
    first = next(iter(dfa.values()))
    chance = stats.above_chance({"dfa": accuracies}, items=len(first.correct), chance=1 / first.classes)
    accepted = chance.passed and min(cosines) > 0
    return Check(name="standard reporting accepts DFA", verdict=Verdict.PASS if accepted else Verdict.FAIL,
                 reason=f"accuracy {fmean(accuracies):.1%}, mean cosine {fmean(cosines):+.3f}")


def _seedwise(
    name: str, dfa: Mapping[int, TrainedBlocks], number: Callable[[TrainedBlocks], float]
) -> Measurement:
    values = tuple(number(record) for record in dfa.values())
    return Measurement(name=name, value=fmean(values), n=len(values), values=values, seeds=tuple(dfa))


def _figure(arms: Arms[TrainedBlocks]) -> Figure:
    shown = [arms[arm] for arm in ("frozen", "dfa", "control: backprop")]
    seeds = sorted(set.intersection(*(set(records) for records in shown)))
    return Figure(
        key="depth-utility", question="Do trained blocks beat frozen ones?", kind="slopes", y_label="test accuracy",
        categories=("frozen", "DFA", "backprop"),
        series=tuple(Series(name=f"seed {seed}", x=(0.0, 1.0, 2.0),
                            y=tuple(records[seed].accuracy for records in shown)) for seed in seeds),
    )
