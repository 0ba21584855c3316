"""Sixteen hidden layers: does the credit of EP reach the first, and does the network learn as backprop's does?

In float32 the nudge that reaches layer l is about gamma^(K-l) of a unit; kept as a difference of states it is
rounding noise below some layers, and the first layers then learn nothing. Deviation coordinates keep it. Both are
measured: the cosine of the first layer's gradient with the true one, before and after training, and the test
accuracy.
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
from assay.tracks.shared.records import Record, paired, recorded, values_by_arm

EQPROP, BACKPROP = "eqprop", "backprop"
TWIN, STATES, FROZEN = "control: backprop in another order", "control: difference of states", "control: frozen body"
HIDDEN, WIDTH, GAMMA, EPOCHS, RATE = 16, 32, 0.1, 12, 2e-3
GAIN = 3**0.5
"""Times PyTorch's initialisation: unit gain, with which a signal crosses sixteen tanh layers."""
MARGIN, COSINE = 2.0, 0.99


class Deep(Record):
    """One training of a deep network; cosines of the first layer's gradient, None for rules that do not relax."""

    accuracy: float
    loss: float
    before: float | None = None
    after: float | None = None


CLAIM = (
    "EP trains 16 hidden layers to within 2 points of backprop, its first layer's gradient true to a cosine of 0.99."
)


@track(23, "depth", claim=CLAIM, title="Depth", on_request=True)
class Depth:
    """A tanh network of sixteen hidden layers under both rules."""

    controls: ClassVar[tuple[ControlArm, ...]] = (
        known_good(TWIN, EQPROP), known_bad(FROZEN, EQPROP), known_bad(STATES, EQPROP),
    )  # fmt: skip

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return findings.arms_and_controls((EQPROP, BACKPROP), self.controls, budget, seeds)

    def measure(self, trial: Trial) -> Deep:
        """Accuracy, and the cosine of the deepest credit before and after."""
        import torch

        from assay.rules import Backprop
        from assay.tasks import digits

        task = digits(seed=trial.seed)
        energy = recipe.network(trial.seed, widths=(64, *[WIDTH] * HIDDEN, 10), gamma=GAMMA)
        with torch.no_grad():
            for parameter in energy.parameters():
                if parameter.ndim > 1:
                    parameter.mul_(GAIN)
        settles = trial.arm in (EQPROP, STATES)
        model: Any = energy if settles else energy.feedforward()
        rule: Any = Backprop()
        if settles:
            rule = recipe.resting(coordinates="states", beta=0.5) if trial.arm == STATES else recipe.resting()
        if trial.arm == FROZEN:
            for parameter in list(model.parameters())[:-2]:
                parameter.requires_grad_(False)
        batch = recipe.batch_of(task)
        before = _first_cosine(model, rule, *batch) if settles else None
        order = 10_000 if trial.arm == TWIN else 0
        result = recipe.learn(model, task, rule, trial, epochs=EPOCHS, rate=RATE, order=order)
        return Deep(
            accuracy=100 * result.test_accuracy, loss=result.final_loss, before=before,
            after=_first_cosine(model, rule, *batch) if settles else None,
        )  # fmt: skip

    def judge(self, outcomes: Outcomes) -> Decision:
        """Not worse than backprop, and by the true gradient down to the first layer."""
        pairs = paired(outcomes, EQPROP, BACKPROP, Deep)
        ours, theirs = pairs.of(lambda record: record.accuracy)
        kept = stats.non_inferior(ours, theirs, margin=MARGIN, items=recipe.TEST_ITEMS, scale=100.0, unit="pp",
                                  seeds=pairs.seeds, name="accuracy, EP minus backprop")
        away = [1 - c for record in pairs.first for c in (record.before, record.after) if c is not None]
        if not away:
            return kept
        true = stats.numeric_match(away, 1 - COSINE, magnitude=1.0, name="1 - cosine of the first layer's gradient")
        return stats.all_hold([kept, true], claim="learns, by the true gradient")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if accuracy is within the margin and the first layer's cosine reaches 0.99 before and after."""
        pairs = paired(outcomes, EQPROP, BACKPROP, Deep)
        if not pairs.seeds:
            return findings.unfinished(CLAIM)
        ours, theirs = pairs.of(lambda record: record.accuracy)
        before, after = [r.before or 0.0 for r in pairs.first], [r.after or 0.0 for r in pairs.first]
        lost = [r.before or 0.0 for r in recorded(outcomes, STATES, Deep).values()]
        values = values_by_arm(outcomes, (EQPROP, BACKPROP, TWIN, FROZEN, STATES), Deep, lambda record: record.accuracy)
        return findings.concluded(
            self.judge(outcomes),
            claim=CLAIM,
            subject=f"EnergyMLP of {HIDDEN} hidden layers of {WIDTH}, gamma {GAMMA}, tanh, float32, on digits",
            told=f"EP {fmean(ours):.2f} %, backprop {fmean(theirs):.2f} %; first layer's cosine at least "
            f"{min(before):.4f} "
            f"before training and {min(after):.4f} after (as a difference of states: {min(lost, default=0.0):.3f}).",
            figure=findings.by_arm(values, key="accuracy-of-deep-nets", question="Do sixteen layers learn by EP?",
                                   label="test accuracy (%)"),
            tables=(findings.seed_table("By seed", pairs.seeds, {
                "EP (%)": ours, "backprop (%)": theirs, "cosine before": before, "cosine after": after}),),
            numbers=findings.summaries({EQPROP: ours, BACKPROP: theirs}, "%"),
            limits=(
                f"gamma {GAMMA}: feedback this weak carries credit much as backprop does; larger gamma does not rest "
                "here.",
                "Sixteen layers, not a thousand: the original counted relaxation steps as layers.",
            ),
        )


def _first_cosine(model: Any, rule: Any, x: Any, y: Any) -> float:
    from assay.audits.equilibrium.agreement import compare, estimate
    from assay.audits.equilibrium.true_gradient import true_gradient

    rows = compare(estimate(rule, model, x, y).gradients, true_gradient(model, x, y))
    return next((row.cosine for row in rows if row.name == "layers.0.weight"), None) or 0.0
