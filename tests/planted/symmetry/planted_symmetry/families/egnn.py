"""A graph network with invariant node features and vector neurons, exact under E(3) x S(n)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay import symmetry as sym
from planted_symmetry.plant import Family

POINTS, CHANNELS, KINDS = 5, 8, 4


class Edges(nn.Module):
    """Positions [b, n, 3] -> differences [b, n, n, 3], from j to i."""

    def forward(self, pos: Tensor) -> Tensor:
        return pos.unsqueeze(2) - pos.unsqueeze(1)


class Message(nn.Module):
    """Features of both ends and the distance -> messages [b, n, n, c]."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2 * CHANNELS + 1, CHANNELS), nn.SiLU(), nn.Linear(CHANNELS, CHANNELS))

    def forward(self, h: Tensor, edges: Tensor) -> Tensor:
        square = edges.square().sum(-1, keepdim=True)
        pair = h.unsqueeze(2).expand(-1, -1, h.shape[1], -1)
        return self.mlp(torch.cat([pair, pair.transpose(1, 2), square / (1 + square)], dim=-1))


class Sum(nn.Module):
    """Messages [b, n, n, c] -> their mean over senders [b, n, c]."""

    def forward(self, messages: Tensor) -> Tensor:
        return messages.mean(2)


class Spread(nn.Module):
    """Messages times directions, over senders -> vectors [b, n, 3, c]."""

    def forward(self, messages: Tensor, edges: Tensor) -> Tensor:
        bounded = edges / (1 + edges.square().sum(-1, keepdim=True))
        return (bounded.unsqueeze(-1) * messages.unsqueeze(-2)).sum(2)


class Gate(nn.Module):
    """Vectors times a function of their length."""

    def forward(self, v: Tensor) -> Tensor:
        return v * torch.sigmoid(v.square().sum(-2, keepdim=True))


class VectorNorm(nn.Module):
    """Vectors over the root mean square length of the channels."""

    def forward(self, v: Tensor) -> Tensor:
        return v / (0.1 + v.square().sum(-2, keepdim=True).mean(-1, keepdim=True)).sqrt()


class Update(nn.Module):
    """Features, aggregated messages and lengths of vectors -> new features."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(3 * CHANNELS, CHANNELS), nn.SiLU(), nn.Linear(CHANNELS, CHANNELS))

    def forward(self, h: Tensor, gathered: Tensor, v: Tensor) -> Tensor:
        return h + self.mlp(torch.cat([h, gathered, v.square().sum(-2)], dim=-1))


class Block(nn.Module):
    """One round of messages."""

    def __init__(self) -> None:
        super().__init__()
        self.edges, self.message, self.gather = Edges(), Message(), Sum()
        self.spread, self.mix = Spread(), nn.Linear(CHANNELS, CHANNELS, bias=False)
        self.gate, self.norm, self.update = Gate(), VectorNorm(), Update()

    def forward(self, h: Tensor, v: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        edges = self.edges(pos)
        messages = self.message(h, edges)
        v = self.norm(v + self.gate(self.mix(v + self.spread(messages, edges))))
        return self.update(h, self.gather(messages), v), v


class Egnn(nn.Module):
    """Positions and kinds of nodes -> an energy and a vector for each node."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(KINDS, CHANNELS)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.energy, self.vector = nn.Linear(CHANNELS, 1), nn.Linear(CHANNELS, 1, bias=False)

    def forward(self, pos: Tensor, kind: Tensor) -> dict[str, Tensor]:
        h = self.embed(kind)
        v = torch.zeros(*pos.shape, CHANNELS, dtype=pos.dtype, device=pos.device)
        for block in self.blocks:
            h, v = block(h, v, pos)
        return {"energy": self.energy(h).sum((1, 2)), "vectors": self.vector(v).squeeze(-1)}


def sample(n: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Random clouds of points."""
    return {
        "pos": torch.randn(n, POINTS, 3, generator=generator),
        "kind": torch.randn(n, POINTS, KINDS, generator=generator),
    }


EGNN = Family(
    "EGNN",
    Egnn,
    sample,
    sym.Symmetry(
        sym.E(3) * sym.S(),
        inputs={"pos": sym.point() @ sym.permuted(1), "kind": sym.permuted(1)},
        outputs={"energy": sym.invariant(), "vectors": sym.vector() @ sym.permuted(1)},
    ),
)
