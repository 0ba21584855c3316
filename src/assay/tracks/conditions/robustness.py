"""Adversarial pictures against a network trained by EP and one trained by backprop, with controls for masked gradients.

Four attacks of the same size: projected gradient descent on the network itself (through its own relaxation, unrolled)
by cross-entropy and by the lead of the best wrong answer, the attack made for the other network (transfer), and
random noise. A network whose gradients are useless to one attacker looks robust to it and is not to the others, so
the weakest of the four accuracies is what counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Finding
from assay.stats import Decision
from assay.tracks.shared import findings, recipe
from assay.tracks.shared.records import Record, paired, recorded

if TYPE_CHECKING:
    from torch import Tensor, nn

EQPROP, BACKPROP = "eqprop", "backprop"
HARDENED, MASKED = "control: trained on attacked pictures", "control: gradients masked"
RADIUS, STEPS, SWEEPS, ITEMS = 0.15, 10, 15, 200
MARGIN, EPOCHS = 2.0, 8
STEEP = 1000.0
"""Logits times this: the softmax saturates, float32 gradients are exactly zero, and nothing else changes."""


ATTACKS = {"own": "its own gradient", "margin": "its own, by the lead of a wrong answer",
           "transfer": "made for the other network"}  # fmt: skip


class Robust(Record):
    """Test accuracy (%) clean and under each attack."""

    clean: float
    own: float
    margin: float
    transfer: float
    noise: float
    loss: float

    @property
    def weakest(self) -> float:
        return min(self.own, self.margin, self.transfer, self.noise)


CLAIM = (
    "A network trained by EP withstands adversarial pictures at least 2 points better than the same one "
    "trained by backprop."
)


@track(28, "robustness", claim=CLAIM, title="Adversarial robustness", on_request=True)
class Robustness:
    """Both rules on one network; attacks on each, from each and at random."""

    controls: ClassVar[tuple[ControlArm, ...]] = (
        known_good(HARDENED, EQPROP), known_bad(MASKED, EQPROP, because="outside"),
    )  # fmt: skip

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return findings.arms_and_controls((EQPROP, BACKPROP), self.controls, budget, seeds)

    def measure(self, trial: Trial) -> Robust:
        """Train the arm and a surrogate by the other rule, attack both, and add noise of the same size."""
        import torch

        from assay.seeding import torch_generator
        from assay.tasks import digits

        task = digits(seed=trial.seed)
        x, y = task.test.x[:ITEMS], task.test.y[:ITEMS]
        subject, final = _trained(trial, task, by_ep=trial.arm == EQPROP)
        other, _ = _trained(Trial(BACKPROP, trial.seed + 1, trial.budget), task, by_ep=trial.arm == BACKPROP)
        answer = (lambda z: STEEP * subject(z)) if trial.arm == MASKED else _differentiable(subject)
        own, margin = (_attack(answer, x, y, trial.seed, loss=loss) for loss in (_cross_entropy, _lead))
        transferred = _attack(_differentiable(other), x, y, trial.seed)
        signs = torch.randint(0, 2, x.shape, generator=torch_generator(trial.seed, "noise")) * 2.0 - 1
        noise = (x + RADIUS * signs).clamp(0, 1)
        found = [_accuracy(subject, pictures, y) for pictures in (x, own, margin, transferred, noise)]
        return Robust(clean=found[0], own=found[1], margin=found[2], transfer=found[3], noise=found[4],
                      loss=final)  # fmt: skip

    def judge(self, outcomes: Outcomes) -> Decision:
        """The weakest accuracy of each arm, seed by seed."""
        pairs = paired(outcomes, EQPROP, BACKPROP, Robust)
        return stats.better(*pairs.of(lambda record: record.weakest), margin=MARGIN, items=ITEMS, scale=100.0,
                            unit="pp", seeds=pairs.seeds, name="accuracy under the worst attack, EP minus backprop")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if EP's accuracy under its worst attack exceeds backprop's by more than 2 points."""
        pairs = paired(outcomes, EQPROP, BACKPROP, Robust)
        if not pairs.seeds:
            return findings.unfinished(CLAIM)
        ours, theirs = pairs.of(lambda record: record.weakest)
        values = {
            arm: {kind: [float(getattr(r, name)) for r in recorded(outcomes, arm, Robust).values()]
                  for name, kind in ATTACKS.items()}
            for arm in (EQPROP, BACKPROP, HARDENED, MASKED)
        }  # fmt: skip
        masked = fmean(r.transfer - r.own for r in pairs.first)
        return findings.concluded(
            self.judge(outcomes),
            claim=CLAIM,
            subject=f"EnergyMLP 64-128-128-10, gamma 0.25, on digits, attacks of size {RADIUS} in every pixel",
            told=f"Under the worst attack EP keeps {fmean(ours):.1f} %, backprop {fmean(theirs):.1f} %; EP's own "
            f"gradient hurts it {masked:+.1f} points more than a transferred attack does.",
            figure=findings.by_arm_and_kind(values, key="accuracy-under-attack", question="Who withstands the attack?",
                                            label="accuracy under attack (%)"),
            tables=(findings.seed_table("Accuracy under the worst attack by seed (%)", pairs.seeds,
                                        {"EP": ours, "backprop": theirs}),),
            numbers=findings.summaries({"EP, clean": [r.clean for r in pairs.first],
                                        "backprop, clean": [r.clean for r in pairs.second],
                                        "EP, noise": [r.noise for r in pairs.first],
                                        "backprop, noise": [r.noise for r in pairs.second]}, "%"),
            limits=(f"{STEPS} steps of projected gradient descent from a random start, {ITEMS} pictures a seed.",
                    "A stronger attack can only lower these numbers; no certificate is given."),
        )  # fmt: skip


def _trained(trial: Trial, task: Any, *, by_ep: bool) -> tuple[nn.Module, float]:
    from assay.rules import Backprop

    energy = recipe.network(trial.seed)
    model: Any = energy if by_ep else energy.feedforward()
    rule: Any = recipe.resting() if by_ep else Hardened(trial.seed) if trial.arm == HARDENED else Backprop()
    return model, recipe.learn(model, task, rule, trial, epochs=EPOCHS).final_loss


class Hardened:
    """Backprop on pictures that a one-step attack has changed (Goodfellow et al. 2015)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The loss on attacked pictures."""
        from assay.rules import Backprop

        attacked = _attack(model, x, y, self.seed, steps=1)
        model.zero_grad()
        loss: Tensor = Backprop().backward(model, attacked, y)
        return loss


def _differentiable(model: Any) -> Any:
    """The answer as a function that can be differentiated: a network that relaxes is unrolled."""
    if not hasattr(model, "sweep"):
        return model

    def unrolled(x: Tensor) -> Tensor:
        clamped = model.clamp(x)
        state = model.start(clamped)
        for _ in range(SWEEPS):
            state = model.sweep(clamped, state)
        logits: Tensor = model.logits(state)
        return logits

    return unrolled


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    import torch

    return torch.nn.functional.cross_entropy(logits, y)


def _lead(logits: Tensor, y: Tensor) -> Tensor:
    """How far the best wrong answer leads the right one: it does not saturate (Carlini & Wagner 2017)."""
    import torch

    right = torch.nn.functional.one_hot(y, logits.shape[1]).bool()
    return (logits.masked_fill(right, -torch.inf).amax(1) - logits[right]).sum()


def _attack(answer: Any, x: Tensor, y: Tensor, seed: int, *, steps: int = STEPS, loss: Any = _cross_entropy) -> Tensor:
    """Pictures within the radius that raise the loss: projected gradient descent from a random start."""
    import torch

    from assay.seeding import torch_generator

    start = (2 * torch.rand(x.shape, generator=torch_generator(seed, "attack")) - 1) * RADIUS
    moved = (x + start).clamp(0, 1)
    for _ in range(steps):
        moved.requires_grad_(True)
        (slope,) = torch.autograd.grad(loss(answer(moved), y), moved)
        stepped = moved.detach() + 2.5 * RADIUS / steps * slope.sign()
        moved = (x + (stepped - x).clamp(-RADIUS, RADIUS)).clamp(0, 1)
    return moved.detach()


def _accuracy(model: Any, x: Tensor, y: Tensor) -> float:
    import torch

    with torch.no_grad():
        return 100 * float((model(x).argmax(1) == y).double().mean())
