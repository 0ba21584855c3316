"""Five rules without backprop on one network: EP, feedback alignment, direct feedback, Kolen-Pollack, contrastive
Hebbian.

Every rule starts from the same weights, sees the same batches and runs the same recipe; no rule is tuned. Contrastive
Hebbian learning (Movellan 1991) is the contrast between a free phase and one whose outputs are clamped to the target,
without dividing by a nudge. The claim is the strong one: EP is better than each of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Nudge, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Finding, Table
from assay.stats import Decision
from assay.tracks.shared import findings, recipe
from assay.tracks.shared.records import Record, paired, recorded

if TYPE_CHECKING:
    from torch import Tensor, nn

EQPROP, FA, DFA, KP, CHL = "eqprop", "feedback alignment", "direct feedback", "Kolen-Pollack", "contrastive Hebbian"
OTHERS = (FA, DFA, KP, CHL)
FEEDBACK = {FA: "fa-layer", DFA: "dfa-layer", KP: "kp-layer"}
ABOVE, FROZEN = "control: backprop for twice as long", "control: frozen body"
EPOCHS, DECAY, CLAMP = 8, 1e-3, 1e3


class Ranked(Record):
    """Test accuracy (%) of one rule."""

    accuracy: float
    loss: float


CLAIM = (
    "EP reaches a higher accuracy than feedback alignment, direct feedback, Kolen-Pollack and contrastive "
    "Hebbian learning."
)


@track(53, "ranking", claim=CLAIM, title="Rules without backprop, ranked", on_request=True)
class Ranking:
    """Five rules, one network, one recipe."""

    controls: ClassVar[tuple[ControlArm, ...]] = (known_good(ABOVE, EQPROP), known_bad(FROZEN, EQPROP))

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return findings.arms_and_controls((EQPROP, *OTHERS), self.controls, budget, seeds)

    def measure(self, trial: Trial) -> Ranked:
        """One training by the rule of the arm."""
        import torch

        from assay.learning.names import named_rule
        from assay.rules import Backprop
        from assay.tasks import digits

        task = digits(seed=trial.seed)
        energy = recipe.network(trial.seed, readout="squared" if trial.arm == CHL else "softmax")
        model: Any = energy if trial.arm in (EQPROP, CHL) else energy.feedforward()
        rule: Any = recipe.resting() if trial.arm == EQPROP else Backprop()
        rule = ContrastiveHebbian() if trial.arm == CHL else rule
        more: dict[str, Any] = {}
        if trial.arm in FEEDBACK:
            rule = named_rule(FEEDBACK[trial.arm], model, seed=trial.seed)
        if trial.arm == KP:  # feedback and weights meet by decay alone
            more["optimiser"] = lambda p: torch.optim.Adam(p, lr=recipe.RATE, weight_decay=DECAY)
        if trial.arm == FROZEN:
            for parameter in list(model.parameters())[:-2]:
                parameter.requires_grad_(False)
        epochs = 2 * EPOCHS if trial.arm == ABOVE else EPOCHS
        result = recipe.learn(model, task, rule, trial, epochs=epochs, **more)
        return Ranked(accuracy=100 * result.test_accuracy, loss=result.final_loss)

    def judge(self, outcomes: Outcomes) -> Decision:
        """EP against each of the others; every one must be beaten."""
        decisions = []
        for other in OTHERS:
            pairs = paired(outcomes, EQPROP, other, Ranked)
            decisions.append(stats.better(
                *pairs.of(lambda record: record.accuracy), items=recipe.TEST_ITEMS, scale=100.0, unit="pp",
                seeds=pairs.seeds, name=f"accuracy, EP minus {other}"))  # fmt: skip
        return stats.all_hold(decisions, claim="EP is better than each of the others")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if every interval of EP's lead lies above 0."""
        found = {arm: recorded(outcomes, arm, Ranked) for arm in (EQPROP, *OTHERS, ABOVE, FROZEN)}
        if not all(found[arm] for arm in (EQPROP, *OTHERS)):
            return findings.unfinished(CLAIM)
        values = {arm: [r.accuracy for r in records.values()] for arm, records in found.items()}
        order = sorted((EQPROP, *OTHERS), key=lambda arm: -fmean(values[arm]))
        rows = [(place + 1, arm, fmean(values[arm]), min(values[arm])) for place, arm in enumerate(order)]
        return findings.concluded(
            self.judge(outcomes),
            claim=CLAIM,
            subject="EnergyMLP 64-128-128-10 and its feed-forward limit on digits",
            told="By mean accuracy: " + ", ".join(f"{arm} {fmean(values[arm]):.2f} %" for arm in order) + ".",
            figure=findings.by_arm(values, key="accuracy-by-rule", question="Which rule without backprop does best?",
                                   label="test accuracy (%)"),
            tables=(Table(title="Ranking", columns=("Place", "Rule", "Mean accuracy (%)", "Worst seed (%)"),
                          rows=tuple(rows)),),
            numbers=findings.summaries({arm: values[arm] for arm in (EQPROP, *OTHERS)}, "%"),
            limits=("One easy task and a recipe tuned for backprop: rules that need another rate are not given one.",
                    "Kolen-Pollack has weight decay, which it needs; the others have none."),
        )  # fmt: skip


class ContrastiveHebbian:
    """The contrast of two phases: dE/dtheta where the outputs are the targets, minus dE/dtheta at rest."""

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The squared loss at the free state, after adding the contrast to every ``.grad``."""
        import torch

        network: Any = model
        with torch.no_grad():
            clamped = network.clamp(x)
            free = network.relax(clamped, None, sweeps=recipe.MOST, tolerance=recipe.RESTING).value
            loss: Tensor = network.row_losses(network.logits(free), y).mean()
            start = tuple(layer.clone() for layer in free)
            nudge = Nudge(torch.full((len(x),), CLAMP), y)
            held = network.relax(clamped, start, sweeps=recipe.MOST, tolerance=recipe.RESTING, nudge=nudge).value
            weight = torch.full((len(x),), 1 / (len(x) * network.loss_scale))
            network.add_energy_gradient(clamped, held, weight)
            network.add_energy_gradient(clamped, free, -weight)
        return loss
