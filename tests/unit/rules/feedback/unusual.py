"""Layers of width 8 that multiply by their weight in unusual ways: what coverage must not be fooled by."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import linear as imported_linear
from torch.nn.utils import parametrizations, prune
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Conv1D(nn.Module):
    """As in GPT-2: the bias plus x times the weight, by torch.addmm."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(0.3 * torch.randn(8, 8)), nn.Parameter(torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.reshape(-1, 8), self.weight).view(*x.shape[:-1], 8)


class Imported(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return imported_linear(x, self.weight, self.bias)


class Symmetrised(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight + self.weight.t())


class Gram(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.weight @ self.weight.t())


class ByHand(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return (x[:, None, :] * self.weight).sum(-1)


class Repeated(nn.Linear):
    """The same product without broadcasting."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.repeat(1, 8).view(-1, 8, 8) * self.weight.expand(len(x), 8, 8)).sum(-1)


class Outer(nn.Module):
    """A matrix of two vectors: no parameter has two axes."""

    def __init__(self) -> None:
        super().__init__()
        self.u, self.v = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        return x @ torch.outer(self.u, self.v)


class Keeps(torch.autograd.Function):
    """Keeps its weight where autograd's books do not show it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.kept = weight
        return x @ weight

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> tuple[Tensor, None]:
        return errors[0] @ ctx.kept.t(), None


class OwnFunction(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return Keeps.apply(x, self.weight)


class Einsum(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bi,oi->bo", x, self.weight)


class CopyingEinsum(nn.Module):
    """Heads in the middle axis: einsum has to copy the weight into another order."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(4, 8, 2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bhd,hod->bo", x.view(-1, 4, 2), self.weight)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.5 * torch.randn(2, 4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(x.view(-1, 2, 4).transpose(0, 1), self.weight).transpose(0, 1).reshape(-1, 8)


class Cell(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.cell, self.state = kind(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.state(x))
        out = self.cell(x, (h, h) if isinstance(self.cell, nn.LSTMCell) else h)
        return out[0] if isinstance(out, tuple) else out


class Recurrent(nn.Module):
    """Two time steps of width 4; in ``packed`` sequences every third sample has but one."""

    def __init__(self, kind: type[nn.Module], packed: bool = False, **settings: Any) -> None:
        super().__init__()
        self.net = kind(4, 4 if settings.get("bidirectional") else 8, batch_first=True, **settings)
        self.packed = packed

    def forward(self, x: Tensor) -> Tensor:
        steps: Any = x.view(-1, 2, 4)
        if self.packed:
            lengths = 2 - (torch.arange(len(x)) % 3 == 2).long()
            packed = pack_padded_sequence(steps, lengths, batch_first=True, enforce_sorted=False)
            out, state = self.net(packed)
            last = (state[0] if isinstance(state, tuple) else state)[-1]
            return pad_packed_sequence(out, batch_first=True)[0].sum(1) + last.repeat(1, 8 // last.shape[1])
        return self.net(steps)[0][:, -1]


REACHED = {
    "linear": lambda: nn.Linear(8, 8),
    "addmm as in GPT-2": Conv1D,
    "linear imported by name": lambda: Imported(8, 8),
    "einsum": lambda: Einsum(8, 8),
    "einsum that copies": CopyingEinsum,
    "bmm with experts": Experts,
    "GRU cell": lambda: Cell(nn.GRUCell),
    "LSTM cell": lambda: Cell(nn.LSTMCell),
    "RNN cell": lambda: Cell(nn.RNNCell),
    "LSTM": lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True),
    "GRU": lambda: Recurrent(nn.GRU, num_layers=2),
    "RNN": lambda: Recurrent(nn.RNN, nonlinearity="relu"),
    "packed GRU": lambda: Recurrent(nn.GRU, packed=True),
    "packed LSTM": lambda: Recurrent(nn.LSTM, packed=True, num_layers=2, bidirectional=True),
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(8, 8)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(8, 8)),
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(8, 8)),
    "spectral norm by a hook": lambda: nn.utils.spectral_norm(nn.Linear(8, 8)),
    "pruned": lambda: prune.l1_unstructured(nn.Linear(8, 8), "weight", 0.3),
}
NOT_REACHED = {
    "W + W.t()": lambda: Symmetrised(8, 8),
    "W @ W.t()": lambda: Gram(8, 8),
    "a product by hand": lambda: ByHand(8, 8),
    "a product by hand, repeated": lambda: Repeated(8, 8),
    "outer product of vectors": Outer,
    "own autograd function": lambda: OwnFunction(8, 8),
}


def around(middle: nn.Module) -> nn.Module:
    """A net with this layer in its middle, in double precision."""
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), middle, nn.Tanh(), nn.Linear(8, 3)).double()
