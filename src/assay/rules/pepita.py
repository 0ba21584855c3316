r"""PEPITA: a second forward pass on an input that the output error has changed.

Dellaferrera & Kreiman (2022), "Error-driven input modulation". With e = dloss/doutput of each row and a fixed random
matrix F from the outputs to the input, both passes use the same weights:

    h_0 = x,            h_l = f_l(h_{l-1})
    z_0 = x + c F e,    z_l = f_l(z_{l-1})
    gradient of layer l < L = (h_l - z_l) z_{l-1}^T / c,    of the last layer = e z_{L-1}^T

(the paper's update, divided by the strength c of the modulation, which it leaves to the learning rate). Local: a weight
sees the two passes at its own ends; nothing goes back through a weight. Inference is the model's own forward pass.

Limit: as c -> 0, (h_l - z_l) / c -> -J_l ... J_1 F e: the error reaches a layer through the forward Jacobian of
everything below it (Srinivasan et al. 2023), which is the gradient only where -J_l ... J_1 F happens to be the
transposed Jacobian of everything above. ``feedback`` may be chosen so that it is: one hidden layer without activation
and F = -pinv(W_1) W_2^T give backprop exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.probe.chain import activities, layers_of
from assay.rules.graphs import Loss, add_gradients, loss_and_pull
from assay.seeding import torch_generator


class Pepita:
    """PEPITA on a chain of layers, for classes and for regression.

    ``strength`` is c. F, of shape (input numbers, outputs), is uniform with limits sqrt(6 / inputs) as in the paper,
    drawn from ``seed`` at the first input, or given as ``feedback``.

    >>> net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> loss = Pepita(net, seed=1).backward(net, torch.ones(4, 6), torch.tensor([0, 1, 2, 0]))
    >>> net[0].weight.grad is not None
    True
    """

    local = True

    def __init__(
        self, model: nn.Module, *, strength: float = 0.05, seed: int = 0, feedback: Tensor | None = None,
        loss: Loss | None = None,
    ) -> None:
        layers_of(model, rule="PEPITA")
        if not strength > 0:
            raise expected("strength > 0", given=f"strength={strength}")
        self.strength, self.seed, self.feedback, self.loss = strength, seed, feedback, loss

    def __repr__(self) -> str:
        return f"Pepita(strength={self.strength}, seed={self.seed})"

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The detached loss of the first pass, after adding the difference of the passes to ``.grad``."""
        layers = layers_of(model, rule="PEPITA")
        if not x.is_floating_point():
            raise expected("floating-point inputs for PEPITA, which adds to them", given=f"x of dtype {x.dtype}")
        first = activities(layers, x)
        loss, error = loss_and_pull(self.loss, first[-1], y)
        pushed = (error.flatten(1) @ self._matrix(x, error).T).reshape(x.shape)
        second = activities(layers[:-1], x + self.strength * pushed)
        for number, (layer, below) in enumerate(zip(layers, second, strict=True)):
            last = number == len(layers) - 1
            with torch.enable_grad():
                # Without its activation: the difference of the activities takes the place of an error of the drive.
                drive = layer(below) if last else layer.driven(below)
            signal = error if last else (first[number + 1] - second[number + 1]) / self.strength
            if signal.shape != drive.shape:
                raise expected("activations that keep the shape of what they answer, for PEPITA",
                               given=f"layer '{layer.name}': {tuple(drive.shape)} to {tuple(signal.shape)}")
            add_gradients([drive], layer.parameters(), [signal / len(y)])
        return loss

    def state_dict(self) -> dict[str, Tensor]:
        """The feedback matrix, once it has been drawn."""
        return {} if self.feedback is None else {"feedback": self.feedback.detach().clone()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back the matrix of a checkpoint."""
        self.feedback = state["feedback"].detach().clone()

    def _matrix(self, x: Tensor, error: Tensor) -> Tensor:
        shape = (x[0].numel(), error[0].numel())
        if self.feedback is None:
            bound = math.sqrt(6 / shape[0])
            values = torch.empty(shape, dtype=torch.float64)
            self.feedback = values.uniform_(-bound, bound, generator=torch_generator(self.seed, "pepita")).to(x)
        if tuple(self.feedback.shape) != shape:
            raise expected(f"feedback of shape {shape}, inputs by outputs", given=tuple(self.feedback.shape))
        return self.feedback.to(x)
