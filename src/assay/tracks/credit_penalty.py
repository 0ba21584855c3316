"""Block-level DFA is trained on digits without and with a penalty on what each block writes, lambda |f_l|^2.

Mode 1 is the growth of the stream, mode 2 the blocks' failure to beat frozen ones. The penalty is meant to cure the
first; the claim is that it leaves the second. Backprop must not show either mode; block-level FA, whose blocks end far
below frozen ones, must fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from assay.protocols import Budget, Outcomes, Trial
from assay.registry import track
from assay.results import Check, Control, Figure, Finding, Measurement, Reference, Region, Series, Verdict
from assay.tracks import credit_training as training

PENALTY = 0.01
TAMED = 5.0
"""Growth per block up to which a stream counts as tamed: what backprop-trained nets show."""
ARMS = ("plain", "penalised", "frozen", "control: backprop", "control: block FA")


@track(
    32,
    "credit-penalty",
    claim="A penalty on what blocks write stops the stream from growing, but does not make trained blocks useful.",
    title="The penalty removes mode 1 but not mode 2",
    sources=training.SOURCES,
    timeout=600.0,
)
class Penalty:
    """DFA with and without the penalty."""

    controls: ClassVar[tuple[str, ...]] = ("control: backprop", "control: block FA")

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return training.trials(ARMS, budget, seeds)

    def measure(self, trial: Trial) -> Mapping[str, Any]:
        rule = {"plain": "dfa", "penalised": "dfa", "frozen": "frozen", "control: backprop": "backprop"}
        penalty = PENALTY if trial.arm == "penalised" else 0.0
        return training.train_arm(rule.get(trial.arm, "fa"), trial.seed, penalty=penalty)

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the penalty tames the growth at every seed and penalised blocks still end below frozen ones.

        FAIL if the growth is not tamed, or was none to begin with, or if penalised blocks beat frozen ones.
        """
        from assay.audits.credit.depth import judge_utility

        if gone := training.missing(outcomes, ARMS):
            return Finding(subject="DFA with a penalty", claim="", verdict=Verdict.INCONCLUSIVE,
                           reason=f"no result for {', '.join(gone)}")
        seeds, plain, penalised = outcomes.paired("plain", "penalised", "growth")
        tamed = max(penalised) <= TAMED < min(plain)
        utilities = {
            arm: judge_utility(training.baselines(outcomes, rule=arm, backprop="control: backprop", frozen="frozen"))
            for arm in ("penalised", *self.controls)
        }
        useless = utilities["penalised"].verdict is Verdict.FAIL
        told = (f"growth {min(plain):.3g} to {max(plain):.3g} without the penalty, {min(penalised):.3g} to "
                f"{max(penalised):.3g} with it; {utilities['penalised'].reason}")
        gap = utilities["penalised"].gap
        useful = gap is not None and gap.interval is not None and gap.interval.low > 0
        verdict = Verdict.PASS if tamed and useless else Verdict.FAIL if useful or not tamed else Verdict.INCONCLUSIVE
        backprop_growth = max(outcomes.values("control: backprop", "growth"))
        good = utilities["control: backprop"].verdict is not Verdict.FAIL and backprop_growth <= TAMED
        return Finding(
            subject="Block-level DFA with a penalty, on digits",
            claim="",
            verdict=verdict,
            reason=told,
            key_finding=told,
            headline="penalised DFA minus frozen",
            measurements=(
                *((Measurement(name="penalised DFA minus frozen", value=gap.value, unit="accuracy", n=gap.n,
                               interval=gap.interval, region=Region(high=0.0), values=gap.values, seeds=gap.seeds,
                               note=gap.note),) if gap else ()),
                Measurement(name="largest growth with the penalty", value=max(penalised), unit="ratio", n=len(seeds),
                            region=Region(high=TAMED), values=penalised, seeds=seeds),
                Measurement(name="smallest growth without it", value=min(plain), unit="ratio", n=len(seeds),
                            values=plain, seeds=seeds),
            ),
            checks=(
                Check(name="mode 1 is gone", verdict=Verdict.PASS if tamed else Verdict.FAIL,
                      reason=told.split(";")[0]),
                Check(name="mode 2 is left", verdict=Verdict.PASS if useless else Verdict.INCONCLUSIVE,
                      reason=utilities["penalised"].reason),
            ),
            controls=(
                Control(name="control: backprop", kind="known-good", expected=f"growth up to {TAMED:g}, not FAIL",
                        observed=f"growth {backprop_growth:.3g}, {utilities['control: backprop'].verdict.value}",
                        separated=good),
                Control(name="control: block FA", kind="known-bad", expected="FAIL",
                        observed=utilities["control: block FA"].verdict.value,
                        separated=utilities["control: block FA"].verdict is Verdict.FAIL),
            ),
            figures=(_figure(seeds, plain, penalised),),
            varied=("initialisation", "data order", "split", "feedback matrices"),
            limitations=(f"One penalty, lambda = {PENALTY:g}, on small nets; the sweep on CIFAR-10 is in "
                         "docs/results/fa-protocol.md.",),
        )


def _figure(seeds: Sequence[int], plain: Sequence[float], penalised: Sequence[float]) -> Figure:
    return Figure(
        key="growth-with-penalty", question="Does the penalty stop the stream from growing?", kind="slopes",
        y_label="largest growth of a block", y_scale="log", categories=("no penalty", f"lambda = {PENALTY:g}"),
        series=tuple(Series(name=f"seed {seed}", x=(0.0, 1.0), y=(a, b))
                     for seed, a, b in zip(seeds, plain, penalised, strict=True)),
        references=(Reference(value=TAMED, label="tamed"),),
    )
