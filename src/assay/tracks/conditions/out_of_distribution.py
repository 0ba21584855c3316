"""The energy a trained network rests at, as a score of how strange a picture is, against plain softmax confidence.

Trained on digits 0 to 7; strange are digits it has never seen (8 and 9) and known digits with their pixels in one
random order. The score is the area under the ROC curve, averaged over both kinds. The nearest training picture, by
distance, is the yardstick of what is possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Finding, Reference
from assay.stats import Decision
from assay.tracks.shared import findings, recipe
from assay.tracks.shared.records import Record, paired, values_by_arm

if TYPE_CHECKING:
    from torch import Tensor

ENERGY, SOFTMAX = "energy", "softmax"
NEIGHBOUR, RANDOM = "control: distance to the nearest training picture", "control: random score"
SCORES = (ENERGY, SOFTMAX, NEIGHBOUR, RANDOM)
KNOWN, MARGIN, EPOCHS = range(8), 0.0, 8


class Separation(Record):
    """Area under the ROC curve of one score: against new digits, and against shuffled pixels."""

    new_digits: float
    shuffled: float
    loss: float

    @property
    def mean(self) -> float:
        return (self.new_digits + self.shuffled) / 2


CLAIM = "The energy at rest tells strange pictures from known ones better than softmax confidence does."


@track(36, "energy-ood", claim=CLAIM, title="Energy as an out-of-distribution score", on_request=True)
class EnergyOutOfDistribution:
    """One trained network per seed, read by several scores."""

    controls: ClassVar[tuple[ControlArm, ...]] = (known_good(NEIGHBOUR, ENERGY), known_bad(RANDOM, ENERGY))

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return findings.arms_and_controls((ENERGY, SOFTMAX), self.controls, budget, seeds)

    def measure(self, trial: Trial) -> Separation:
        """Train on eight digits and score known, new and shuffled pictures."""
        import torch

        from assay.seeding import torch_generator
        from assay.tasks import digits

        whole = digits(seed=trial.seed)
        task = recipe.classes_only(whole, KNOWN)
        model = recipe.network(trial.seed)
        result = recipe.learn(model, task, recipe.resting(), trial, epochs=EPOCHS)
        order = torch.randperm(64, generator=torch_generator(trial.seed, "pixels"))
        new = recipe.classes_only(whole, range(8, 10)).test.x

        drawn = torch_generator(trial.seed, "score")

        def strangeness(x: Tensor) -> Any:
            with torch.no_grad():
                if trial.arm == ENERGY:
                    clamped = model.clamp(x)
                    return model.energy(clamped, model.relax(clamped, None, sweeps=200, tolerance=1e-5).value)
                if trial.arm == SOFTMAX:
                    return -model(x).softmax(1).amax(1)
                if trial.arm == NEIGHBOUR:
                    return torch.cdist(x, task.train.x).amin(1)
                return torch.rand(len(x), generator=drawn)

        known = strangeness(task.test.x)
        return Separation(
            new_digits=_area(strangeness(new), known), shuffled=_area(strangeness(task.test.x[:, order]), known),
            loss=result.final_loss,
        )  # fmt: skip

    def judge(self, outcomes: Outcomes) -> Decision:
        """The difference of the areas, seed by seed."""
        pairs = paired(outcomes, ENERGY, SOFTMAX, Separation)
        return stats.better(*pairs.of(lambda record: record.mean), margin=MARGIN, seeds=pairs.seeds,
                            name="area under the ROC curve, energy minus softmax")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the interval of the difference lies above 0."""
        pairs = paired(outcomes, ENERGY, SOFTMAX, Separation)
        if not pairs.seeds:
            return findings.unfinished(CLAIM)
        ours, theirs = pairs.of(lambda record: record.mean)
        parts = {name: [fmean(getattr(r, name) for r in side) for side in (pairs.first, pairs.second)]
                 for name in ("new_digits", "shuffled")}  # fmt: skip
        values = values_by_arm(outcomes, SCORES, Separation, lambda record: record.mean)
        return findings.concluded(
            self.judge(outcomes),
            claim=CLAIM,
            subject="EnergyMLP 64-128-128-10, gamma 0.25, trained by EP on digits 0 to 7",
            told=f"Area under the curve {fmean(ours):.3f} by energy, {fmean(theirs):.3f} by softmax (new digits "
            f"{parts['new_digits'][0]:.2f} and {parts['new_digits'][1]:.2f}, shuffled pixels "
            f"{parts['shuffled'][0]:.2f} and {parts['shuffled'][1]:.2f}).",
            figure=findings.by_arm(values, key="area-by-score", question="Which score knows what is strange?",
                                   label="area under the ROC curve",
                                   references=(Reference(value=0.5, label="chance"),)),
            tables=(findings.seed_table("By seed", pairs.seeds, {"energy": ours, "softmax": theirs}),),
            numbers=findings.summaries({"energy": ours, "softmax": theirs}, "1", name="area under the curve"),
            limits=("Low energy counts as familiar, as in the original; turned round, the score would be 1 minus it.",),
        )  # fmt: skip


def _area(strange: Tensor, known: Tensor) -> float:
    """The probability that a strange picture scores higher than a known one, ties half."""
    higher = (strange[:, None] > known[None, :]).double().mean()
    ties = (strange[:, None] == known[None, :]).double().mean()
    return float(higher + ties / 2)
