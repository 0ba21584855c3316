"""Backprop: the gradient of the loss by automatic differentiation, the yardstick for every other rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.errors import expected
from assay.protocols import EquilibriumModel


@dataclass(frozen=True)
class Backprop:
    """Adds the gradient of ``loss`` to ``.grad``; on an equilibrium model this is backprop through the unrolled sweeps.

    ``loss`` maps (logits, targets) to a mean; by default cross-entropy over all positions, or the model's own loss if
    it is an equilibrium model.

    >>> model = nn.Linear(3, 2)
    >>> loss = Backprop().backward(model, torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))
    >>> model.bias.grad is not None and not loss.requires_grad
    True
    """

    loss: Callable[[Tensor, Tensor], Tensor] | None = None

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.enable_grad():
            loss = self._loss(model, model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _loss(self, model: nn.Module, logits: Tensor, y: Tensor) -> Tensor:
        if self.loss is not None:
            return self.loss(logits, y)
        if isinstance(model, EquilibriumModel):
            return model.row_losses(logits, y).mean()
        return mean_cross_entropy(logits, y)


def mean_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy averaged over rows and, for token tasks, over positions: (..., classes) against (...)."""
    if logits.shape[:-1] != y.shape:
        raise expected(f"logits of shape (*{tuple(y.shape)}, classes) for targets of shape {tuple(y.shape)}",
                       given=f"logits of shape {tuple(logits.shape)}")
    return functional.cross_entropy(logits.flatten(0, -2), y.flatten())
