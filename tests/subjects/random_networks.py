"""Random feed-forward networks of every link EnergyNet takes, as Hypothesis draws them: vectors, sequences, images,
volumes and tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import strategies as st
from tests.subjects.residual_blocks import PostActivation, PreActivation
from torch import Tensor, nn

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
AVERAGES = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}
ADAPTIVE = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}
MAXIMA = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
NORMS = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
PADDINGS = {1: nn.ZeroPad1d, 2: nn.ZeroPad2d, 3: nn.ZeroPad3d}
DROPOUTS = {0: nn.Dropout, 1: nn.Dropout1d, 2: nn.Dropout2d, 3: nn.Dropout3d}
SIDES = {0: (5,), 1: (2, 7), 2: (1, 6, 6), 3: (1, 4, 4, 4)}


class Joined(nn.Module):
    """Two branches side by side: a join of several inputs."""

    def __init__(self, left: nn.Module, right: nn.Module) -> None:
        super().__init__()
        self.left, self.right = left, right

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.left(x).tanh(), self.right(x)], 1)


class Added(Joined):
    """Two branches added up: the transpose of the join is the identity."""

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x).tanh() + self.right(x)


class Own(nn.Module):
    """A link nobody has a name for: a product of two maps, smooth and not monotone."""

    def __init__(self, one: nn.Module, other: nn.Module) -> None:
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x: Tensor) -> Tensor:
        return self.one(x) * torch.cos(self.other(x))


def links(dims: int, width: int) -> dict[str, Callable[[], list[nn.Module]]]:
    """Every link over ``width`` channels with ``dims`` axes of space, by name; each keeps the channels."""
    def plain() -> nn.Module:
        return CONVOLUTIONS[dims](width, width, 3, padding=1) if dims else nn.Linear(width, width)

    def half() -> nn.Module:
        return CONVOLUTIONS[dims](width, width // 2, 1) if dims else nn.Linear(width, width // 2)

    found: dict[str, Callable[[], list[nn.Module]]] = {
        "plain": lambda: [plain()],
        "identity": lambda: [nn.Identity(), plain()],
        "dropout": lambda: [DROPOUTS[dims](0.5), plain()],
        "batch norm": lambda: [plain(), NORMS[dims](width)],
        "not monotone": lambda: [nn.GELU(), plain()],
        "join": lambda: [Joined(half(), half())],
        "sum": lambda: [Added(plain(), plain())],
        "own": lambda: [Own(plain(), plain())],
        "group norm": lambda: [nn.GroupNorm(2, width)],
    }
    if dims == 0:
        found |= {"layer norm": lambda: [plain(), nn.LayerNorm(width)],
                  "stream": lambda: [PreActivation(width)],
                  "unflatten": lambda: [nn.Unflatten(1, (2, width // 2)), nn.Flatten(), plain()]}
        return found
    found |= {
        "transposed": lambda: [TRANSPOSED[dims](width, width, 3, padding=1)],
        "average": lambda: [AVERAGES[dims](2, stride=1)],
        "maximum": lambda: [plain(), MAXIMA[dims](2, stride=1)],
        "padding": lambda: [PADDINGS[dims](1), CONVOLUTIONS[dims](width, width, 3)],
        "adaptive": lambda: [ADAPTIVE[dims](3), plain()],
        "upsample": lambda: [nn.Upsample(scale_factor=2), CONVOLUTIONS[dims](width, width, 3, stride=2)],
    }
    if dims == 2:
        found |= {"shuffle": lambda: [nn.Conv2d(width, 4 * width, 1), nn.PixelShuffle(2), nn.AvgPool2d(2)],
                  "residual": lambda: [PostActivation(width, nn.BatchNorm2d(width), nn.Tanh())]}
    return found


def begun(dims: int, width: int) -> tuple[list[nn.Module], tuple[int, ...]]:
    """The first link into units, and the shape of a row of inputs."""
    shape = SIDES[dims]
    return [CONVOLUTIONS[dims](shape[0], width, 3, padding=1) if dims else nn.Linear(5, width), nn.Tanh()], shape


def ended(dims: int, width: int, classes: int = 4) -> list[nn.Module]:
    return [*([ADAPTIVE[dims](1), nn.Flatten()] if dims else []), nn.Linear(width, classes)]


def around(dims: int, name: str, width: int = 4) -> tuple[nn.Sequential, tuple[int, ...]]:
    """A network with two hidden layers of units and the named link between them."""
    first, shape = begun(dims, width)
    # A maximum under signed units may flip between winners for ever: positive ones there.
    unit = nn.Softplus() if name == "maximum" else nn.Tanh()
    return nn.Sequential(*first, *links(dims, width)[name](), unit, *ended(dims, width)), shape


@st.composite
def networks(draw: st.DrawFn) -> tuple[nn.Sequential, tuple[int, ...]]:
    """A network of one to three random links, and the shape of a row of inputs."""
    dims, width = draw(st.integers(0, 3)), 2 * draw(st.integers(1, 3))
    layers, shape = begun(dims, width)
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(links(dims, width))))
        layers += links(dims, width)[name]()
        layers.append(nn.Softplus() if name == "maximum" else draw(st.sampled_from([nn.Tanh, nn.Sigmoid]))())
        if dims and name in ("average", "maximum"):
            layers.append(ADAPTIVE[dims](4))
    return nn.Sequential(*layers, *ended(dims, width)), shape
