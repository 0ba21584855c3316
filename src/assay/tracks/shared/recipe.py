"""One recipe on digits for every claim: network, schedule, noise, and how far from the true gradient a rule has ended.

Both arms of a seed share initialisation, split, batch order and input noise. Nothing is searched: the rate and the
noise are those at which backprop was tuned on validation (track 2), and EP relaxes until it rests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assay.protocols import Budget, Trial
from assay.tracks.shared.records import Record

if TYPE_CHECKING:
    from torch import Tensor, nn

    from assay.learning.training import TrainResult
    from assay.models import EnergyMLP
    from assay.rules import EqProp
    from assay.tasks import ArrayTask

WIDTHS, GAMMA = (64, 128, 128, 10), 0.25
EPOCHS, BATCH, RATE, NOISE = 12, 32, 2e-3, 0.15
RESTING, MOST = 1e-3, 60
"""A relaxation is at rest when its last sweep moves no unit (nudged: no deviation) by more than this; most sweeps."""
ROWS = 32
TEST_ITEMS, CLASSES = 360, 10


class Rest(Record):
    """How a rule ended: its residual, and its gradient against the true one in float64 on a validation batch."""

    residual: float
    cosine: float
    error: float
    trusted: bool


def resting(**options: Any) -> EqProp:
    """Equilibrium propagation that relaxes until it rests; what does not come to rest is recorded, not raised."""
    from assay.rules import EqProp

    return EqProp(**{"sweeps": (MOST, MOST), "tolerance": RESTING, "on_divergence": "record", **options})


def network(seed: int, *, widths: tuple[int, ...] = WIDTHS, gamma: float = GAMMA, **options: Any) -> EnergyMLP:
    """The layered energy network of the claims."""
    from assay.models import EnergyMLP

    return EnergyMLP(widths, gamma=gamma, seed=seed, **options)


def learn(
    model: nn.Module, task: ArrayTask, rule: Any, trial: Trial, *, epochs: int = EPOCHS, rate: float = RATE,
    noise: float = NOISE, order: int = 0, **more: Any,
) -> TrainResult:
    """``model`` trained by the recipe, its test part looked at once; ``order`` changes the batches' order alone."""
    from assay.learning import train

    return train(
        model, task, rule, epochs=shortened(epochs, trial.budget), seed=trial.seed + order, batch_size=BATCH,
        learning_rate=rate, input_noise=noise, **more,
    )


def shortened(epochs: int, budget: Budget) -> int:
    """The epochs of a training; one at the smoke budget, which decides nothing."""
    return 1 if budget == "smoke" else epochs


def rest(model: nn.Module, rule: Any, x: Tensor, y: Tensor) -> Rest:
    """How far from rest the rule ends on a batch, and how far from the true gradient."""
    from assay.audits.equilibrium.agreement import estimate, whole_cosine, whole_error
    from assay.audits.equilibrium.true_gradient import true_gradient

    truth, found = true_gradient(model, x, y), estimate(rule, model, x, y)
    return Rest(
        residual=found.residual if found.residual is not None else 0.0,
        cosine=whole_cosine(found.gradients, truth) or 0.0,  # None of a gradient that is 0: it points nowhere
        error=whole_error(found.gradients, truth),
        trusted=truth.trusted,
    )


def batch_of(task: ArrayTask, rows: int = ROWS) -> tuple[Tensor, Tensor]:
    """The validation batch on which gradients are compared."""
    return task.validation.x[:rows], task.validation.y[:rows]


def classes_only(task: ArrayTask, classes: range) -> ArrayTask:
    """The same task with the items of some classes alone, in every part; labels keep their numbers."""
    import torch

    from assay.protocols import Split

    def kept(split: Split) -> Split:
        here = torch.isin(split.y, torch.tensor(list(classes)))
        return Split(split.x[here], split.y[here])

    return replace(task, train=kept(task.train), validation=kept(task.validation), test=kept(task.test))
