"""A convolutional energy network with real feedback, at rest, against backprop on its feed-forward limit.

Weak feedback turns EP into backprop: at gamma 0.01 one sweep carries a gradient within 1 % of the feed-forward one,
and parity there says nothing about equilibria. Here gamma is 0.25, both phases relax until they rest, and the cosine
with the true gradient of the *settled* network is part of the claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Finding
from assay.stats import Decision
from assay.tracks.shared import findings, recipe
from assay.tracks.shared.parity import Learned, gap
from assay.tracks.shared.records import paired, recorded

EQPROP, BACKPROP = "eqprop", "backprop"
TWIN, FROZEN, HASTY = "control: backprop in another order", "control: frozen body", "control: EP of one sweep"
CHANNELS, GAMMA, EPOCHS, RATE, NOISE = (8, 16), 0.25, 8, 2e-2, 0.1
"""The rate was chosen for backprop, on the validation part of a seed (1000) that no claim uses.

Pooling, activation and epochs were settled after pilots at seed 42, whose test accuracy was seen; margins were not."""
MARGIN, COSINE = 1.5, 0.99
CLAIM = (
    "A convolutional net trained by EP at gamma 0.25, at rest (cosine 0.99 or more), is within 1.5 points of "
    "backprop."
)


@track(
    13,
    "conv-parity",
    claim=CLAIM,
    title="Convolutional parity at rest",
    also=(33,),
    on_request=True,
)
class ConvParity:
    """EnergyConv on 8 x 8 digits under both rules."""

    controls: ClassVar[tuple[ControlArm, ...]] = (
        known_good(TWIN, EQPROP), known_bad(FROZEN, EQPROP), known_bad(HASTY, EQPROP, because="cosine"),
    )  # fmt: skip

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return findings.arms_and_controls((EQPROP, BACKPROP), self.controls, budget, seeds)

    def measure(self, trial: Trial) -> Learned:
        """Test accuracy, and how far from the true gradient the rule ended."""
        from assay.models import EnergyConv
        from assay.rules import Backprop
        from assay.tasks import digits

        task = digits(seed=trial.seed, flat=False)
        energy = EnergyConv((1, 8, 8), CHANNELS, pooling="max", activation="smooth", gamma=GAMMA, seed=trial.seed)
        settles = trial.arm in (EQPROP, HASTY)
        model = energy if settles else energy.feedforward()
        hasty = {"sweeps": (1, 1), "tolerance": None}
        rule: Any = recipe.resting(**(hasty if trial.arm == HASTY else {})) if settles else Backprop()
        if trial.arm == FROZEN:
            for parameter in list(model.parameters())[:-2]:
                parameter.requires_grad_(False)
        result = recipe.learn(model, task, rule, trial, epochs=EPOCHS, rate=RATE, noise=NOISE,
                              order=10_000 if trial.arm == TWIN else 0)
        return Learned(
            accuracy=100 * result.test_accuracy, loss=result.final_loss,
            history=tuple(100 * epoch.validation_accuracy for epoch in result.history),
            rest=recipe.rest(model, rule, *recipe.batch_of(task)) if settles else None,
        )  # fmt: skip

    def judge(self, outcomes: Outcomes) -> Decision:
        """Parity, and the true gradient at the end of training at every seed."""
        found = recorded(outcomes, EQPROP, Learned)
        away = [1 - record.rest.cosine for record in found.values() if record.rest is not None]
        parity = gap(outcomes, EQPROP, BACKPROP, margin=MARGIN)
        if not away:  # a twin by backprop does not relax
            return parity
        true = stats.numeric_match(away, 1 - COSINE, magnitude=1.0, name="1 - cosine with the true gradient")
        return stats.all_hold([parity, true], claim="parity, by the true gradient")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the gap lies within the margin and the cosine at the end reaches 0.99 at every seed."""
        pairs = paired(outcomes, EQPROP, BACKPROP, Learned)
        if not pairs.seeds:
            return findings.unfinished(CLAIM)
        ours, theirs = pairs.of(lambda record: record.accuracy)
        rests = [record.rest for record in pairs.first if record.rest is not None]
        values = {arm: [r.accuracy for r in recorded(outcomes, arm, Learned).values()]
                  for arm in (EQPROP, BACKPROP, TWIN, FROZEN, HASTY)}  # fmt: skip
        return findings.concluded(
            self.judge(outcomes),
            claim=CLAIM,
            subject=f"EnergyConv, {CHANNELS[0]} and {CHANNELS[1]} maps, max pooling, gamma {GAMMA}, on "
            "digits",
            told=f"EP {fmean(ours):.2f} %, backprop {fmean(theirs):.2f} %; after training the smallest cosine with "
            "the true "
            f"gradient is {min(r.cosine for r in rests):.4f}, the largest residual "
            f"{max(r.residual for r in rests):.1g}.",
            figure=findings.by_arm(values, key="accuracy-by-arm", question="Does EP with real feedback keep up?",
                                   label="test accuracy (%)"),
            tables=(findings.seed_table("By seed", pairs.seeds, {
                "EP (%)": ours, "backprop (%)": theirs, "cosine after": [r.cosine for r in rests],
                "residual after": [r.residual for r in rests]}),),
            numbers=findings.summaries({EQPROP: ours, BACKPROP: theirs}, "%"),
            limits=(
                f"Small pictures, {EPOCHS} epochs, one architecture; MNIST and CIFAR-10 are in the benchmark.",
            ),
        )
