"""Block-level DFA is trained on digits without and with a penalty on what each block writes, lambda |f_l|^2.

Mode 1 is the growth of the stream, mode 2 the blocks' failure to beat frozen ones. The penalty is meant to cure the
first; the claim is that it leaves the second. Backprop must not show either mode; block-level FA, whose blocks end far
below frozen ones, must fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Check, Figure, Finding, Measurement, Reference, Region, Series, Verdict
from assay.tracks.credit import training
from assay.tracks.shared.records import paired

PENALTY = 0.01
TAMED = 5.0
"""Growth per block up to which a stream counts as tamed: what backprop-trained nets show."""
RULES = {
    "plain": "dfa",
    "penalised": "dfa",
    "frozen": "frozen",
    "control: backprop": "backprop",
    "control: block FA": "fa",
}
ARMS = tuple(RULES)
SUBJECT = "Block-level DFA with a penalty, on digits"
CLAIM = "A penalty on what blocks write stops the stream from growing, but does not make trained blocks useful."


@track(132, "credit-penalty", claim=CLAIM, title="The penalty removes mode 1 but not mode 2", timeout=600.0)
class Penalty:
    """DFA with and without the penalty."""

    controls: ClassVar[tuple[ControlArm, ...]] = (
        known_good("control: backprop", "penalised"),
        known_bad("control: block FA", "penalised"),
    )

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return training.trials(ARMS, budget, seeds)

    def measure(self, trial: Trial) -> training.TrainedBlocks:
        penalty = PENALTY if trial.arm == "penalised" else 0.0
        return training.train_arm(RULES[trial.arm], trial.seed, penalty=penalty, budget=trial.budget)

    def judge(self, outcomes: Outcomes) -> Check:
        """Whether the penalised arm shows either mode: a stream that grows, or blocks below frozen ones."""
        arms = training.of_arms(outcomes, ARMS)
        growth = max(record.growth for record in arms["penalised"].values())
        utility = training.judged(arms, "penalised", backprop="control: backprop")
        verdict = utility.verdict if growth <= TAMED else Verdict.FAIL
        return Check(name="modes", verdict=verdict, reason=f"growth {growth:.3g}; {utility.reason}")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if at every seed the stream grows and the penalty tames it, and penalised blocks end below frozen ones.

        FAIL if the penalty leaves the growth, or if penalised blocks beat frozen ones; undecided where nothing grows
        without it.
        """
        arms = training.of_arms(outcomes, ARMS)
        if reason := training.undecidable(arms, growth=lambda record: record.growth):
            return Finding(subject=SUBJECT, claim=CLAIM, verdict=Verdict.INCONCLUSIVE, reason=reason)
        pairs = paired(outcomes, "plain", "penalised", training.TrainedBlocks)
        seeds, (plain, penalised) = pairs.seeds, pairs.of(lambda record: record.growth)
        grown, tamed = min(plain) > TAMED, max(penalised) <= TAMED
        growth = (f"growth {min(plain):.3g} to {max(plain):.3g} without the penalty, {min(penalised):.3g} to "
                  f"{max(penalised):.3g} with it")
        utility = training.judged(arms, "penalised", backprop="control: backprop")
        gap = training.gap(arms, "penalised", backprop="control: backprop")
        worse = stats.relation(gap.interval, training.BELOW_FROZEN)
        return Finding(
            subject=SUBJECT,
            claim=CLAIM,
            verdict=training.verdict(holds=grown and tamed and worse is Verdict.PASS,
                                     refuted=not tamed or worse is Verdict.FAIL, seeds=gap.seeds),
            reason=f"{growth}; {utility.reason}",
            key_finding=f"{growth}; {utility.reason}",
            headline="penalised DFA minus frozen",
            measurements=(
                training.shown(gap, "penalised DFA minus frozen", training.BELOW_FROZEN),
                Measurement(name="largest growth with the penalty", value=max(penalised), unit="ratio", n=len(seeds),
                            region=Region(high=TAMED), values=tuple(penalised), seeds=seeds),
                Measurement(name="smallest growth without it", value=min(plain), unit="ratio", n=len(seeds),
                            values=tuple(plain), seeds=seeds),
            ),
            checks=(
                Check(name="mode 1 shows without the penalty", reason=growth,
                      verdict=Verdict.PASS if grown else Verdict.INCONCLUSIVE),
                Check(name="mode 1 is gone with it", reason=growth, verdict=Verdict.PASS if tamed else Verdict.FAIL),
                Check(name="mode 2 is left", reason=utility.reason, verdict=worse),
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
