r"""Forward gradients: one forward pass carries a random direction along; the slope times the direction is the update.

Baydin, Pearlmutter, Syme, Wood & Torr (2022), and at the drives Ren, Kornblith, Liao & Hinton (2023). Forward-mode
differentiation gives the slope exactly, without a step size and without storing a graph:

    weights: g = (dloss . v) v,                  v ~ N(0, 1) over all parameters
    drives:  d_l = (dloss_row . v) v_l,          v ~ N(0, 1) over the drives of all layers, gradient = d_l h_{l-1}^T

Local: as perturbation. Limit: E[v v^T] = 1, so the mean over directions is the gradient, without the bias of a finite
step; with p numbers shaken, one direction has a relative error of about sqrt(p).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call

from assay.errors import expected
from assay.probe.chain import activities, layers_of
from assay.rules.backprop import mean_loss
from assay.rules.graphs import Loss, add_gradient, add_gradients, row_losses
from assay.rules.perturbation import drawn, shaken
from assay.seeding import torch_generator
from assay.solving.tangent import load_forward_mode, make_dual, unpack_dual


@dataclass
class ForwardGradient:
    """Forward gradients: on any model at its weights, on a chain of layers at its drives.

    >>> net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    >>> loss = ForwardGradient(at="drives").backward(net, torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))
    >>> net[0].weight.grad is not None
    True
    """

    at: Literal["weights", "drives"] = "weights"
    samples: int = 1
    seed: int = 0
    loss: Loss | None = None
    local = True
    calls: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.at not in ("weights", "drives") or isinstance(self.samples, bool) or self.samples < 1:
            raise expected("at='weights' or 'drives' and samples >= 1", given=f"at={self.at!r}, {self.samples!r}")
        if self.at == "drives" and self.loss is not None:
            raise expected("the built-in loss at drives, which is taken row by row", given="loss=")

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The detached loss, after adding the slope times the direction to ``.grad``."""
        load_forward_mode()
        self.calls += 1
        generator = torch_generator(self.seed, "forward gradient", self.calls)
        return (self._at_weights if self.at == "weights" else self._at_drives)(model, x, y, generator)

    def _at_weights(self, model: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
        for _ in range(self.samples):
            direction = {name: drawn(p, generator) for name, p in learning.items()}
            with torch.no_grad(), forward_ad.dual_level():
                carried = {name: make_dual(p.detach(), direction[name]) for name, p in learning.items()}
                outputs = functional_call(model, carried, (x,))
                value, slope = unpack_dual((self.loss or mean_loss)(outputs, y))
            for name, parameter in learning.items():
                if slope is not None:  # None where the loss does not depend on anything that learns
                    add_gradient(parameter, slope / self.samples * direction[name])
        return torch.as_tensor(value).detach()

    def _at_drives(self, model: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        layers = layers_of(model, rule="forward gradients at drives")
        below = activities(layers, x)
        with torch.enable_grad():
            drives = [layer.driven(h) for layer, h in zip(layers, below, strict=False)]
        signals = [torch.zeros_like(drive) for drive in drives]
        for _ in range(self.samples):
            noise = [drawn(drive, generator) for drive in drives]
            with torch.no_grad(), forward_ad.dual_level():
                carried = [make_dual(torch.zeros_like(each), each) for each in noise]
                losses, slopes = unpack_dual(row_losses(shaken(layers, x, carried, 1.0), y))
            for signal, each in zip(signals, noise, strict=True):
                signal += each * (slopes / (self.samples * len(y))).reshape(-1, *[1] * (each.ndim - 1))
        add_gradients(drives, [p for layer in layers for p in layer.parameters()], signals)
        return torch.as_tensor(losses).mean()
