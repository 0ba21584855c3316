"""Weights of three values, or of 255, while learning and while answering.

Full-precision weights are kept beside; every gradient is taken at their quantised copies (straight-through), and the
test set is answered by the quantised network alone. Ternary: sign(w) times one scale per matrix, zero below 0.7 of
the mean size (Li & Liu 2016). Int8: rounding to 255 levels up to the largest weight of the matrix. Biases stay as
they are.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Finding
from assay.stats import Decision
from assay.tracks.shared import findings, recipe
from assay.tracks.shared.records import Record, paired, values_by_arm

if TYPE_CHECKING:
    from torch import Tensor, nn

FULL, LOW = "full precision", "low precision"
TWIN, AFTER = "control: full precision in another order", "control: one bit, rounded after training"
ARMS = (LOW, FULL)


class Quantised(Record):
    """Test accuracy (%) of the network as it is deployed, and the share of its weights that are zero."""

    accuracy: float
    zeros: float
    loss: float


class Levels(ABC):
    """The shared experiment: how many levels, and how much accuracy they may cost."""

    claim: str
    levels: str
    margin: float
    controls: ClassVar[tuple[ControlArm, ...]] = (known_good(TWIN, LOW), known_bad(AFTER, LOW))

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return findings.arms_and_controls(ARMS, self.controls, budget, seeds)

    def measure(self, trial: Trial) -> Quantised:
        """Train at the precision of the arm, quantise, answer the test set."""
        from assay.learning import evaluate
        from assay.tasks import digits

        task, model = digits(seed=trial.seed), recipe.network(trial.seed)
        rounding = QUANTISERS[self.levels] if trial.arm == LOW else _sign if trial.arm == AFTER else None
        rule: Any = recipe.resting()
        rule = StraightThrough(rule, rounding) if rounding and trial.arm == LOW else rule
        result = recipe.learn(model, task, rule, trial, order=10_000 if trial.arm == TWIN else 0)
        if rounding:
            _round(model, rounding)
        weights = [p for p in model.parameters() if p.ndim > 1]
        zeros = sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)
        accuracy = 100 * evaluate(model, task.test).accuracy
        return Quantised(accuracy=accuracy, zeros=zeros, loss=result.final_loss)

    def judge(self, outcomes: Outcomes) -> Decision:
        """What low precision costs, seed by seed."""
        pairs = paired(outcomes, LOW, FULL, Quantised)
        ours, theirs = pairs.of(lambda record: record.accuracy)
        return stats.non_inferior(ours, theirs, margin=self.margin, items=recipe.TEST_ITEMS, scale=100.0, unit="pp",
                                  seeds=pairs.seeds, name=f"accuracy, {self.levels} minus full")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the interval of the loss lies within the margin."""
        pairs = paired(outcomes, LOW, FULL, Quantised)
        if not pairs.seeds:
            return findings.unfinished(self.claim)
        ours, theirs = pairs.of(lambda record: record.accuracy)
        zeros = fmean(record.zeros for record in pairs.first)
        values = values_by_arm(outcomes, (*ARMS, TWIN, AFTER), Quantised, lambda record: record.accuracy)
        return findings.concluded(
            self.judge(outcomes),
            claim=self.claim,
            subject=f"EnergyMLP 64-128-128-10, gamma 0.25, {self.levels} weights, trained by EP at rest on digits",
            told=f"{self.levels} {fmean(ours):.2f} %, full precision {fmean(theirs):.2f} %: "
            f"{fmean(ours) - fmean(theirs):+.2f} pp; {zeros:.0%} of the weights are zero.",
            figure=findings.by_arm(values, key="accuracy-by-precision", question="What does low precision cost?",
                                   label="test accuracy (%)"),
            tables=(findings.seed_table("Test accuracy by seed (%)", pairs.seeds, {LOW: ours, FULL: theirs}),),
            numbers=findings.summaries({LOW: ours, FULL: theirs}, "%"),
            limits=(
                "Weights alone are quantised; states, biases and the optimiser's copies keep full precision.",
                "Accuracy is measured; that such weights save energy or time on some device is not.",
            ),
        )


TERNARY = "Weights of -1, 0 and +1 cost at most 2 points of accuracy when EP trains with them."
EIGHT_BITS = "Weights of 8 bits cost at most 1 point of accuracy when EP trains with them."


@track(4, "ternary-weights", claim=TERNARY, title="Ternary weights", on_request=True)
class Ternary(Levels):
    """Three levels per matrix."""

    claim, levels, margin = TERNARY, "ternary", 2.0


@track(16, "int8-weights", claim=EIGHT_BITS, title="8-bit weights", on_request=True)
class Int8(Levels):
    """255 levels per matrix."""

    claim, levels, margin = EIGHT_BITS, "int8", 1.0


def _ternary(weight: Tensor) -> Tensor:
    threshold = 0.7 * weight.abs().mean()
    kept = weight.abs() > threshold
    scale = (weight.abs() * kept).sum() / kept.sum().clamp_min(1)
    return scale * weight.sign() * kept


def _int8(weight: Tensor) -> Tensor:
    step = weight.abs().max().clamp_min(1e-12) / 127
    return (weight / step).round() * step


def _sign(weight: Tensor) -> Tensor:
    return weight.abs().mean() * weight.sign()


QUANTISERS: Mapping[str, Callable[[Tensor], Tensor]] = {"ternary": _ternary, "int8": _int8}


@dataclass(frozen=True)
class StraightThrough:
    """A rule whose gradient is taken at quantised weights and applied to the full ones."""

    rule: Any
    rounding: Callable[[Tensor], Tensor]

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The loss of the quantised network; the weights are put back before anyone sees them."""
        import torch

        kept = [parameter.detach().clone() for parameter in model.parameters()]
        _round(model, self.rounding)
        loss: Tensor = self.rule.backward(model, x, y)
        with torch.no_grad():
            for parameter, full in zip(model.parameters(), kept, strict=True):
                parameter.copy_(full)
        return loss


def _round(model: nn.Module, rounding: Callable[[Tensor], Tensor]) -> None:
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(rounding(parameter))
