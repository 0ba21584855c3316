"""Defects that no output shows: parameters that are still zero, and backward passes that are wrong."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from planted_symmetry.families.egnn import CHANNELS, POINTS
from planted_symmetry.families.sets import CHANNELS as WIDTH
from planted_symmetry.families.sets import ELEMENTS
from planted_symmetry.operators.euclidean import vector_bias
from planted_symmetry.operators.images import BIAS, TABLE
from planted_symmetry.operators.irreducible import ODD, only
from planted_symmetry.plant import Operator, asleep, leak, put

LATENT = ("Latent: training will break it",)
BACKWARD = ("The backward pass breaks the symmetry",)
NOT_DERIVATIVE = ("Gradient is not the derivative",)
ONCE = (1.0,)


def sleeping_bias(model: nn.Module, depth: int, magnitude: float, generator: torch.Generator) -> str:
    """A bias on vectors that is zero: exact at initialisation, broken after the first step of training."""
    place = vector_bias(model, depth, 0.0, generator)
    return f"{place}.bias"


class Scaled(torch.autograd.Function):
    """The identity with half the gradient: as symmetric as before, and not the derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 0.5 * grad


class Crooked(torch.autograd.Function):
    """The identity with a gradient that loses a slice of the axis ``axis``: the backward pass alone breaks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: int) -> Tensor:
        ctx.axis = axis
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        keep = torch.ones_like(grad)
        keep.select(ctx.axis, 0).fill_(0)
        return grad * keep, None


class Through(nn.Module):
    """A healthy module followed by a function whose backward is wrong."""

    def __init__(self, healthy: nn.Module, function: type[torch.autograd.Function], *options: int) -> None:
        super().__init__()
        self.healthy, self.function, self.options = healthy, function, options

    def forward(self, *args: Tensor) -> Tensor:
        return self.function.apply(self.healthy(*args), *self.options)


def wrong_backward(slot: str, function: type[torch.autograd.Function], *options: int) -> Any:
    """An operator's ``plant``."""

    def plant(model: nn.Module, depth: int, magnitude: float, generator: torch.Generator) -> str:
        place = slot.format(depth=depth)
        put(model, place, Through(model.get_submodule(place), function, *options))
        return place

    return plant


def hidden(name: str, family: str, kind: str, plant: Any, causes: tuple[str, ...]) -> Operator:
    """An operator of one magnitude at the first two depths."""
    return Operator(name, family, plant, causes, magnitudes=ONCE, depths=(0, 1), kind=kind)


HIDDEN = [
    hidden("sleeping vector bias", "EGNN", "latent", sleeping_bias, LATENT),
    hidden("sleeping table of places", "EGNN", "latent",
           asleep("blocks.{depth}.update", lambda h, table, *_: table, (POINTS, CHANNELS)), LATENT),
    hidden("sleeping bias per orientation", "group CNN", "latent",
           asleep("blocks.{depth}.conv", lambda f, table, *_: table, BIAS), LATENT),
    hidden("sleeping table of pixels", "group CNN", "latent",
           asleep("blocks.{depth}.norm", lambda f, table, *_: table.expand_as(f), TABLE), LATENT),
    hidden("sleeping table of places", "DeepSets", "latent",
           asleep("blocks.{depth}.each", lambda h, table, *_: table, (ELEMENTS, WIDTH)), LATENT),
    hidden("sleeping table of places", "attention", "latent",
           asleep("blocks.{depth}.each", lambda h, table, *_: table, (ELEMENTS, WIDTH)), LATENT),
    hidden("sleeping bias on l = 1", "e3nn", "latent",
           asleep("blocks.{depth}.mix", lambda h, t, *_: only(h, ODD, t.expand(*h.shape[:-1], 6)), (6,)), LATENT),
    hidden("component lost in backward", "EGNN", "backward", wrong_backward("blocks.{depth}.mix", Crooked, 2),
           BACKWARD),
    hidden("row lost in backward", "group CNN", "backward", wrong_backward("blocks.{depth}.conv", Crooked, 3),
           BACKWARD),
    hidden("element lost in backward", "DeepSets", "backward", wrong_backward("blocks.{depth}.each", Crooked, 1),
           BACKWARD),
    hidden("detached element", "attention", "backward",
           leak("blocks.{depth}.each", lambda h, *_: h.detach() * first(h) - h * first(h)), BACKWARD),
    hidden("half the gradient", "EGNN", "backward", wrong_backward("blocks.{depth}.edges", Scaled), NOT_DERIVATIVE),
    hidden("half the gradient", "group CNN", "backward", wrong_backward("blocks.{depth}.conv", Scaled), NOT_DERIVATIVE),
    hidden("half the gradient", "attention", "backward", wrong_backward("blocks.{depth}.each", Scaled), NOT_DERIVATIVE),
    hidden("half the gradient", "e3nn", "backward", wrong_backward("blocks.{depth}.mix", Scaled), NOT_DERIVATIVE),
]


def first(h: Tensor) -> Tensor:
    """1 at the first element of the set, 0 elsewhere."""
    mark = torch.zeros_like(h)
    mark[:, 0] = 1
    return mark
