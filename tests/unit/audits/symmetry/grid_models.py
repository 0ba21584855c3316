"""Small models on grids and lattices that hold their symmetry exactly, each with a defect that can be planted."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.audits.symmetry.groups.matrices import unitary
from assay.seeding import torch_generator


def randn(*shape: int, dtype: torch.dtype = torch.float32, name: str = "x") -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch_generator(0, name, *shape))


class SymmetricConvolutions(nn.Module):
    """Two convolutions with kernels averaged over D(4)."""

    def __init__(self, *, padding: str = "circular", averaged: bool = True) -> None:
        super().__init__()
        self.padding, self.averaged = padding, averaged
        self.first, self.second = nn.Parameter(randn(4, 1, 3, 3)), nn.Parameter(randn(1, 4, 3, 3))

    def kernel(self, weight: Tensor) -> Tensor:
        turned = [torch.rot90(weight, k, (-2, -1)) for k in range(4)]
        return sum([*turned, *(one.flip(-1) for one in turned)]) / 8 if self.averaged else weight

    def padded(self, x: Tensor) -> Tensor:
        return functional.pad(x, (1, 1, 1, 1), mode=self.padding)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(functional.conv2d(self.padded(x), self.kernel(self.first)))
        return functional.conv2d(self.padded(hidden), self.kernel(self.second))


class VoxelNet(nn.Module):
    """A kernel that depends on the distance from its centre only, then a mean over the volume."""

    def __init__(self, *, plain: bool = False) -> None:
        super().__init__()
        self.profile, self.head = nn.Parameter(randn(4, 1, 4)), nn.Linear(4, 2)
        self.between = nn.Conv3d(4, 4, 3, padding=1) if plain else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(3, device=x.device) - 1
        distance = torch.stack(torch.meshgrid(steps, steps, steps, indexing="ij")).abs().sum(0)
        hidden = torch.relu(functional.conv3d(x, self.profile[..., distance], padding=1))
        return self.head(self.between(hidden).mean(dim=(-3, -2, -1)))


class Blur(nn.Module):
    """Round kernels and a mixing of channels; ``plain`` puts an ordinary convolution behind them."""

    def __init__(self, *, plain: bool = False) -> None:
        super().__init__()
        steps = torch.arange(7) - 3
        squared = (steps[:, None] ** 2 + steps[None] ** 2).float()
        kernels = torch.stack([torch.exp(-squared / width) for width in (1.4, 2.6, 4.0)]).unsqueeze(1)
        self.register_buffer("kernels", kernels / kernels.sum(dim=(-2, -1), keepdim=True))
        self.mix = nn.Conv2d(3, 4, 1)
        self.plain = nn.Conv2d(4, 4, 3, padding=1) if plain else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.mix(functional.conv2d(x, self.kernels, padding=3)))
        return self.plain(hidden).square().mean(dim=(-2, -1))


def blobs(count: int, size: int) -> Tensor:
    """Smooth pictures: four Gaussian blobs each."""
    steps = torch.linspace(-1, 1, size)
    grid = torch.stack(torch.meshgrid(steps, steps, indexing="ij"))
    centres = 0.6 * (torch.rand(count, 4, 2, generator=torch_generator(0, "centres")) - 0.5)
    heights = randn(count, 4, name="heights")
    distance = (grid - centres[..., None, None]).square().sum(dim=2)
    return (heights[..., None, None] * torch.exp(-distance / 0.08)).sum(dim=1, keepdim=True)


def links(count: int, size: int) -> Tensor:
    """SU(2) links of a two-dimensional lattice: [count, 2, size, size, 2, 2]."""
    drawn = unitary(count * 2 * size * size, 2, torch_generator(0, "links"), special=True)
    return drawn.reshape(count, 2, size, size, 2, 2).to(torch.complex64)


class Plaquettes(nn.Module):
    """The product of the links around each square: covariant at its first corner."""

    def forward(self, u: Tensor) -> Tensor:
        along, up = u[:, 0], u[:, 1]
        return along @ up.roll(-1, 1) @ along.roll(-1, 2).mH @ up.mH


class GaugeNet(nn.Module):
    """A number per lattice from traces of plaquettes; ``bare`` adds a link that is not closed."""

    def __init__(self, *, bare: bool = False) -> None:
        super().__init__()
        self.plaquettes, self.hidden, self.head = Plaquettes(), nn.Linear(2, 8), nn.Linear(8, 1)
        self.bare = bare

    def forward(self, u: Tensor) -> Tensor:
        trace = self.plaquettes(u).diagonal(dim1=-2, dim2=-1).sum(-1).real
        if self.bare:
            trace = trace + 0.01 * u[:, 0, ..., 0, 0].real
        features = torch.stack([trace, trace * trace.roll(1, 1)], dim=-1)
        return self.head(torch.tanh(self.hidden(features))).mean(dim=(1, 2))
