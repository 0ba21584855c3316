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

    ``loss`` maps (outputs, targets) to a mean; by default ``mean_loss`` (cross-entropy over all positions, squared
    error for float targets), or the model's own loss if it is an equilibrium model.

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
        return mean_loss(logits, y)


def mean_loss(outputs: Tensor, y: Tensor) -> Tensor:
    """The loss that fits the targets: cross-entropy for class indices, mean squared error for floats."""
    return mean_squared_error(outputs, y) if y.is_floating_point() else mean_cross_entropy(outputs, y)


def mean_squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    """The squared error averaged over rows and columns; a single output per row may lack its last axis."""
    if outputs.shape == y.shape[:-1] and y.shape[-1] == 1:
        outputs = outputs.unsqueeze(-1)
    if outputs.shape != y.shape:
        raise expected(f"outputs of shape {tuple(y.shape)}, one for each number to be predicted",
                       given=f"outputs of shape {tuple(outputs.shape)}",
                       do="end the model with nn.Linear(..., task.outputs)")
    return functional.mse_loss(outputs, y)


def mean_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy averaged over rows and, for token tasks, over positions: (..., classes) against (...)."""
    if logits.shape[:-1] != y.shape:
        raise expected(f"logits of shape (*{tuple(y.shape)}, classes) for targets of shape {tuple(y.shape)}",
                       given=f"logits of shape {tuple(logits.shape)}")
    return functional.cross_entropy(logits.flatten(0, -2), y.flatten())
