"""Reference models of many kinds, each with a sample; all in evaluation mode, all of a seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from assay.seeding import torch_generator


class Attention(nn.Module):
    """One causal head; its scale and its mask are attributes, so that a twin can get them wrong."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.scale, self.shift = 1 / math.sqrt(width), 1

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(self.shift)
        return self.out((q @ k.mT * self.scale).masked_fill(hidden, -torch.inf).softmax(-1) @ v)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.attention, self.second = nn.LayerNorm(width), Attention(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(6, 8, batch_first=True), nn.GRU(8, 8, batch_first=True)
        self.drop, self.act, self.head = nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.drop(self.gru(self.lstm(x)[0])[0])))


class Forces(nn.Module):
    """The energy of points by pairs, and its forces, taken inside the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = nn.Sequential(nn.Linear(1, 12), nn.SiLU(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 1))

    def forward(self, pos: Tensor) -> dict[str, Tensor]:
        with torch.enable_grad():
            pos = pos if pos.requires_grad else pos.detach().requires_grad_(True)
            gaps = (pos.unsqueeze(1) - pos.unsqueeze(2)).square().sum(-1, keepdim=True)
            energy = self.pair(gaps).sum((1, 2, 3))
            (slope,) = torch.autograd.grad(energy.sum(), pos, create_graph=True)
        return {"energy": energy, "forces": -slope}


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.norm1, self.act1 = nn.Conv2d(2, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.SiLU()
        self.middle, self.norm2, self.act2 = nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU()
        self.up, self.out = nn.ConvTranspose2d(6, 6, 2, stride=2), nn.Conv2d(12, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        high = self.act1(self.norm1(self.down(x)))
        low = self.act2(self.norm2(self.middle(nn.functional.avg_pool2d(high, 2))))
        return self.out(torch.cat([high, self.up(low)], 1))


class Energy(nn.Module):
    """One number per row: second derivatives are compared too."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 12), nn.SiLU(), nn.Linear(12, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).squeeze(-1) + 0.1 * x.square().sum(-1)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 16), nn.Tanh(),
                         nn.Linear(16, 4))  # fmt: skip


def cnn() -> nn.Module:
    first = [nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1)]
    return nn.Sequential(*first, nn.GroupNorm(2, 6), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 5))


def audio() -> nn.Module:
    return nn.Sequential(nn.Conv1d(3, 8, 5, padding=2), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.1),
                         nn.Conv1d(8, 8, 3, dilation=2, padding=2), nn.Tanh(), nn.Conv1d(8, 2, 1))  # fmt: skip


def transformer() -> nn.Module:
    return nn.Sequential(Block(8), Block(8), nn.Linear(8, 5))


class Irreps(nn.Module):
    """e3nn: a tensor product of features with spherical harmonics of points."""

    def __init__(self) -> None:
        super().__init__()
        from e3nn import o3
        from e3nn.nn import Gate

        self.harmonics = o3.SphericalHarmonics("0e + 1o", normalize=True)
        self.product = o3.FullyConnectedTensorProduct("4x0e", "0e + 1o", "6x0e + 2x1o")
        self.gate = Gate("4x0e", [torch.tanh], "2x0e", [torch.sigmoid], "2x1o")
        self.out = o3.Linear("4x0e + 2x1o", "1x0e + 1x1o")

    def forward(self, x: Tensor, pos: Tensor) -> Tensor:
        return self.out(self.gate(self.product(x, self.harmonics(pos))))


def normal(seed: int, *shape: int) -> Tensor:
    """Random numbers of a seed."""
    return torch.randn(shape, generator=torch_generator(seed, "sample", *shape))


FAMILIES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Any]]] = {
    "mlp": (mlp, lambda s: normal(s, 9, 8)),
    "cnn": (cnn, lambda s: normal(s, 6, 2, 8, 8)),
    "audio": (audio, lambda s: normal(s, 6, 3, 16)),
    "transformer": (transformer, lambda s: normal(s, 6, 7, 8)),
    "recurrent": (Recurrent, lambda s: normal(s, 6, 7, 6)),
    "forces": (Forces, lambda s: normal(s, 6, 5, 3)),
    "unet": (UNet, lambda s: normal(s, 6, 2, 8, 8)),
    "energy": (Energy, lambda s: normal(s, 9, 5)),
    "e3nn": (Irreps, lambda s: (normal(s, 9, 4), normal(s, 9, 3))),
}


def reference(family: str, seed: int) -> nn.Module:
    """A model of the family with weights and running statistics of the seed, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(torch_generator(seed, "weights", family).get_state())
        model = FAMILIES[family][0]()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                assert module.running_mean is not None and module.running_var is not None
                module.running_mean.normal_(0, 0.3)
                module.running_var.uniform_(0.5, 2.0)
    return model.eval()


def sample(family: str, seed: int) -> Any:
    """The sample of the family."""
    return FAMILIES[family][1](seed)
