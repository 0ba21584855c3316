"""Defects of group convolutions: orientations treated differently, places told apart, edges."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from planted_symmetry.families.group_cnn import CHANNELS, SIZE, GroupConv
from planted_symmetry.plant import Operator, leak, put

GAIN, BIAS, TABLE = (1, 1, 4, 1, 1), (CHANNELS, 4, 1, 1), (SIZE, SIZE)
ADDED, DIFFER, EDGE = ("Added constant",), ("Orientations or places differ",), ("Padding",)


class OneKernelOff(GroupConv):
    """A group convolution whose second orientation uses a kernel that is not the turned first one."""

    def __init__(self, healthy: GroupConv, magnitude: float, generator: torch.Generator) -> None:
        super().__init__()
        self.weight, self.bias = healthy.weight, healthy.bias
        noise = torch.randn(CHANNELS, 4 * CHANNELS, 3, 3, generator=generator)
        self.register_buffer("noise", magnitude * noise * healthy.weight.detach().std())

    def kernel(self, k: int) -> Tensor:
        return super().kernel(k) + self.noise if k == 1 else super().kernel(k)


class NotTurned(GroupConv):
    """A group convolution that forgets to move the orientations along with the kernel."""

    def __init__(self, healthy: GroupConv) -> None:
        super().__init__()
        self.weight, self.bias = healthy.weight, healthy.bias

    def kernel(self, k: int) -> Tensor:
        return torch.rot90(self.weight, k, (-2, -1)).flatten(1, 2)


def one_kernel_off(model: nn.Module, depth: int, magnitude: float, generator: torch.Generator) -> str:
    place = f"blocks.{depth}.conv"
    put(model, place, OneKernelOff(model.get_submodule(place), magnitude, generator))
    return place


def not_turned(model: nn.Module, depth: int, magnitude: float, generator: torch.Generator) -> str:
    place = f"blocks.{depth}.conv"
    put(model, place, NotTurned(model.get_submodule(place)))
    return place


def ordinary_convolution(model: nn.Module, depth: int, magnitude: float, generator: torch.Generator) -> str:
    """A convolution over pixels that knows nothing of orientations, applied to each of them."""
    place = f"blocks.{depth}.act"
    weight = magnitude * torch.randn(1, 1, 3, 3, generator=generator) / 3
    put(model, place, nn.Sequential(model.get_submodule(place), PixelConvolution(weight)))
    return f"{place}.1"


class PixelConvolution(nn.Module):
    """f plus the same ordinary convolution of every channel and orientation."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, f: Tensor) -> Tensor:
        flat = f.reshape(-1, 1, *f.shape[-2:])
        return f + nn.functional.conv2d(flat, self.weight, padding=1).reshape(f.shape)


def left_edge(f: Tensor) -> Tensor:
    """Minus the leftmost column: padding on one side only."""
    edge = torch.zeros_like(f)
    edge[..., 0] = -f[..., 0]
    return edge


IMAGES = [
    Operator("one kernel off", "group CNN", one_kernel_off, DIFFER),
    Operator("orientations not moved", "group CNN", not_turned, DIFFER, magnitudes=(1.0,)),
    Operator("ordinary convolution", "group CNN", ordinary_convolution, DIFFER),
    Operator("bias per orientation", "group CNN",
             leak("blocks.{depth}.conv", lambda f, table, *_: table, table=BIAS), ADDED),
    Operator("gain per orientation", "group CNN",
             leak("blocks.{depth}.norm", lambda f, table, *_: f * table, table=GAIN), DIFFER),
    Operator("coordinate channel", "group CNN",
             leak("blocks.{depth}.act", lambda f, *_: torch.linspace(-1, 1, f.shape[-1]).to(f).expand_as(f)), ADDED),
    Operator("table of pixels", "group CNN",
             leak("blocks.{depth}.norm", lambda f, table, *_: table.expand_as(f), table=TABLE), ADDED),
    Operator("shift by one pixel", "group CNN", leak("blocks.{depth}.act", lambda f, *_: f.roll(1, dims=-1)), DIFFER),
    Operator("mean over rows only", "group CNN",
             leak("blocks.{depth}.norm", lambda f, *_: f.mean(-1, keepdim=True).expand_as(f)), DIFFER),
    Operator("edge on one side", "group CNN", leak("blocks.{depth}.conv", lambda f, *_: left_edge(f)), EDGE),
]
