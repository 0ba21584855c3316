"""The parameters of a layered network and its nudge, as the kernels take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.networks.energy_mlp.outliers import Outliers
from assay.solving.activations import Activation

SOLVERS = ("sweeps", "projected", "deflated", "overrelaxed")


@dataclass(frozen=True)
class Layers:
    """The parameters of a layered network: ``weights[0]`` maps the input, ``readout`` the last hidden state.

    Biases are (..., 1, width). ``readout`` is None when the last layer is itself the (linear) output.
    """

    weights: Sequence[Tensor]
    biases: Sequence[Tensor]
    readout: tuple[Tensor, Tensor] | None
    gamma: float
    activation: Activation
    solver: str = "sweeps"
    """How the phases go to rest: by plain sweeps, ``projected``, ``deflated`` or ``overrelaxed`` (the modules of these
    names)."""
    outliers: Outliers | None = None
    """The strong directions of the weights between layers, which ``deflated`` needs."""

    @property
    def depth(self) -> int:
        """The number of layers of units."""
        return len(self.weights)

    @property
    def classes(self) -> int:
        """The number of outputs."""
        return (self.weights[-1] if self.readout is None else self.readout[0]).shape[-2]

    def is_output(self, layer: int) -> bool:
        """Whether a layer is made of linear output units."""
        return self.readout is None and layer == self.depth - 1

    def logits(self, top: Tensor) -> Tensor:
        """The output read from the top layer."""
        if self.readout is None:
            return top
        return multiply_add(self.readout[1], top, self.readout[0].mT)


@dataclass(frozen=True)
class Pull:
    """The nudge as the kernel wants it: beta of each row, and beta times the one-hot target, (..., classes, rows)."""

    beta: Tensor
    wanted: Tensor

    @staticmethod
    def towards(target: Tensor, beta: Tensor, classes: int) -> Pull:
        """Pull each row towards its class index."""
        wanted = beta.new_zeros(*target.shape[:-1], classes, target.shape[-1])
        return Pull(beta, wanted.scatter_(-2, target.unsqueeze(-2), beta.expand(target.shape).unsqueeze(-2)))

    def error(self, logits: Tensor) -> Tensor:
        """beta (onehot - softmax(logits)), from logits transposed like ``wanted``."""
        if logits.is_complex():
            exponentials = torch.exp(logits - logits.real.amax(-2, keepdim=True))
            return self.wanted - self.beta * exponentials / exponentials.sum(-2, keepdim=True)
        return torch.addcmul(self.wanted, torch.softmax(logits, -2), self.beta, value=-1)


def multiply_add(z: Tensor, a: Tensor, b: Tensor, *, alpha: float = 1.0, out: Tensor | None = None) -> Tensor:
    """z + alpha a b, for one network or for many side by side."""
    return (torch.addmm if a.dim() == 2 else torch.baddbmm)(z, a, b, alpha=alpha, out=out)


def multiply(alpha: float, a: Tensor, b: Tensor) -> Tensor:
    """alpha a b in one pass, for one network or for many side by side."""
    nothing = a.new_zeros((1,) * a.dim())
    return (torch.addmm if a.dim() == 2 else torch.baddbmm)(nothing, a, b, beta=0, alpha=alpha)


def activate(layers: Layers, layer: int, drive: Tensor, *, out: Tensor) -> None:
    """Where its drive takes a layer."""
    if not layers.is_output(layer):
        # One or two sweeps are further from rest than any rounding.
        layers.activation.settle(drive, out=out, roughly=layers.solver == "deflated")
    elif drive is not out:
        out.copy_(drive)
