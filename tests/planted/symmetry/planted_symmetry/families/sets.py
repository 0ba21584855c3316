"""DeepSets and set attention: exact under permutations of the elements of a set."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay import symmetry as sym
from planted_symmetry.plant import Family

ELEMENTS, FEATURES, CHANNELS = 6, 4, 8


class Mean(nn.Module):
    """[b, n, c] -> the mean over the set [b, c]."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(1)


class SetBlock(nn.Module):
    """Every element by itself, plus what the mean of the set says."""

    def __init__(self) -> None:
        super().__init__()
        self.each, self.pool, self.context = nn.Linear(CHANNELS, CHANNELS), Mean(), nn.Linear(CHANNELS, CHANNELS)
        self.act = nn.SiLU()

    def forward(self, h: Tensor) -> Tensor:
        return h + self.act(self.each(h) + self.context(self.pool(h)).unsqueeze(1))


class Attend(nn.Module):
    """Attention of every element to all."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.value, self.out = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS)

    def weights(self, h: Tensor) -> Tensor:
        """Logits [b, n, n]."""
        return self.query(h) @ self.key(h).mT / CHANNELS**0.5

    def forward(self, h: Tensor) -> Tensor:
        return self.out(self.weights(h).softmax(-1) @ self.value(h))


class AttentionBlock(nn.Module):
    """Norm, attention, norm, features."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attend, self.pool = nn.LayerNorm(CHANNELS), Attend(), Mean()
        self.each = nn.Sequential(nn.Linear(CHANNELS, CHANNELS), nn.SiLU(), nn.Linear(CHANNELS, CHANNELS))

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.attend(self.norm(h))
        return h + self.each(h) + self.pool(h).unsqueeze(1)


class SetNetwork(nn.Module):
    """A set [b, n, f] -> a score of the set and one of each element."""

    def __init__(self, block: type[nn.Module]) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES, CHANNELS)
        self.blocks = nn.ModuleList(block() for _ in range(3))
        self.pool, self.head, self.local = Mean(), nn.Linear(CHANNELS, 5), nn.Linear(CHANNELS, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return {"scores": self.head(self.pool(h)), "elements": self.local(h)}


def sample(n: int, generator: torch.Generator) -> Tensor:
    """Random sets."""
    return torch.randn(n, ELEMENTS, FEATURES, generator=generator)


_CLAIM = sym.Symmetry(
    sym.S(), inputs=sym.permuted(1), outputs={"scores": sym.invariant(), "elements": sym.permuted(1)}
)
DEEP_SETS = Family("DeepSets", lambda: SetNetwork(SetBlock), sample, _CLAIM)
ATTENTION = Family("attention", lambda: SetNetwork(AttentionBlock), sample, _CLAIM)
