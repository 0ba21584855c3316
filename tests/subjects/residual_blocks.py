"""Modules a user would write: residual blocks with norms and activations of their own."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PostActivation(nn.Module):
    """relu(x + branch(x)), as in the first ResNet."""

    def __init__(self, channels: int, norm: nn.Module, act: nn.Module) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm, self.act = norm, act
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x + self.second(self.act(self.norm(self.first(x)))))


class PreActivation(nn.Module):
    """x + branch(act(x)): a stream that no activation interrupts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(torch.tanh(self.norm(x)))
