r"""Perturbation rules: shake the weights or the drives at random, and keep what lowered the loss.

Weight perturbation (Dembo & Kailath 1990; Cauwenberghs 1993) and node perturbation (Williams 1992; Fiete & Seung 2006),
with random directions v of unit variance and a two-sided difference of width sigma:

    weights: g = v (loss(theta + sigma v) - loss(theta - sigma v)) / (2 sigma)
    nodes:   d_l = v_l (loss_row(a + sigma v) - loss_row(a - sigma v)) / (2 sigma),  gradient of layer l = d_l h_{l-1}^T

``a`` are the drives of all layers, shaken together and for every row anew. Local: a weight or a neuron needs its own
noise and one number broadcast to all. Nodes need fewer directions than there are weights, so their noise is smaller.

Limit: E[v v^T] = 1, so as sigma -> 0 the mean over directions is the gradient (the error of order sigma^2 is the third
derivative's); one direction alone has a relative error of about the root of the number of directions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call

from assay.errors import expected
from assay.probe.chain import Layer, activities, layers_of
from assay.rules.backprop import mean_loss
from assay.rules.graphs import Loss, add_gradient, add_gradients, row_losses
from assay.seeding import torch_generator


@dataclass
class WeightPerturbation:
    """Weight perturbation on any model, ``samples`` directions per step, drawn from ``seed`` anew at every step.

    >>> net = nn.Linear(3, 2)
    >>> loss = WeightPerturbation(samples=4).backward(net, torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))
    >>> net.weight.grad is not None
    True
    """

    sigma: float = 1e-3
    samples: int = 1
    seed: int = 0
    loss: Loss | None = None
    local = True
    calls: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self.sigma, self.samples)

    @torch.no_grad()
    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The detached loss, after adding the estimate to ``.grad`` of every parameter that learns."""
        self.calls += 1
        generator = torch_generator(self.seed, "weight perturbation", self.calls)
        learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
        loss = self._loss(model(x), y)
        for _ in range(self.samples):
            noise = {name: drawn(p, generator) for name, p in learning.items()}
            ends = [
                self._loss(functional_call(model, {n: p + sign * self.sigma * noise[n] for n, p in learning.items()},
                                           (x,)), y)
                for sign in (1, -1)
            ]
            slope = (ends[0] - ends[1]) / (2 * self.sigma * self.samples)
            for name, parameter in learning.items():
                add_gradient(parameter, slope * noise[name])
        return loss

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (self.loss or mean_loss)(outputs, y)


@dataclass
class NodePerturbation:
    """Node perturbation on a chain of layers, for classes and for regression.

    >>> net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    >>> loss = NodePerturbation(samples=4).backward(net, torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))
    >>> net[0].weight.grad is not None
    True
    """

    sigma: float = 1e-2
    samples: int = 1
    seed: int = 0
    local = True
    calls: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self.sigma, self.samples)

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The detached loss, after adding the estimate to ``.grad``."""
        layers = layers_of(model, rule="node perturbation")
        self.calls += 1
        generator = torch_generator(self.seed, "node perturbation", self.calls)
        below = activities(layers, x)
        with torch.enable_grad():
            drives = [layer.driven(h) for layer, h in zip(layers, below, strict=False)]
        signals = [torch.zeros_like(drive) for drive in drives]
        with torch.no_grad():
            for _ in range(self.samples):
                noise = [drawn(drive, generator) for drive in drives]
                ends = [row_losses(shaken(layers, x, noise, sign * self.sigma), y) for sign in (1, -1)]
                slope = (ends[0] - ends[1]) / (2 * self.sigma * self.samples * len(y))
                for signal, each in zip(signals, noise, strict=True):
                    signal += each * slope.reshape(-1, *[1] * (each.ndim - 1))
        add_gradients(drives, [p for layer in layers for p in layer.parameters()], signals)
        return row_losses(below[-1], y).mean()


def shaken(layers: tuple[Layer, ...], x: Tensor, noise: list[Tensor], size: float) -> Tensor:
    """The output with ``size`` times the noise added to the drive of every layer."""
    for layer, each in zip(layers, noise, strict=True):
        x = layer.answered(layer.driven(x) + size * each)
    return x


def drawn(like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers in the shape, dtype and place of ``like``."""
    return torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like.device)


def _check(sigma: float, samples: int) -> None:
    if not sigma > 0 or isinstance(samples, bool) or samples < 1:
        raise expected("sigma > 0 and samples >= 1", given=f"sigma={sigma}, samples={samples!r}")
