"""What a device reads is noisy: every unit is read once per phase, with Gaussian noise, and learning sees nothing else.

A physical network forms the contrast as a difference of states it has read. The nudge moves a unit by beta times a
power of gamma, so read-out noise drowns the signal first where feedback is weakest. Deviation coordinates, which a
simulation has, are of no help to a device: states are used here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Finding, Table
from assay.stats import Decision
from assay.tracks.shared import findings, recipe
from assay.tracks.shared.parity import Learned, gap
from assay.tracks.shared.records import paired, recorded, values_by_arm

if TYPE_CHECKING:
    from assay.models import EnergyMLP

QUIET, NOISY = "read without noise", "read with 5 % noise"
TWIN, DEAF = "control: no noise, another order", "control: noise ten times the signal"
SMALL = "read with 0.5 % noise"
LEVELS = {QUIET: 0.0, NOISY: 0.05, SMALL: 0.005, TWIN: 0.0, DEAF: 10.0}
"""Standard deviation of the read-out noise; a unit's range is -1 to 1."""
BETA, MARGIN, EPOCHS = 0.5, 2.0, 8
CLAIM = "EP learns as well, to 2 points, when every state it reads carries 5 % Gaussian noise."


@track(17, "device-noise", claim=CLAIM, title="Noise on what a device reads", on_request=True)
class DeviceNoise:
    """The same training with and without noise on every read-out."""

    controls: ClassVar[tuple[ControlArm, ...]] = (
        known_good(TWIN, NOISY), known_bad(DEAF, NOISY, because=("outside", "not above")),
    )  # fmt: skip

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return findings.arms_and_controls((NOISY, QUIET, SMALL), self.controls, budget, seeds)

    def measure(self, trial: Trial) -> Learned:
        """Accuracy after learning from noisy read-outs; answers are given without noise."""
        from assay.learning import evaluate
        from assay.tasks import digits

        task = digits(seed=trial.seed)
        plain = recipe.network(trial.seed)
        rule = recipe.resting(beta=BETA, coordinates="states", sweeps=(25, 15), tolerance=None)
        device: Any = _device(plain, LEVELS[trial.arm], trial.seed)
        result = recipe.learn(device, task, rule, trial, epochs=EPOCHS, order=10_000 if trial.arm == TWIN else 0)
        plain.load_state_dict(device.state_dict())
        before = recipe.network(trial.seed)
        noisy: Any = _device(before, LEVELS[trial.arm], trial.seed)
        return Learned(
            accuracy=100 * evaluate(plain, task.test).accuracy, loss=result.final_loss,
            rest=recipe.rest(noisy, rule, *recipe.batch_of(task)),
        )  # fmt: skip

    def judge(self, outcomes: Outcomes) -> Decision:
        """What the noise costs."""
        return gap(outcomes, NOISY, QUIET, margin=MARGIN, kind="non-inferior", name="accuracy, noisy minus quiet")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the interval of the loss lies within 2 points."""
        pairs = paired(outcomes, NOISY, QUIET, Learned)
        if not pairs.seeds:
            return findings.unfinished(CLAIM)
        ours, theirs = pairs.of(lambda record: record.accuracy)
        small = [record.accuracy for record in recorded(outcomes, SMALL, Learned).values()]
        values = values_by_arm(outcomes, LEVELS, Learned, lambda record: record.accuracy)
        rows = []
        for arm, level in LEVELS.items():
            rests = [r.rest for r in recorded(outcomes, arm, Learned).values() if r.rest is not None]
            if rests:
                rows.append((arm, level, fmean(values[arm]), fmean(r.cosine for r in rests)))
        return findings.concluded(
            self.judge(outcomes),
            claim=CLAIM,
            subject="EnergyMLP 64-128-128-10, gamma 0.25, centered EP on states, beta 0.5, on digits",
            told=f"{fmean(ours):.2f} % with 5 % read-out noise, {fmean(small):.2f} % with 0.5 %, {fmean(theirs):.2f} "
            "% without.",
            figure=findings.by_arm(values, key="accuracy-by-noise", question="How much read-out noise can EP learn "
                "with?",
                                   label="test accuracy (%)"),
            tables=(Table(title="Noise, accuracy and gradient", rows=tuple(rows),
                          columns=("Arm", "Noise (SD)", "Accuracy (%)", "Cosine before training")),),
            numbers=[stats.summarise("accuracy with 0.5 % noise", small, unit="%", of="seeds"),
                     *findings.summaries({NOISY: ours, QUIET: theirs}, "%")],
            limits=(
                "Noise on reading alone: the dynamics, the weights and the answers at test time are free of it.",
                "Two hidden layers: with each further layer the signal at the first is gamma times smaller.",
            ),
        )


def _device(model: EnergyMLP, noise: float, seed: int) -> EnergyMLP:
    """The same network, whose states carry noise when a relaxation hands them over."""
    import torch

    from assay.models import EnergyMLP
    from assay.seeding import torch_generator

    generator = torch_generator(seed, "device", "noise")

    class Device(EnergyMLP):
        """What is read of a relaxed network: its states plus noise."""

        def relax(self, *given: Any, **options: Any) -> Any:
            solution = super().relax(*given, **options)
            if noise == 0:
                return solution
            read = tuple(s + noise * torch.randn(s.shape, generator=generator, dtype=s.dtype) for s in solution.value)
            return replace(solution, value=read)

        def __deepcopy__(self, memo: Any) -> Any:
            return _device(self, noise, seed + 1)

    device = Device(model.widths, gamma=model.gamma, seed=seed)
    device.load_state_dict(model.state_dict())
    return device
