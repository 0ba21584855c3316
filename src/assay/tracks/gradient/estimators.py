"""Every estimator of the gradient, on one network before and after training, against the true gradient in float64.

The truth comes from the forward dynamics alone (implicit differentiation, confirmed by central differences); the
estimators relax the same network to rest in float32, as they would in training.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Finding, Reference, Table
from assay.stats import Decision
from assay.tracks.shared import findings, recipe
from assay.tracks.shared.records import Record, recorded

ESTIMATORS = ("one-sided", "centered", "richardson", "holomorphic(8)", "tangent", "asymmetric")
ALL = "the estimators"
TRUTH, UPHILL, UNSETTLED = "control: BPTT at rest", "control: contrast of the wrong sign", "control: one sweep each"
TOLERANCE = 0.02
"""Of the gradient's norm. Centered at beta 0.1 has a bias of about 1e-3, one-sided at 1e-3 of 1e-4; the residual of
1e-5 at which relaxations stop here is amplified by at most 100 and divided by gradients of norm 0.1 or more."""
AT_REST, EPOCHS = 1e-5, 6
HELD = 0.9
"""The norm of the loop's weights in training. Left free it may pass 1, the loop need not rest, and there is no gradient
to compare with; a norm inside the network has no smooth derivative where training lets singular values meet."""



class Equivalence(Record):
    """How each estimator ended, by name, before training and after."""

    before: dict[str, recipe.Rest]
    after: dict[str, recipe.Rest]

    @property
    def errors(self) -> dict[str, float]:
        """Relative errors by estimator and moment; a yardstick that cannot be trusted counts as infinitely far."""
        moments = (("before", self.before), ("after", self.after))
        return {
            f"{name}, {when} training": rest.error if rest.trusted else float("inf")
            for when, found in moments for name, rest in found.items()
        }  # fmt: skip


CLAIM = "Every estimator of EP gives the gradient of the loss to 2 % of its norm, before training and after."


@track(9, "gradient-equivalence", claim=CLAIM, title="Gradient equivalence", kind="deterministic", on_request=True)
class GradientEquivalence:
    """Five estimators on a layered network, and the asymmetric one on an untied loop."""

    controls: ClassVar[tuple[ControlArm, ...]] = (
        known_good(TRUTH, ALL), known_bad(UPHILL, ALL), known_bad(UNSETTLED, ALL),
    )  # fmt: skip

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        controls = [Trial(control.name, seeds[0], budget) for control in self.controls]
        return [*(Trial(ALL, seed, budget) for seed in seeds), *controls]

    def measure(self, trial: Trial) -> Equivalence:
        """The agreement of every estimator on one batch, before and after the network is trained by the first."""
        from torch.optim import Adam

        from assay.models import LoopedMLP
        from assay.rules import keep_bounded
        from assay.tasks import digits

        task = digits(seed=trial.seed)
        layered = recipe.network(trial.seed)
        loop = LoopedMLP(64, 64, 10, tied=False, spectral_norm=False, seed=trial.seed)
        held = [parameter for name, parameter in loop.named_parameters() if name == "loop.weight"]
        batch = recipe.batch_of(task)
        found = []
        for trained in (False, True):
            if trained:
                recipe.learn(layered, task, recipe.resting(), trial, epochs=EPOCHS)
                recipe.learn(loop, task, recipe.resting(nudge="asymmetric"), trial, epochs=EPOCHS,
                             optimiser=lambda weights: keep_bounded(Adam(weights, lr=recipe.RATE), held, bound=HELD))
            found.append({
                name: recipe.rest(loop if name == "asymmetric" else layered, rule, *batch)
                for name, rule in _rules(trial.arm).items()
            })  # fmt: skip
        return Equivalence(before=found[0], after=found[1])

    def judge(self, outcomes: Outcomes) -> Decision:
        """The largest error of any estimator at any seed."""
        errors = {
            f"{name}, seed {seed}": error
            for seed, record in recorded(outcomes, ALL, Equivalence).items() for name, error in record.errors.items()
        }  # fmt: skip
        return stats.numeric_match(list(errors.values()), TOLERANCE, magnitude=1.0, labels=list(errors),
                                   name="relative error of the gradient")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if no estimator is farther than 2 % from the gradient at any seed, before or after training."""
        found = recorded(outcomes, ALL, Equivalence)
        if not found:
            return findings.unfinished(CLAIM)
        by_name = {
            name: [record.errors[name] for record in found.values()] for name in next(iter(found.values())).errors
        }
        cosines = [r.cosine for record in found.values() for rests in (record.before, record.after)
                   for r in rests.values()]  # fmt: skip
        rows = [(name, max(errors), min(errors)) for name, errors in by_name.items()]
        return findings.concluded(
            self.judge(outcomes),
            claim=CLAIM,
            subject="EnergyMLP 64-128-128-10, gamma 0.25, and an untied LoopedMLP 64-64-10, on digits",
            told=f"{len(ESTIMATORS)} estimators, {len(found)} seeds, before and after training: the largest error is "
            f"{max(max(e) for e in by_name.values()):.2g} of the gradient's norm, the smallest cosine "
            f"{min(cosines):.5f}.",
            figure=findings.by_arm(by_name, key="error-by-estimator", question="Is the contrast the gradient?",
                                   label="relative error against float64 truth", log=True,
                                   references=(Reference(value=TOLERANCE, label="limit"),)),
            tables=(Table(title="Relative error by estimator", columns=("Estimator", "Largest", "Smallest"),
                          rows=tuple(rows)),),
            limits=(f"The weights of the loop are held at a norm of {HELD:g} while it trains, so that it rests.",
                    f"Relaxed until a sweep moves nothing by more than {AT_REST:g}; cut short, the error is larger.",),
            varied=("initialisation", "split", "float32"),
        )


def _rules(arm: str) -> dict[str, Any]:
    """What takes the place of each estimator in an arm."""
    from assay.learning.controls import Flipped

    options: dict[str, Any] = {"sweeps": (500, 500), "tolerance": AT_REST}
    if arm == UNSETTLED:
        options = {"sweeps": (1, 1), "tolerance": None}
    if arm == TRUTH:
        # The looped network needs some 200 sweeps; backprop through fixed sweeps knows no tolerance.
        return {name: recipe.resting(nudge="bptt", sweeps=(300, 1), tolerance=None) for name in ESTIMATORS}
    rules = {name: recipe.resting(nudge=name, **options) for name in ESTIMATORS}
    return {name: Flipped(rule) for name, rule in rules.items()} if arm == UPHILL else dict(rules)
