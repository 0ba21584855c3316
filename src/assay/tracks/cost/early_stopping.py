"""A relaxation that stops when it rests, against one that always runs as long: processor time and accuracy of training.

The original counted neurons it skipped ("97 % fewer operations") and found the clock running four times slower. Here
the clock decides: processor seconds of the whole training, on one thread, with accuracy as a condition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Finding
from assay.stats import Decision
from assay.tracks.shared import findings, recipe
from assay.tracks.shared.records import Record, paired, values_by_arm

STOPS, RUNS_ON = "stops at rest", "always 60 sweeps"
SHORT, NEVER = "control: always 10 sweeps", "control: looks and never stops"
SCHEDULES: Mapping[str, dict[str, Any]] = {
    STOPS: {"sweeps": (60, 60), "tolerance": recipe.RESTING},
    RUNS_ON: {"sweeps": (60, 60), "tolerance": None},
    SHORT: {"sweeps": (10, 10), "tolerance": None},
    NEVER: {"sweeps": (60, 60), "tolerance": 1e-12},
}
SAVED, MARGIN, EPOCHS = 0.2, 1.0, 4


class TrainingCost(Record):
    """Processor seconds of one training, and its test accuracy (%)."""

    cpu_seconds: float
    accuracy: float
    loss: float


CLAIM = (
    "Stopping a relaxation when it rests saves at least 20 % of the processor time and at most 1 point of accuracy."
)


@track(12, "early-stopping", claim=CLAIM, title="Early stopping saves time", also=(24,), on_request=True)
class EarlyStopping:
    """The same training twice; all that differs is when a relaxation ends."""

    controls: ClassVar[tuple[ControlArm, ...]] = (known_good(SHORT, STOPS), known_bad(NEVER, STOPS))

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return findings.arms_and_controls((STOPS, RUNS_ON), self.controls, budget, seeds)

    def measure(self, trial: Trial) -> TrainingCost:
        """One training, timed by the processor's clock after a step that warms up."""
        import time

        from assay.tasks import digits

        task, model = digits(seed=trial.seed), recipe.network(trial.seed)
        rule = recipe.resting(**SCHEDULES[trial.arm])
        rule.backward(recipe.network(trial.seed), *recipe.batch_of(task))
        began = time.process_time()
        result = recipe.learn(model, task, rule, trial, epochs=EPOCHS)
        spent = time.process_time() - began
        return TrainingCost(cpu_seconds=spent, accuracy=100 * result.test_accuracy, loss=result.final_loss)

    def judge(self, outcomes: Outcomes) -> Decision:
        """Time first, accuracy as well; the worse of the two decides."""
        pairs = paired(outcomes, STOPS, RUNS_ON, TrainingCost)
        ours, theirs = pairs.of(lambda record: math.log(record.cpu_seconds))
        time = stats.better(theirs, ours, margin=-math.log(1 - SAVED), seeds=pairs.seeds,
                            name="log of the time ratio, running on over stopping")
        kept = stats.non_inferior(*pairs.of(lambda record: record.accuracy), margin=MARGIN, items=recipe.TEST_ITEMS,
                                  scale=100.0, seeds=pairs.seeds, unit="pp", name="accuracy, stopping minus running on")
        return stats.all_hold([time, kept], claim="saves time and keeps accuracy")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the time saved exceeds 20 % and the accuracy lost stays below 1 point, both by their intervals."""
        pairs = paired(outcomes, STOPS, RUNS_ON, TrainingCost)
        if not pairs.seeds:
            return findings.unfinished(CLAIM)
        ours, theirs = pairs.of(lambda record: record.cpu_seconds)
        accuracy = pairs.of(lambda record: record.accuracy)
        values = values_by_arm(outcomes, SCHEDULES, TrainingCost, lambda record: record.cpu_seconds)
        return findings.concluded(
            self.judge(outcomes),
            claim=CLAIM,
            subject="EnergyMLP 64-128-128-10, gamma 0.25, trained by EP on digits, at most 60 sweeps a phase",
            told=f"Stopping at a change of {recipe.RESTING:g} takes {fmean(ours):.2f} processor seconds, running on "
            f"{fmean(theirs):.2f}: {1 - fmean(ours) / fmean(theirs):.0%} less, at {fmean(accuracy[0]):.2f} % against "
            f"{fmean(accuracy[1]):.2f} % accuracy.",
            figure=findings.by_arm(values, key="time-by-schedule", question="Does stopping at rest save time?",
                                   label="processor seconds of a training"),
            tables=(findings.seed_table("By seed", pairs.seeds, {
                "seconds, stopping": ours, "seconds, running on": theirs, "accuracy, stopping (%)": accuracy[0],
                "accuracy, running on (%)": accuracy[1]}),),
            limits=(
                "Dense layers on one CPU thread; that a device may skip single quiet neurons is not tested.",
                "A fixed schedule chosen well (10 sweeps here, a control) saves as much without looking.",
            ),
        )
