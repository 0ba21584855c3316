r"""Dual propagation: contrastive Hebbian learning whose two phases live side by side in every neuron.

Each hidden layer has two activities, pushed apart by the error from above (Hoier, Staudt & Zach 2023). With drives
A_l (weight and bias), activations phi_l, the mean activity m_l = alpha s_l^+ + (1 - alpha) s_l^- and the difference
d_l = s_l^+ - s_l^-:

    d_L   = -beta * dloss/da_L                          (the nudge of the output)
    u_l   = A_{l+1}^T d_{l+1}                           (what comes down)
    s_l^+ = phi_l(A_l m_{l-1} + (1 - alpha) u_l),   s_l^- = phi_l(A_l m_{l-1} - alpha u_l)
    gradient of A_l = -d_l m_{l-1}^T / beta             (contrastive, Hebbian)

Local: a weight sees its two ends and nothing else, no derivative of an activation is ever taken, and the weight that
comes down is the one that goes up. Classical contrastive Hebbian learning relaxes the two phases one after the other
(``eqprop`` on a model with an energy does); here one downward sweep is enough.

Limit: as beta -> 0, d_l -> -beta * dloss/da_l and the gradient is that of the loss. With alpha = 1/2 activations are
differenced symmetrically: the error is of order beta^2 there, and of order beta in the loss's own curvature.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.probe.chain import Layer, layers_of
from assay.rules.graphs import Loss, add_gradients, loss_and_pull


@dataclass
class DualPropagation:
    """Dual propagation on a chain of layers, for classes and for regression.

    ``beta`` is the nudge, ``alpha`` the share of the pushed activity in the mean, ``sweeps`` how often the mean goes up
    and the difference comes down; the first sweep starts at the feed-forward pass.

    >>> net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    >>> loss = DualPropagation(beta=0.1).backward(net, torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))
    >>> net[0].weight.grad is not None
    True
    """

    beta: float = 0.5
    alpha: float = 0.5
    sweeps: int = 1
    loss: Loss | None = None
    local = True

    def __post_init__(self) -> None:
        if not self.beta > 0 or not 0 <= self.alpha <= 1:
            raise expected("beta > 0 and alpha in [0, 1]", given=f"beta={self.beta}, alpha={self.alpha}")
        if isinstance(self.sweeps, bool) or self.sweeps < 1:
            raise expected("sweeps >= 1", given=f"sweeps={self.sweeps!r}")

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The detached feed-forward loss, after adding the contrast of the two activities to ``.grad``."""
        layers = layers_of(model, rule="dual propagation")
        means: list[Tensor] = []
        first: Tensor | None = None
        for _ in range(self.sweeps):
            drives = self._up(layers, x, means)
            loss, top = _nudged(layers[-1], drives[-1], y, self.loss)
            first = loss if first is None else first
            means, differences = self._down(layers, x, drives, -self.beta * top)
        for layer, below, difference in zip(layers, [x, *means], differences, strict=True):
            with torch.enable_grad():
                drive = layer.driven(below.detach())
            add_gradients([drive], layer.parameters(), [-difference / (self.beta * len(y))])
        assert first is not None  # there is at least one sweep
        return first

    @torch.no_grad()
    def _up(self, layers: tuple[Layer, ...], x: Tensor, means: list[Tensor]) -> list[Tensor]:
        """The drive of every layer from the mean activity below; the feed-forward pass where there is no mean yet."""
        drives: list[Tensor] = []
        below = x
        for number, layer in enumerate(layers):
            drives.append(layer.driven(below))
            below = means[number] if number < len(means) else layer.answered(drives[-1])
        return drives

    def _down(
        self, layers: tuple[Layer, ...], x: Tensor, drives: list[Tensor], top: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Mean activities of the hidden layers and differences of all, from the output down."""
        means: list[Tensor] = []
        differences = [top]
        for number in reversed(range(len(layers) - 1)):
            layer, above, drive = layers[number], layers[number + 1], drives[number]
            with torch.enable_grad():
                leaf = layer.answered(drive).detach().requires_grad_()
                (down,) = torch.autograd.grad(above.driven(leaf), leaf, differences[0])
            if down.shape != drive.shape:
                raise expected("activations that keep the shape of what they answer, for dual propagation",
                               given=f"layer '{layer.name}': {tuple(drive.shape)} to {tuple(leaf.shape)}")
            with torch.no_grad():
                plus = layer.answered(drive + (1 - self.alpha) * down)
                minus = layer.answered(drive - self.alpha * down)
            means.insert(0, self.alpha * plus + (1 - self.alpha) * minus)
            differences.insert(0, plus - minus)
        return means, differences


def _nudged(layer: Layer, drive: Tensor, y: Tensor, loss: Loss | None) -> tuple[Tensor, Tensor]:
    """The mean loss and each row's gradient with respect to the drive of the last layer."""
    with torch.enable_grad():
        leaf = drive.detach().requires_grad_()
        outputs = layer.answered(leaf)
        value, pull = loss_and_pull(loss, outputs, y)
        (top,) = torch.autograd.grad(outputs, leaf, pull) if outputs is not leaf else (pull,)
    return value, top
