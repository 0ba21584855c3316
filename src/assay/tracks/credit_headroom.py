"""Backprop itself is put through the depth check on digits, where frozen blocks already come close to the ceiling.

The published rule asks for 2 points over frozen blocks and so fails backprop. The headroom guard says instead that the
task cannot show depth utility. On stripes, which need depth, the same check must pass backprop (known good);
block-level FA, whose blocks end worse than frozen ones, must fail on digits (known bad).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from assay.protocols import Budget, Outcomes, Trial
from assay.registry import track
from assay.results import Check, Control, Figure, Finding, Measurement, Reference, Region, Series, Verdict
from assay.tracks import credit_training as training

ARMS = {
    "backprop": ("backprop", "digits"),
    "frozen": ("frozen", "digits"),
    "control: stripes": ("backprop", "stripes"),
    "control: stripes frozen": ("frozen", "stripes"),
    "control: block FA": ("fa", "digits"),
}


@track(
    34,
    "credit-headroom",
    claim="On a task without headroom the published depth check fails backprop; ours says that nothing can be decided.",
    title="Who fails where depth cannot help?",
    sources=training.SOURCES,
    timeout=600.0,
)
class Headroom:
    """Backprop against frozen blocks, with and without headroom."""

    controls: ClassVar[tuple[str, ...]] = ("control: stripes", "control: stripes frozen", "control: block FA")

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return training.trials(ARMS, budget, seeds)

    def measure(self, trial: Trial) -> Mapping[str, Any]:
        rule, task = ARMS[trial.arm]
        return training.train_arm(rule, trial.seed, task=task)

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the published rule fails backprop on digits and ours says "no headroom", both controls told.

        FAIL if ours decides where it should not; undecided if these seeds happen to clear the published limit.
        """
        from assay.audits.credit.depth import judge_utility
        from assay.audits.credit.published import UTILITY_MARGIN

        if gone := training.missing(outcomes, ARMS):
            return Finding(subject="Depth utility", claim="", verdict=Verdict.INCONCLUSIVE,
                           reason=f"no result for {', '.join(gone)}")

        def judged(rule: str, backprop: str, frozen: str) -> Any:
            return judge_utility(training.baselines(outcomes, rule=rule, backprop=backprop, frozen=frozen))

        digits = judged("backprop", "backprop", "frozen")
        stripes = judged("control: stripes", "control: stripes", "control: stripes frozen")
        worse = judged("control: block FA", "backprop", "frozen")
        gap = digits.gap
        published_fails = gap is not None and gap.value is not None and gap.value < UTILITY_MARGIN
        ours = digits.verdict is Verdict.INCONCLUSIVE and "no headroom" in digits.reason
        return Finding(
            subject="Backprop on digits",
            claim="",
            verdict=Verdict.FAIL if not ours else Verdict.PASS if published_fails else Verdict.INCONCLUSIVE,
            reason=f"published D3 {'fires' if published_fails else 'is quiet'} on backprop; ours: {digits.reason}",
            key_finding=f"published D3 {'fires' if published_fails else 'is quiet'} on backprop ({digits.reason}).",
            headline="backprop minus frozen",
            measurements=(
                Measurement(name="backprop minus frozen", value=gap.value, unit="accuracy", n=gap.n, values=gap.values,
                            seeds=gap.seeds, region=Region(high=UTILITY_MARGIN),
                            note=f"{gap.note}; interval {gap.interval}; the claim is on the difference as published"),
                *((Measurement(name="smallest detectable gain", value=digits.detectable, unit="accuracy",
                               source="derived"),) if digits.detectable else ()),
            ),
            checks=(
                Check(name="published D3 fires on backprop", reason=f"{100 * gap.value:+.1f} pp over frozen blocks",
                      verdict=Verdict.PASS if published_fails else Verdict.FAIL),
                Check(name="ours says no headroom", reason=digits.reason,
                      verdict=Verdict.PASS if ours else Verdict.FAIL),
            ),
            controls=(
                Control(name="control: stripes", kind="known-good", expected="PASS", observed=stripes.verdict.value,
                        separated=stripes.verdict is Verdict.PASS),
                Control(name="control: block FA", kind="known-bad", expected="FAIL", observed=worse.verdict.value,
                        separated=worse.verdict is Verdict.FAIL),
            ),
            figures=(_figure(outcomes),),
            varied=("initialisation", "data order", "split"),
        )


def _figure(outcomes: Outcomes) -> Figure:
    arms = ("frozen", "backprop")
    seeds = sorted(outcomes.arm("frozen").keys() & outcomes.arm("backprop").keys())
    mean = sum(outcomes.values("frozen", "accuracy")) / len(outcomes.arm("frozen"))
    return Figure(
        key="headroom", question="Is there room above frozen blocks?", kind="slopes", y_label="test accuracy",
        categories=("frozen", "backprop"),
        series=tuple(Series(name=f"seed {seed}", x=(0.0, 1.0),
                            y=tuple(float(outcomes.arm(arm)[seed]["accuracy"]) for arm in arms)) for seed in seeds),
        references=(Reference(value=mean + 0.02, label="published D3 limit"),),
    )
