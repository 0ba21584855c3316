"""Looped networks trained by EP without spectral normalisation, at the published settings: does training diverge?

A training diverges when its loss stops being finite, when the relaxation of the trained network no longer settles on a
validation picture in ten, or when it ends below half of the accuracy that normalisation gives. Any of the three counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Check, Finding, Verdict
from assay.tracks.shared import findings, recipe
from assay.tracks.shared.records import Record, recorded, values_by_arm

WITHOUT, WITH = "without spectral norm", "control: with spectral norm"
WILD = "control: learning rate 3"
HIDDEN, EPOCHS, RATE, BETA, SWEEPS = 128, 10, 1e-3, 0.22, (30, 10)
"""Digits in the published table: rate 0.001, beta 0.22, 30 steps, Adam."""
SETTLED, HALF = 0.9, 50.0


class TrainingEnd(Record):
    """How a training ended."""

    stopped: str | None
    settled: float
    accuracy: float
    loss: float

    @property
    def diverged(self) -> bool:
        return bool(self.stopped) or self.settled < SETTLED or self.accuracy < HALF


CLAIM = "Without spectral normalisation training by EP diverges."


@track(41, "divergence", claim=CLAIM, title="Without spectral normalisation training diverges", on_request=True)
class Divergence:
    """The published looped network and settings, without the norm."""

    controls: ClassVar[tuple[ControlArm, ...]] = (known_good(WILD, WITHOUT), known_bad(WITH, WITHOUT))

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return findings.arms_and_controls((WITHOUT,), self.controls, budget, seeds)

    def measure(self, trial: Trial) -> TrainingEnd:
        """Train, and let the trained network relax on validation pictures."""
        import torch

        from assay.models import LoopedMLP
        from assay.rules import EqProp
        from assay.tasks import digits

        task = digits(seed=trial.seed)
        model = LoopedMLP(64, HIDDEN, 10, spectral_norm=trial.arm == WITH, seed=trial.seed)
        rule = EqProp(beta=BETA, sweeps=SWEEPS, on_divergence="record")
        result = recipe.learn(model, task, rule, trial, epochs=EPOCHS, rate=3.0 if trial.arm == WILD else RATE,
                              noise=0.0, schedule="constant")
        with torch.no_grad():
            clamped = model.clamp(task.validation.x)
            state = model.relax(clamped, None, sweeps=500).value
            moved = (model.sweep(clamped, state)[0] - state[0]).abs().amax(1)
        return TrainingEnd(
            stopped=result.diverged, settled=float((moved < recipe.RESTING).double().mean()),
            accuracy=100 * result.test_accuracy, loss=result.final_loss,
        )  # fmt: skip

    def judge(self, outcomes: Outcomes) -> Check:
        """Whether every training of the arm diverged."""
        found = recorded(outcomes, WITHOUT, TrainingEnd)
        every = bool(found) and all(record.diverged for record in found.values())
        told = "; ".join(f"seed {s}: {r.accuracy:.1f} %, {r.settled:.0%} settle" for s, r in found.items())
        return Check(name="diverges", verdict=Verdict.PASS if every else Verdict.FAIL, reason=told)

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the exact lower bound of the share that diverges reaches 70 %."""
        found = recorded(outcomes, WITHOUT, TrainingEnd)
        if not found:
            return findings.unfinished(CLAIM)
        diverged = [record.diverged for record in found.values()]
        decision = stats.solves(sum(diverged), len(diverged), findings.SUCCESS_RATE, name="trainings that diverge")
        decision = decision.model_copy(update={"measurement": decision.measurement.model_copy(
            update={"values": tuple(map(float, diverged)), "seeds": tuple(found)})})
        accuracy = [record.accuracy for record in found.values()]
        values = values_by_arm(outcomes, (WITHOUT, WITH, WILD), TrainingEnd, lambda record: record.accuracy)
        return findings.concluded(
            decision,
            claim=CLAIM,
            subject="LoopedMLP 64-128-10 without spectral normalisation, published settings, on digits",
            told=f"{sum(diverged)} of {len(diverged)} trainings diverged; mean accuracy {fmean(accuracy):.2f} %, "
            f"with the norm {fmean(values[WITH] or [float('nan')]):.2f} %; at the worst seed "
            f"{min(r.settled for r in found.values()):.0%} of the pictures still settle.",
            figure=findings.by_arm(values, key="accuracy-without-norm", question="What becomes of training without "
                "the norm?",
                                   label="test accuracy (%)"),
            numbers=findings.summaries({WITHOUT: accuracy}, "%"),
            limits=(f"{EPOCHS} epochs on one task; a longer training may yet diverge. Track 1 bounds the Lipschitz "
                    "constant.",),
        )
