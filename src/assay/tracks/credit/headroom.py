"""Backprop itself is put through the depth check on digits, where frozen blocks already come close to the ceiling.

The published rule asks for 2 points over frozen blocks and so fails backprop. The headroom guard says instead that the
task cannot show depth utility. On stripes, which need depth, the same check must pass backprop (known good);
block-level FA, whose blocks end worse than frozen ones, must fail on digits (known bad).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Check, Figure, Finding, Measurement, Reference, Region, Series, Verdict
from assay.tracks.credit import training
from assay.tracks.shared.records import Pairs, paired

if TYPE_CHECKING:
    from assay.audits.credit.depth import Utility

ARMS = {
    "backprop": ("backprop", "digits"),
    "frozen": ("frozen", "digits"),
    "control: stripes": ("backprop", "stripes"),
    "control: stripes frozen": ("frozen", "stripes"),
    "control: block FA": ("fa", "digits"),
}
SUBJECT = "Backprop on digits"
CLAIM = "On a task without headroom the published depth check fails backprop; ours says that nothing can be decided."


@track(134, "credit-headroom", claim=CLAIM, title="Who fails where depth cannot help?", timeout=600.0)
class Headroom:
    """Backprop against frozen blocks, with and without headroom."""

    controls: ClassVar[tuple[ControlArm, ...]] = (
        known_good("control: stripes", {"backprop": "control: stripes", "frozen": "control: stripes frozen"}),
        known_bad("control: block FA", "backprop"),
    )

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return training.trials(ARMS, budget, seeds)

    def measure(self, trial: Trial) -> training.TrainedBlocks:
        rule, task = ARMS[trial.arm]
        return training.train_arm(rule, trial.seed, task=task, budget=trial.budget)

    def judge(self, outcomes: Outcomes) -> Utility:
        """Our depth check on backprop."""
        return training.judged(training.of_arms(outcomes, ARMS), "backprop", backprop="backprop")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the published rule fails backprop on digits and ours says that the task has no headroom.

        FAIL if ours fails backprop too; undecided if at these seeds backprop clears the published limit, or if both
        arms answered every item alike, which two different nets do not.
        """
        from assay.audits.credit.depth import HEADROOM
        from assay.audits.credit.published import UTILITY_MARGIN

        arms = training.of_arms(outcomes, ARMS)
        if reason := training.undecidable(arms):
            return Finding(subject=SUBJECT, claim=CLAIM, verdict=Verdict.INCONCLUSIVE, reason=reason)
        digits, gap = self.judge(outcomes), training.gap(arms, "backprop", backprop="backprop")
        value = fmean(gap.values)
        fires, told_apart = value < UTILITY_MARGIN, gap.interval is not None
        headroom = next(check for check in digits.checks if check.name == HEADROOM)
        spared = digits.verdict is Verdict.INCONCLUSIVE and headroom.verdict is not Verdict.PASS
        told = f"published D3 {'fires' if fires else 'is quiet'} on backprop; ours: {digits.reason}"
        return Finding(
            subject=SUBJECT,
            claim=CLAIM,
            verdict=training.verdict(holds=fires and spared and told_apart, refuted=fires and not spared,
                                     seeds=gap.seeds),
            reason=told,
            key_finding=f"{told}.",
            headline="backprop minus frozen",
            measurements=(
                training.shown(gap, "backprop minus frozen", Region(high=UTILITY_MARGIN)),
                *((Measurement(name="smallest detectable gain", value=100 * digits.detectable, unit="pp",
                               source="derived"),) if digits.detectable is not None else ()),
            ),
            checks=(
                Check(name="published D3 fires on backprop", reason=f"{100 * value:+.1f} pp over frozen blocks",
                      verdict=Verdict.PASS if fires else Verdict.INCONCLUSIVE),
                Check(name="ours says no headroom", reason=digits.reason,
                      verdict=Verdict.PASS if spared else Verdict.FAIL if fires else Verdict.INCONCLUSIVE),
            ),
            figures=(_figure(paired(outcomes, "frozen", "backprop", training.TrainedBlocks), UTILITY_MARGIN),),
            varied=("initialisation", "data order", "split"),
        )


def _figure(pairs: Pairs[training.TrainedBlocks], margin: float) -> Figure:
    frozen, backprop = pairs.of(lambda record: record.accuracy)
    return Figure(
        key="headroom", question="Is there room above frozen blocks?", kind="slopes", y_label="test accuracy",
        categories=("frozen", "backprop"),
        series=tuple(Series(name=f"seed {seed}", x=(0.0, 1.0), y=(a, b))
                     for seed, a, b in zip(pairs.seeds, frozen, backprop, strict=True)),
        references=(Reference(value=fmean(frozen) + margin, label="published D3 limit"),),
    )
