r"""Difference target propagation: targets instead of errors, brought down by learned approximate inverses.

Lee, Zhang, Fischer & Bengio (2015). With layers f_l, activities h_l and inverses g_l of the layers 2 ... L - 1:

    t_{L-1} = h_{L-1} - eta * dloss/dh_{L-1}
    t_{l-1} = h_{l-1} + g_l(t_l) - g_l(h_l)                          (the difference cancels what g_l gets wrong)
    gradient of layer l = d/dtheta |f_l(h_{l-1}) - t_l|^2 / (2 eta)  (l < L; the last layer learns by its own loss)
    gradient of g_l     = d/dpsi   |g_l(f_l(h_{l-1} + noise)) - (h_{l-1} + noise)|^2

Local: every loss sits between two neighbouring layers; only the first target is a gradient, of the last layer alone.

Limits: with exact inverses and eta -> 0 the target moves by J_l^{-1} per layer, a Gauss-Newton step (Meulemans et al.
2020; Bengio 2020), which is *not* the gradient. It is the gradient where J^{-1} = J^T (orthogonal weights, identity
activation), and with at most one hidden layer, where no inverse is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.probe.chain import Layer, activities, layers_of
from assay.rules.graphs import Loss, add_gradients, loss_and_pull
from assay.seeding import torch_generator


class TargetPropagation:
    """Difference target propagation on a chain of ``nn.Linear`` layers, for classes and for regression.

    ``rate`` is eta, ``noise`` the standard deviation the inverses are trained with. The inverses, one linear map and
    the activation of the layer below, are drawn from ``seed`` and learn beside the model: ``assay.train`` hands
    ``rule.parameters()`` to the optimiser. ``inverses`` replaces them by functions of one's own.

    >>> net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 2))
    >>> rule = TargetPropagation(net)
    >>> loss = rule.backward(net, torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))
    >>> [tuple(p.shape) for p in rule.parameters()]
    [(5, 5), (5,)]
    """

    local = True

    def __init__(
        self, model: nn.Module, *, rate: float = 0.1, noise: float = 0.1, seed: int = 0,
        inverses: Sequence[Callable[[Tensor], Tensor]] | None = None, loss: Loss | None = None,
    ) -> None:
        if not rate > 0 or not noise >= 0:
            raise expected("rate > 0 and noise >= 0", given=f"rate={rate}, noise={noise}")
        layers = layers_of(model, rule="difference target propagation")
        self.rate, self.noise, self.seed, self.loss, self.steps = rate, noise, seed, loss, 0
        self._own: dict[str, nn.Parameter] = {} if inverses is not None else _drawn(layers, seed)
        self._given = inverses
        if inverses is not None and len(inverses) != max(0, len(layers) - 2):
            raise expected(f"{max(0, len(layers) - 2)} inverses, of the layers between the first and the last",
                           given=f"{len(inverses)}")

    def __repr__(self) -> str:
        return f"TargetPropagation(rate={self.rate}, noise={self.noise}, seed={self.seed})"

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The detached feed-forward loss, after adding the gradients of all local losses to ``.grad``."""
        layers = layers_of(model, rule="difference target propagation")
        self.steps += 1
        h = activities(layers, x)
        with torch.enable_grad():
            leaf = h[-2].detach().requires_grad_()
            outputs = layers[-1](leaf)
            loss, pull = loss_and_pull(self.loss, outputs, y)
            (top,) = torch.autograd.grad(outputs, leaf, pull, retain_graph=True)
        add_gradients([outputs], layers[-1].parameters(), [pull / len(y)])
        target = h[-2] - self.rate * top
        for number in reversed(range(1, len(layers))):
            layer = layers[number - 1]
            with torch.enable_grad():
                predicted = layer(h[number - 1])
            add_gradients([predicted], layer.parameters(), [(h[number] - target) / (self.rate * len(y))])
            if number > 1:
                inverse = self._inverse(layers, number)
                with torch.no_grad():
                    target = self._below(inverse, target, h[number], h[number - 1])
                if self._given is None:
                    self._learn(inverse, layer, h[number - 1], number)
        return loss

    def parameters(self) -> Iterator[nn.Parameter]:
        """The weights and biases of the inverses; give them to the optimiser together with the model's."""
        return iter(self._own.values())

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the inverses' parameters."""
        return {name: p.detach().clone() for name, p in self._own.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back the inverses of a checkpoint."""
        with torch.no_grad():
            for name, value in state.items():
                self._own[name].copy_(value)

    def _below(self, inverse: Callable[[Tensor], Tensor], target: Tensor, above: Tensor, below: Tensor) -> Tensor:
        """The target of the layer below; the difference cancels whatever the inverse adds to both."""
        return below + inverse(target) - inverse(above)

    def _inverse(self, layers: tuple[Layer, ...], number: int) -> Callable[[Tensor], Tensor]:
        """From the activity of layer ``number`` (from 1) to that of the layer below."""
        if self._given is not None:
            return self._given[number - 2]
        weight, bias = self._own[f"{number}.weight"], self._own[f"{number}.bias"]
        return lambda h: layers[number - 2].answered(nn.functional.linear(h, weight, bias))

    def _learn(self, inverse: Callable[[Tensor], Tensor], layer: Layer, below: Tensor, number: int) -> None:
        """The gradient of the reconstruction of a noisy activity below."""
        generator = torch_generator(self.seed, "inverse", number, self.steps)
        noise = torch.randn(below.shape, generator=generator, dtype=below.dtype).to(below.device)
        with torch.no_grad():
            noisy = below + self.noise * noise
            above = layer(noisy)
        with torch.enable_grad():
            wrong = nn.functional.mse_loss(inverse(above), noisy)
        add_gradients([wrong], [self._own[f"{number}.weight"], self._own[f"{number}.bias"]], [None])


def _drawn(layers: tuple[Layer, ...], seed: int) -> dict[str, nn.Parameter]:
    """A linear map back through every layer but the first and the last, uniform as torch draws its own."""
    found: dict[str, nn.Parameter] = {}
    for number, layer in enumerate(layers[1:-1], start=2):
        forward = layer.drive[0] if len(layer.drive) == 1 else None
        if not isinstance(forward, nn.Linear):
            raise expected("layers that are one nn.Linear each, for difference target propagation",
                           given=f"layer '{layer.name}': {', '.join(type(m).__name__ for m in layer.drive)}",
                           do="give inverses=, one function per layer between the first and the last")
        generator = torch_generator(seed, "inverse", number)
        for name, shape in (("weight", (forward.in_features, forward.out_features)), ("bias", (forward.in_features,))):
            bound = 1 / math.sqrt(forward.out_features)
            values = torch.empty(shape, dtype=torch.float64).uniform_(-bound, bound, generator=generator)
            found[f"{number}.{name}"] = nn.Parameter(values.to(forward.weight))
    return found
