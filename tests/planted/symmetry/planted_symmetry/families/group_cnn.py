"""A group convolutional network: lifting to C(4), group convolutions, invariant scores and a covariant map."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from assay import symmetry as sym
from planted_symmetry.plant import Family

CHANNELS, SIZE = 3, 7


class Lift(nn.Module):
    """Image [b, 1, h, w] -> one map per orientation [b, c, 4, h, w]: the kernel is turned, not the image."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(CHANNELS, 1, 3, 3))
        self.bias = nn.Parameter(torch.empty(CHANNELS))

    def forward(self, x: Tensor) -> Tensor:
        maps = [F.conv2d(x, torch.rot90(self.weight, k, (-2, -1)), self.bias, padding=1) for k in range(4)]
        return torch.stack(maps, dim=2)


class GroupConv(nn.Module):
    """[b, c, 4, h, w] -> [b, c, 4, h, w]: kernels over positions and relative orientations."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(CHANNELS, CHANNELS, 4, 3, 3))
        self.bias = nn.Parameter(torch.empty(CHANNELS))

    def kernel(self, k: int) -> Tensor:
        """The kernel that makes orientation k: turned by k and with its orientations moved on by k."""
        return torch.rot90(self.weight.roll(k, dims=2), k, (-2, -1)).flatten(1, 2)

    def forward(self, f: Tensor) -> Tensor:
        flat = f.flatten(1, 2)
        return torch.stack([F.conv2d(flat, self.kernel(k), self.bias, padding=1) for k in range(4)], dim=2)


class MapNorm(nn.Module):
    """Divides by the root mean square over orientations and places."""

    def forward(self, f: Tensor) -> Tensor:
        return f / (0.1 + f.square().mean((2, 3, 4), keepdim=True)).sqrt()


class Block(nn.Module):
    """Convolution, nonlinearity, norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act, self.norm = GroupConv(), nn.SiLU(), MapNorm()

    def forward(self, f: Tensor) -> Tensor:
        return f + self.norm(self.act(self.conv(f)))


class PoolOrientations(nn.Module):
    """The mean over orientations."""

    def forward(self, f: Tensor) -> Tensor:
        return f.mean(2)


class GroupCnn(nn.Module):
    """Image -> class scores and a map of the same size."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = Lift()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.pool, self.head = PoolOrientations(), nn.Linear(CHANNELS, 5)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        f = self.lift(x)
        for block in self.blocks:
            f = block(f)
        maps = self.pool(f)
        return {"scores": self.head(maps.mean((-2, -1))), "map": maps}


def sample(n: int, generator: torch.Generator) -> Tensor:
    """White-noise images of odd size."""
    return torch.randn(n, 1, SIZE, SIZE, generator=generator)


GROUP_CNN = Family(
    "group CNN",
    GroupCnn,
    sample,
    sym.Symmetry(
        sym.C(4), inputs=sym.image(-2, -1), outputs={"scores": sym.invariant(), "map": sym.image(-2, -1)}
    ),
)
