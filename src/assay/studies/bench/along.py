"""How far from rest an arm was while it trained, not only where it ended.

A relaxation that rests in the last epoch says nothing of the others: weights grow, and the first steps or the middle
may have been taken along no gradient at all. So the residual is the largest of every step, and the gradient is compared
with the true one at the end of every epoch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from torch import nn

    from assay.learning.training import Epoch
    from assay.studies.arms.build import Built

ROWS = 128
"""Training items of the batch on which gradients are compared, as after training."""


@final
class Along:
    """A callback of the training loop that keeps the residual of every epoch and the cosine at its end."""

    def __init__(self, built: Sequence[Built], tasks: Sequence[Any]) -> None:
        self.subjects = {id(one.model): (one, task) for one, task in zip(built, tasks, strict=True)}
        self.residuals: dict[int, list[float]] = {}
        self.cosines: dict[int, list[float]] = {}
        self.processor = self.clock = 0.0
        """Seconds of the looks, which are no part of the training's."""

    def __call__(self, epoch: Epoch, model: nn.Module) -> None:
        from assay.studies.arms.build import gradient_agreement

        if epoch.residual is None:  # backprop through the relaxation: there is no other gradient to compare with
            return
        began, clock = time.process_time(), time.perf_counter()
        one, task = self.subjects[id(model)]
        self.residuals.setdefault(id(model), []).append(epoch.residual)
        cosine = gradient_agreement(one, task.train.x[:ROWS], task.train.y[:ROWS])
        # A gradient that is zero or not finite agrees with nothing: the worst there is, never a look left out.
        self.cosines.setdefault(id(model), []).append(-1.0 if cosine is None else cosine)
        self.processor += time.process_time() - began
        self.clock += time.perf_counter() - clock

    def record(self, model: nn.Module) -> dict[str, Any]:
        """By epoch; nothing for a rule that does not relax."""
        cosines = self.cosines.get(id(model))
        if not cosines:
            return {}
        return {"residual_along": self.residuals[id(model)], "agreement_along": cosines,
                "least_agreement": min(cosines)}
