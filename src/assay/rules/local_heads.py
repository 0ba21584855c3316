r"""Local heads: every hidden layer learns by a linear classifier of its own; no error passes between layers.

Greedy layerwise learning (Belilovsky, Eickenberg & Oyallon 2019; Nokland & Eidnes 2019), all layers at once:

    loss_l = loss(V_l pool(f_l(stop(h_{l-1}))), y)     for l < L,     loss_L = loss(f_L(stop(h_{L-1})), y)

where ``stop`` lets no gradient through and ``pool`` averages over positions. A layer's gradient, and its head's, is
that of its own loss. Local in depth: what lies above a layer has no part in what it learns; within a layer and its head
it is backprop. Inference is the model's own forward pass: the heads are thrown away.

Limit: the last layer gets the true gradient given its input, so a model of one layer learns by backprop exactly. A
hidden layer gets it only if its head is the rest of the network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.probe.chain import Layer, layers_of
from assay.rules.backprop import mean_loss
from assay.rules.graphs import Loss, add_gradients
from assay.seeding import torch_generator


class LocalHeads:
    """Greedy layerwise learning on a chain of linear or convolutional layers, for classes and for regression.

    Heads are drawn from ``seed`` and learn beside the model: ``assay.train`` hands ``rule.parameters()`` to the
    optimiser.

    >>> net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> rule = LocalHeads(net)
    >>> [tuple(p.shape) for p in rule.parameters()]
    [(3, 8), (3,)]
    """

    local = True

    def __init__(self, model: nn.Module, *, seed: int = 0, loss: Loss | None = None) -> None:
        layers = layers_of(model, rule="local heads")
        outputs = _width(layers[-1])
        self.seed, self.loss = seed, loss
        self.heads: dict[str, nn.Parameter] = {}
        for layer in layers[:-1]:
            width = _width(layer)
            generator = torch_generator(seed, "head", layer.name)
            for name, shape in (("weight", (outputs, width)), ("bias", (outputs,))):
                bound = 1 / math.sqrt(width)
                values = torch.empty(shape, dtype=torch.float64).uniform_(-bound, bound, generator=generator)
                self.heads[f"{layer.name}.{name}"] = nn.Parameter(values.to(next(iter(layer.weights[0].parameters()))))

    def __repr__(self) -> str:
        return f"LocalHeads(seed={self.seed})"

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The detached loss of the model's own output, after adding each layer's own gradient to ``.grad``."""
        layers = layers_of(model, rule="local heads")
        h = x.detach()
        for layer in layers[:-1]:
            weight, bias = self.heads[f"{layer.name}.weight"], self.heads[f"{layer.name}.bias"]
            with torch.enable_grad():
                activity = layer(h)
                loss = self._loss(nn.functional.linear(_pooled(activity, weight), weight, bias), y)
            add_gradients([loss], [*layer.parameters(), weight, bias], [None])
            h = activity.detach()
        with torch.enable_grad():
            final = self._loss(layers[-1](h), y)
        add_gradients([final], layers[-1].parameters(), [None])
        return final.detach()

    def parameters(self) -> Iterator[nn.Parameter]:
        """The weights and biases of the heads; give them to the optimiser together with the model's."""
        return iter(self.heads.values())

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the heads."""
        return {name: p.detach().clone() for name, p in self.heads.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back the heads of a checkpoint."""
        with torch.no_grad():
            for name, value in state.items():
                self.heads[name].copy_(value)

    def _loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (self.loss or mean_loss)(outputs, y)


def _width(layer: Layer) -> int:
    """The number of features a layer gives, read off its weight: rows of a matrix, channels of a convolution."""
    modules = layer.weights
    if len(modules) != 1 or not isinstance(modules[0], nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
        given = ", ".join(type(module).__name__ for module in modules)
        raise expected("layers with one nn.Linear or nn.Conv each, for local heads", given=f"'{layer.name}': {given}")
    return int(modules[0].weight.shape[0])


def _pooled(activity: Tensor, weight: Tensor) -> Tensor:
    """Features per row: the mean over positions of (rows, channels, ...), and sequences (rows, length, width) as are.
    """
    if activity.ndim > 2 and activity.shape[1] == weight.shape[1] != activity.shape[-1]:
        return activity.flatten(2).mean(2)
    if activity.ndim > 3:  # channels first, as many as the last axis is long
        return activity.flatten(2).mean(2)
    return activity
