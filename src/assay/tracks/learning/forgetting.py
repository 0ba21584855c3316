"""Digits 0 to 4 are learned first, 5 to 9 afterwards; what is left of the first half?

Old digits are judged among the old classes alone, so that a bias towards the new answers is not mistaken for
forgetting. Both rules see the same data in the same order from the same weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Split, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Finding
from assay.stats import Decision
from assay.tracks.shared import findings, recipe
from assay.tracks.shared.records import Record, paired, values_by_arm

EQPROP, BACKPROP = "eqprop", "backprop"
TOGETHER, NEVER = "control: both halves at once", "control: the first half never learned"
OLD, NEW = range(5), range(5, 10)
MARGIN, EPOCHS, ITEMS = 5.0, 8, 180


class Memory(Record):
    """Accuracy (%) on old digits before and after the new ones were learned, and on the new ones."""

    learned: float
    kept: float
    new: float
    loss: float


CLAIM = (
    "After learning five new digits a network trained by EP knows the old ones at least 5 points better than "
    "backprop's."
)


@track(21, "forgetting", claim=CLAIM, title="Forgetting", on_request=True)
class Forgetting:
    """Two halves of digits, one after the other, under both rules."""

    controls: ClassVar[tuple[ControlArm, ...]] = (known_good(TOGETHER, EQPROP), known_bad(NEVER, EQPROP))

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return findings.arms_and_controls((EQPROP, BACKPROP), self.controls, budget, seeds)

    def measure(self, trial: Trial) -> Memory:
        """Train on the old half, then on the new; look at both on the test part."""
        from assay.rules import Backprop
        from assay.tasks import digits

        task = digits(seed=trial.seed)
        old, new = recipe.classes_only(task, OLD), recipe.classes_only(task, NEW)
        energy = recipe.network(trial.seed)
        model: Any = energy.feedforward() if trial.arm == BACKPROP else energy
        rule: Any = Backprop() if trial.arm == BACKPROP else recipe.resting()
        if trial.arm != NEVER:
            result = recipe.learn(model, task if trial.arm == TOGETHER else old, rule, trial, epochs=EPOCHS)
        learned = _among(model, old.test, OLD)
        if trial.arm != TOGETHER:
            result = recipe.learn(model, new, rule, trial, epochs=EPOCHS, order=1)
        return Memory(
            learned=learned, kept=_among(model, old.test, OLD), new=_among(model, new.test, NEW), loss=result.final_loss
        )

    def judge(self, outcomes: Outcomes) -> Decision:
        """How much more of the old EP keeps."""
        pairs = paired(outcomes, EQPROP, BACKPROP, Memory)
        ours, theirs = pairs.of(lambda record: record.kept)
        return stats.better(ours, theirs, margin=MARGIN, items=ITEMS, scale=100.0, unit="pp", seeds=pairs.seeds,
                            name="old digits known, EP minus backprop")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the interval of the difference lies above 5 points."""
        pairs = paired(outcomes, EQPROP, BACKPROP, Memory)
        if not pairs.seeds:
            return findings.unfinished(CLAIM)
        ours, theirs = pairs.of(lambda record: record.kept)
        before, new = pairs.of(lambda record: record.learned), pairs.of(lambda record: record.new)
        values = values_by_arm(outcomes, (EQPROP, BACKPROP, TOGETHER, NEVER), Memory, lambda record: record.kept)
        return findings.concluded(
            self.judge(outcomes),
            claim=CLAIM,
            subject="EnergyMLP 64-128-128-10, gamma 0.25, on digits 0-4, then 5-9",
            told=f"Of {fmean(before[0]):.1f} % EP keeps {fmean(ours):.1f} % of the old digits, backprop "
            f"{fmean(theirs):.1f} % "
            f"of {fmean(before[1]):.1f} %; the new ones reach {fmean(new[0]):.1f} % and {fmean(new[1]):.1f} %.",
            figure=findings.by_arm(values, key="old-digits-kept", question="What is left of the first half?",
                                   label="accuracy on old digits, among old classes (%)"),
            tables=(findings.seed_table("Old digits by seed (%)", pairs.seeds, {
                "EP, before": before[0], "EP, after": ours, "backprop, before": before[1],
                "backprop, after": theirs}),),
            numbers=findings.summaries({"EP, kept": ours, "backprop, kept": theirs}, "%", name="old digits"),
            limits=(
                "No rehearsal and no penalty in either arm: what is asked is whether the rule itself forgets less.",
                "The original's elastic weight consolidation is a penalty that works with any rule; it is not tested.",
            ),
        )


def _among(model: Any, split: Split, classes: range) -> float:
    """Accuracy (%) when only these classes may be answered."""
    import torch

    with torch.no_grad():
        answers = model(split.x)[:, list(classes)].argmax(1) + classes.start
    return 100 * float((answers == split.y).double().mean())
