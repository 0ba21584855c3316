"""Defects of graph networks in space: fixed directions, absolute positions, mirror images, the order of nodes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from planted_symmetry.families.egnn import CHANNELS, POINTS
from planted_symmetry.plant import Operator, instead, leak, put

DIRECTION, POSITION, PARITY, INDEX = "A fixed direction", "Absolute position", "Parity", "Index leak"


def vector_bias(model: nn.Module, depth: int, magnitude: float, generator: torch.Generator) -> str:
    """The channel mixing of vectors gets the bias that ``nn.Linear`` has by default."""
    place = f"blocks.{depth}.mix"
    healthy = model.get_submodule(place)
    mix = nn.Linear(CHANNELS, CHANNELS)
    with torch.no_grad():
        mix.weight.copy_(healthy.weight)
        mix.bias.normal_(generator=generator).mul_(magnitude)
    put(model, place, mix)
    return place


def cross(v: Tensor) -> Tensor:
    """Cross products of neighbouring channels: pseudovectors."""
    return torch.linalg.cross(v, v.roll(1, dims=-1), dim=-2)


def triple(v: Tensor) -> Tensor:
    """Triple products of channels: numbers that change sign in a mirror."""
    return (cross(v) * v.roll(2, dims=-1)).sum(-2)


def clipped(v: Tensor) -> Tensor:
    """What clipping components at 1 takes away."""
    return v.clamp(-1, 1) - v


def rarely_clipped(v: Tensor) -> Tensor:
    """What clipping takes away at a size that few components reach: a rare defect."""
    return v.clamp(-0.9, 0.9) - v


def rounded(v: Tensor) -> Tensor:
    """The distance to the nearest multiple of 1/4, component by component."""
    return (4 * v).round() / 4 - v


def last_sender(out: Tensor, messages: Tensor) -> Tensor:
    """Minus the message of the last node in the list: a cap on the number of neighbours."""
    return -messages[:, :, -1] / messages.shape[2]


EUCLIDEAN = [
    Operator("vector bias", "EGNN", vector_bias, ("Bias on vectors",)),
    Operator("ReLU on components", "EGNN", instead("blocks.{depth}.gate", lambda _: nn.ReLU()),
             ("Nonlinearity on components",), magnitudes=(1.0,)),
    Operator("LayerNorm on components", "EGNN", instead("blocks.{depth}.norm", lambda _: nn.LayerNorm([3, CHANNELS])),
             ("Normalisation on components",), magnitudes=(1.0,)),
    Operator("abs of components", "EGNN", leak("blocks.{depth}.gate", lambda v, *_: v.abs()), (DIRECTION,)),
    Operator("stretched axis", "EGNN",
             leak("blocks.{depth}.spread", lambda v, *_: v * torch.tensor([1.0, 0, 0]).to(v).view(3, 1)), (DIRECTION,)),
    Operator("height as a feature", "EGNN", leak("blocks.{depth}.update", lambda h, _, __, v: v[..., 2, :]),
             (DIRECTION,)),
    Operator("rounded components", "EGNN", leak("blocks.{depth}.mix", lambda v, *_: rounded(v)), (DIRECTION,)),
    Operator("clipped components", "EGNN", leak("blocks.{depth}.mix", lambda v, *_: clipped(v)), (DIRECTION,)),
    Operator("rarely clipped", "EGNN", leak("blocks.{depth}.norm", lambda v, *_: rarely_clipped(v)), (DIRECTION,)),
    Operator("absolute position", "EGNN", leak("blocks.{depth}.edges", lambda e, pos: 0.1 * pos.unsqueeze(1)),
             (POSITION,)),
    Operator("distance from the origin", "EGNN",
             leak("blocks.{depth}.edges", lambda e, pos: e * torch.tanh(pos.square().sum(-1))[:, None, :, None]),
             (POSITION,)),
    Operator("cross product", "EGNN", leak("blocks.{depth}.gate", lambda v, *_: cross(v)), (PARITY,)),
    Operator("triple product", "EGNN", leak("blocks.{depth}.update", lambda h, _, __, v: triple(v)), (PARITY,)),
    Operator("table of places", "EGNN",
             leak("blocks.{depth}.update", lambda h, table, *_: table, table=(POINTS, CHANNELS)), (INDEX,)),
    Operator("neighbour cap by index", "EGNN", leak("blocks.{depth}.gather", last_sender), (INDEX,)),
    Operator("cumulative sum", "EGNN", leak("blocks.{depth}.gather", lambda m, *_: m.cumsum(1) / POINTS), (INDEX,)),
]
