"""Processor time until 95 % on validation, EP against backprop on the feed-forward limit of the same network.

Each arm trains by the shared recipe and stops the clock at the end of the first epoch whose validation accuracy
reaches the target; only gradients are counted, optimiser and evaluation being the same for both. A training that
never gets there counts with all its time and is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Finding
from assay.stats import Decision
from assay.tracks.shared import findings, recipe
from assay.tracks.shared.records import Record, paired, values_by_arm

EQPROP, BACKPROP = "eqprop", "backprop"
TWIN, SLOW = "control: backprop again", "control: EP of 100 sweeps each"
TARGET, FACTOR, EPOCHS = 95.0, 2.0, 12


class Clock(Record):
    """Processor seconds until the target, and the epochs it took (None: never reached)."""

    cpu_seconds: float
    epochs: int | None
    accuracy: float
    loss: float


CLAIM = "EP reaches 95 % on digits in at most twice the processor time of backprop."


@track(57, "time-to-accuracy", claim=CLAIM, title="Time to accuracy", on_request=True)
class TimeToAccuracy:
    """The same network, recipe and target under both rules."""

    controls: ClassVar[tuple[ControlArm, ...]] = (known_good(TWIN, EQPROP), known_bad(SLOW, EQPROP))

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return findings.arms_and_controls((EQPROP, BACKPROP), self.controls, budget, seeds)

    def measure(self, trial: Trial) -> Clock:
        """Train with a stopwatch that runs during gradients only."""
        from assay.rules import Backprop
        from assay.tasks import digits

        task, energy = digits(seed=trial.seed), recipe.network(trial.seed)
        plain = trial.arm in (BACKPROP, TWIN)
        rule: Any = Backprop() if plain else recipe.resting(
            **({"sweeps": (100, 100), "tolerance": None} if trial.arm == SLOW else {}))
        model: Any = energy.feedforward() if plain else energy
        timed = Timed(rule)
        spent: list[tuple[float, float]] = []
        result = recipe.learn(
            model, task, timed, trial, epochs=EPOCHS, schedule="constant", order=10_000 if trial.arm == TWIN else 0,
            callbacks=[lambda epoch, _: spent.append((timed.seconds, 100 * epoch.validation_accuracy))],
        )
        reached = next((i for i, (_, accuracy) in enumerate(spent) if accuracy >= TARGET), None)
        return Clock(
            cpu_seconds=spent[-1 if reached is None else reached][0], epochs=None if reached is None else reached + 1,
            accuracy=100 * result.test_accuracy, loss=result.final_loss,
        )  # fmt: skip

    def judge(self, outcomes: Outcomes) -> Decision:
        """The ratio of the times, on a logarithmic scale."""
        pairs = paired(outcomes, EQPROP, BACKPROP, Clock)
        ours, theirs = pairs.of(lambda record: math.log2(record.cpu_seconds))
        # Lower is better: backprop's time first.
        return stats.non_inferior(theirs, ours, margin=math.log2(FACTOR), seeds=pairs.seeds,
                                  name="log2 of the time ratio, backprop over EP")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the interval of the ratio lies below 2."""
        pairs = paired(outcomes, EQPROP, BACKPROP, Clock)
        if not pairs.seeds:
            return findings.unfinished(CLAIM)
        ours, theirs = pairs.of(lambda record: record.cpu_seconds)
        ratio = 2 ** fmean(math.log2(a / b) for a, b in zip(ours, theirs, strict=True))
        never = sum(record.epochs is None for record in (*pairs.first, *pairs.second))
        values = values_by_arm(outcomes, (EQPROP, BACKPROP, TWIN, SLOW), Clock, lambda record: record.cpu_seconds)
        return findings.concluded(
            self.judge(outcomes),
            claim=CLAIM,
            subject="EnergyMLP 64-128-128-10, gamma 0.25, EP at rest, and its feed-forward limit, on digits",
            told=f"EP takes {fmean(ours):.2f} processor seconds to {TARGET:g} % on validation, backprop "
            f"{fmean(theirs):.2f}: {ratio:.1f} times as long (geometric mean); {never} trainings never got there.",
            figure=findings.by_arm(values, key="time-to-accuracy", question="How long until 95 %?",
                                   label="processor seconds of gradients", log=True),
            tables=(findings.seed_table("By seed", pairs.seeds, {"EP (s)": ours, "backprop (s)": theirs}),),
            limits=("One CPU thread; gradients are timed, optimiser steps and evaluation, the same for both, are not.",
                    "EP relaxes until it rests; a schedule cut short is faster and its gradient farther from the "
                    "truth."),
        )  # fmt: skip


class Timed:
    """A rule with a stopwatch on the processor's clock, running during gradients alone."""

    def __init__(self, rule: Any) -> None:
        self.rule, self.seconds = rule, 0.0

    def backward(self, model: Any, x: Any, y: Any) -> Any:
        """The wrapped rule's loss."""
        import time

        began = time.process_time()
        loss = self.rule.backward(model, x, y)
        self.seconds += time.process_time() - began
        return loss
