"""Trained loops are hurt in two ways: their units are kicked once, or half of them are silenced for good.

A kick is healed when relaxation brings back the state and the answers of before. A silenced unit cannot come back;
what is asked there is whether a network that relaxes loses less accuracy than a feed-forward one of the same width,
trained by backprop, that loses the same units.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Check, Finding, Reference, Verdict
from assay.stats import Decision
from assay.tracks.shared import findings, recipe
from assay.tracks.shared.records import Pairs, Record, paired, recorded, values_by_arm

TRAINED = "trained loop"
PLANTED = {"control: loop of norm 0.5": 0.5, "control: loop of norm 6": 6.0}
"""Untrained loops: one that contracts by half a step, and one with many resting states."""
HIDDEN, EPOCHS, KICK, SWEEPS = 128, 6, 1.0, 500
SAME_ANSWERS, SAME_STATE = 0.99, 1e-3

RELAXES, BACKPROP = "relaxes", "backprop"
LITTLE, MOST = "control: a tenth silenced", "control: nine tenths silenced"
SILENCED = {RELAXES: 0.5, BACKPROP: 0.5, LITTLE: 0.1, MOST: 0.9}
MARGIN = 2.0


class Kick(Record):
    """Where a kicked network ended, against where it rested before."""

    answers: float
    distance: float
    accuracy: float

    @property
    def healed(self) -> bool:
        return self.answers >= SAME_ANSWERS and self.distance <= SAME_STATE


class Damage(Record):
    """Test accuracy (%) before and after units were silenced."""

    whole: float
    damaged: float
    loss: float


HEALS = (
    "Relaxation heals a kick: noise of standard deviation 1 on every unit leaves neither state nor answers changed."
)


@track(3, "healing", claim=HEALS, title="Self-healing after a kick", on_request=True)
class Healing:
    """Looped networks with spectral normalisation, trained by EP, kicked once at rest."""

    controls: ClassVar[tuple[ControlArm, ...]] = tuple(
        known_good(arm, TRAINED) if norm < 1 else known_bad(arm, TRAINED) for arm, norm in PLANTED.items()
    )

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return findings.arms_and_controls((TRAINED,), self.controls, budget, seeds)

    def measure(self, trial: Trial) -> Kick:
        """Train (or plant), let it rest, kick, let it rest again."""
        import torch

        from assay.models import LoopedMLP
        from assay.seeding import torch_generator
        from assay.tasks import digits

        task = digits(seed=trial.seed)
        planted = PLANTED.get(trial.arm)
        model = LoopedMLP(64, HIDDEN, 10, spectral_norm=planted is None, seed=trial.seed)
        if planted is None:
            recipe.learn(model, task, recipe.resting(), trial, epochs=EPOCHS)
        else:
            with torch.no_grad():
                model.loop.weight.mul_(planted / torch.linalg.matrix_norm(model.loop_weight(), ord=2))
        with torch.no_grad():
            clamped = model.clamp(task.test.x)
            before = model.relax(clamped, None, sweeps=SWEEPS, tolerance=1e-6).value[0].clone()
            kick = torch.randn(before.shape, generator=torch_generator(trial.seed, "kick"))
            after = model.relax(clamped, (before + KICK * kick,), sweeps=SWEEPS, tolerance=1e-6).value[0]
            answers = [model.logits((state,)).argmax(1) for state in (before, after)]
        return Kick(
            answers=float((answers[0] == answers[1]).double().mean()),
            distance=float((after - before).norm() / before.norm()),
            accuracy=100 * float((answers[1] == task.test.y).double().mean()),
        )

    def judge(self, outcomes: Outcomes) -> Check:
        """Whether every network came back."""
        found = recorded(outcomes, TRAINED, Kick)
        told = "; ".join(f"seed {s}: {r.answers:.1%} of the answers, {r.distance:.2g} away" for s, r in found.items())
        healed = bool(found) and all(record.healed for record in found.values())
        return Check(name="comes back", verdict=Verdict.PASS if healed else Verdict.FAIL, reason=told)

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the exact lower bound of the share of networks that come back reaches 70 %."""
        found = recorded(outcomes, TRAINED, Kick)
        if not found:
            return findings.unfinished(HEALS)
        healed = [record.healed for record in found.values()]
        decision = stats.solves(sum(healed), len(healed), findings.SUCCESS_RATE, name="networks that come back")
        decision = decision.model_copy(update={"measurement": decision.measurement.model_copy(
            update={"values": tuple(map(float, healed)), "seeds": tuple(found)})})
        worst = max(record.distance for record in found.values())
        distances = {arm: [r.distance for r in recorded(outcomes, arm, Kick).values()] for arm in (TRAINED, *PLANTED)}
        return findings.concluded(
            decision,
            claim=HEALS,
            subject="LoopedMLP 64-128-10 with spectral normalisation, trained by EP on digits",
            told=f"{sum(healed)} of {len(healed)} networks come back; the farthest ends {worst:.1g} of its norm "
            "away. A loop planted with norm 6 does not: what heals is the contraction, not the rule that trained.",
            figure=findings.by_arm(distances, key="distance-after-kick", question="Does a kicked network come back?",
                                   label="distance from where it rested", log=True,
                                   references=(Reference(value=SAME_STATE, label="came back"),)),
            numbers=findings.summaries({TRAINED: [r.accuracy for r in found.values()]}, "%"),
            limits=("A kick to the states, not to the weights: track 30 asks about damage that stays.",),
        )


KEEPS = (
    "With half of its hidden units silenced a network that relaxes keeps at least 2 points more accuracy than "
    "backprop's."
)


@track(30, "damage", claim=KEEPS, title="Damage tolerance", on_request=True)
class LastingDamage:
    """The looped network against a feed-forward one of the same width, the same units silenced in both."""

    controls: ClassVar[tuple[ControlArm, ...]] = (known_good(LITTLE, RELAXES), known_bad(MOST, RELAXES))

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return findings.arms_and_controls((RELAXES, BACKPROP), self.controls, budget, seeds)

    def measure(self, trial: Trial) -> Damage:
        """Accuracy before and after the same random units are silenced."""
        import torch

        from assay.learning import evaluate
        from assay.models import LoopedMLP
        from assay.rules import Backprop
        from assay.seeding import torch_generator
        from assay.tasks import digits

        task = digits(seed=trial.seed)
        if trial.arm == BACKPROP:
            model: Any = recipe.network(trial.seed, widths=(64, HIDDEN, 10)).feedforward()
            result = recipe.learn(model, task, Backprop(), trial, epochs=EPOCHS)
            readout = model[-1]
        else:
            model = LoopedMLP(64, HIDDEN, 10, seed=trial.seed)
            result = recipe.learn(model, task, recipe.resting(), trial, epochs=EPOCHS)
            readout = model.output
        whole = evaluate(model, task.test).accuracy
        dead = torch.randperm(HIDDEN, generator=torch_generator(trial.seed, "silenced"))
        dead = dead[: round(SILENCED[trial.arm] * HIDDEN)]
        with torch.no_grad():
            # A unit without inputs and outputs rests at tanh(0) = 0 and is heard by nobody.
            readout.weight[:, dead] = 0.0
            if trial.arm != BACKPROP:
                used = model.input_weight().clone(), model.loop_weight().clone()
                model.spectral_norm = False  # or the weights that are left would be scaled up again
                model.input.weight.copy_(used[0])
                model.loop.weight.copy_(used[1])
                model.input.weight[dead], model.input.bias[dead] = 0.0, 0.0
                model.loop.weight[dead], model.loop.weight[:, dead] = 0.0, 0.0
        damaged = evaluate(model, task.test).accuracy
        return Damage(whole=100 * whole, damaged=100 * damaged, loss=result.final_loss)

    def judge(self, outcomes: Outcomes) -> Decision:
        """The paired difference in accuracy after the damage."""
        return _kept_more(paired(outcomes, RELAXES, BACKPROP, Damage))

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the interval of the difference lies above 2 points."""
        pairs = paired(outcomes, RELAXES, BACKPROP, Damage)
        if not pairs.seeds:
            return findings.unfinished(KEEPS)
        ours, theirs = pairs.of(lambda record: record.damaged)
        whole = pairs.of(lambda record: record.whole)
        values = values_by_arm(outcomes, SILENCED, Damage, lambda record: record.damaged)
        return findings.concluded(
            self.judge(outcomes),
            claim=KEEPS,
            subject="LoopedMLP 64-128-10 (EP) and 64-128-10 feed-forward (backprop) on digits, 64 units silenced",
            told=f"With half of the units silenced the loop keeps {fmean(ours):.1f} % (of {fmean(whole[0]):.1f} %), "
            f"the feed-forward net {fmean(theirs):.1f} % (of {fmean(whole[1]):.1f} %).",
            figure=findings.by_arm(values, key="accuracy-after-damage", question="Who keeps more when half is lost?",
                                   label="test accuracy after the damage (%)"),
            tables=(findings.seed_table("Test accuracy by seed (%)", pairs.seeds, {
                "loop, whole": whole[0], "loop, damaged": ours, "backprop, whole": whole[1],
                "backprop, damaged": theirs}),),
            numbers=findings.summaries({"loop, damaged": ours, "backprop, damaged": theirs}, "%"),
            limits=("The damage is drawn once per seed and is the same for both networks; neither learns afterwards.",),
        )


def _kept_more(pairs: Pairs[Damage]) -> Decision:
    ours, theirs = pairs.of(lambda record: record.damaged)
    return stats.better(ours, theirs, margin=MARGIN, items=recipe.TEST_ITEMS, scale=100.0, seeds=pairs.seeds, unit="pp",
                        name="accuracy kept, loop minus backprop")
