"""Small models of many kinds, shared by the credit tests."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from assay.networks.feedforward.res_mlp import ResMLP
from assay.networks.feedforward.small_resnet import SmallResNet
from assay.networks.feedforward.vit_mini import ViTMini


class Transformer(nn.Module):
    """Tokens through nn.TransformerEncoder, mean pooled."""

    def __init__(self, *, norm_first: bool = True, batch_first: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=dropout, norm_first=norm_first, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        if not self.batch_first:
            return self.head(self.encoder(h.transpose(0, 1)).mean(0))
        return self.head(self.encoder(h).mean(1))


class OuterSkip(nn.Module):
    """The caller adds the skip: h = h + block(h)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 16)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16)) for _ in range(3))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for layer in self.layers:
            h = h + layer(h)
        return self.head(self.norm(h))


class OwnProducts(nn.Module):
    """A user's module: products with parameters, a tied weight, an embedding and an additive table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.places = nn.Parameter(torch.randn(5, 8) * 0.1)
        self.left = nn.Parameter(torch.randn(8, 8) * 0.3)
        self.right = nn.Parameter(torch.randn(8, 8) * 0.3)
        self.mixed = nn.Parameter(torch.randn(8, 8) * 0.3)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.table(tokens) + self.places
        h = torch.relu(h @ self.left)
        h = torch.relu(torch.matmul(h, self.right.T))
        h = torch.einsum("btd,de->bte", h, self.mixed)
        return nn.functional.linear(h.mean(1), self.table.weight)


def plain_mlp() -> nn.Module:
    sizes = (6, 16, 16, 16)
    hidden = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(16, 4))


def batch(kind: str, size: int = 5) -> tuple[Tensor, Tensor]:
    """An input and targets for the subject called ``kind``."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(4, (size,), generator=generator)
    if kind.startswith("transformer"):
        return torch.randn(size, 7, 6, generator=generator), y
    if kind == "products":
        return torch.randint(11, (size, 5), generator=generator), y
    if kind in ("vit", "resnet"):
        return torch.randn(size, 3, 8, 8, generator=generator), y
    return torch.randn(size, 12 if kind == "resmlp" else 6, generator=generator), y


SUBJECTS = {
    "resmlp": lambda: ResMLP(12, width=8, depth=3, classes=4),
    "vit": lambda: ViTMini(size=8, patch=4, width=16, depth=2, heads=2, classes=4),
    "resnet": lambda: SmallResNet(width=4, classes=4),
    "transformer": Transformer,
    "transformer post-norm": lambda: Transformer(norm_first=False),
    "transformer time-first": lambda: Transformer(batch_first=False),
    "outer skip": OuterSkip,
    "plain mlp": plain_mlp,
}


def gradients(model: nn.Module) -> dict[str, Tensor]:
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def backprop(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    nn.functional.cross_entropy(model(x), y).backward()
    return gradients(model)


def cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a.flatten().double(), b.flatten().double(), dim=0))
