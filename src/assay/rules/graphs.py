"""Small graphs: gradients of one layer at a time, added to ``.grad`` as a backward pass would add them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.errors import expected
from assay.rules.backprop import mean_loss

Loss = Callable[[Tensor, Tensor], Tensor]


def add_gradients(
    outputs: Sequence[Tensor], parameters: Iterable[nn.Parameter], signals: Sequence[Tensor | None]
) -> None:
    """Add to ``.grad`` the vector-Jacobian product of ``outputs`` with ``signals`` (None: of a scalar, with 1)."""
    learning = [p for p in parameters if p.requires_grad]
    reaching = [(o, s) for o, s in zip(outputs, signals, strict=True) if o.requires_grad]
    if not learning or not reaching:
        return
    found = torch.autograd.grad([o for o, _ in reaching], learning, [s for _, s in reaching], allow_unused=True)
    for parameter, gradient in zip(learning, found, strict=True):
        if gradient is not None:
            add_gradient(parameter, gradient)


def add_gradient(parameter: nn.Parameter, gradient: Tensor) -> None:
    """Add ``gradient`` to that of a parameter."""
    new = gradient.detach()
    parameter.grad = new.clone() if parameter.grad is None else parameter.grad + new


def loss_and_pull(loss: Loss | None, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The mean loss, and how the sum of the rows' losses falls with each output: one row's own gradient per row."""
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        value = (loss or mean_loss)(leaf, y)
        (pull,) = torch.autograd.grad(value, leaf)
    return value.detach(), len(y) * pull


def row_losses(outputs: Tensor, y: Tensor) -> Tensor:
    """The loss of each row, whose mean is ``mean_loss``."""
    if y.is_floating_point():
        if outputs.shape == y.shape[:-1] and y.shape[-1] == 1:
            outputs = outputs.unsqueeze(-1)
        if outputs.shape != y.shape:
            raise expected(f"outputs of shape {tuple(y.shape)}", given=f"outputs of shape {tuple(outputs.shape)}")
        return (outputs - y).square().flatten(1).mean(1)
    if outputs.shape[:-1] != y.shape:
        raise expected(f"logits of shape (*{tuple(y.shape)}, classes)", given=f"logits of {tuple(outputs.shape)}")
    each = functional.cross_entropy(outputs.flatten(0, -2), y.flatten(), reduction="none")
    return each.reshape(len(y), -1).mean(1)
