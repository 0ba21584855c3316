"""Defects of set networks: anything that reads the place of an element in the list."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from planted_symmetry.families.sets import CHANNELS, ELEMENTS, Attend
from planted_symmetry.plant import Operator, leak, put

INDEX = ("Index leak",)
PLACES = ("Index leak", "Linear layer across places")


class CausalAttend(Attend):
    """Attention in which later elements are seen less: a causal mask left in an encoder."""

    def __init__(self, healthy: Attend, magnitude: float) -> None:
        super().__init__()
        self.load_state_dict(healthy.state_dict())
        self.magnitude = magnitude

    def weights(self, h: Tensor) -> Tensor:
        later = torch.ones(h.shape[1], h.shape[1], dtype=h.dtype, device=h.device).triu(1)
        return super().weights(h) - self.magnitude * later


def causal_mask(model: nn.Module, depth: int, magnitude: float, generator: torch.Generator) -> str:
    place = f"blocks.{depth}.attend"
    put(model, place, CausalAttend(model.get_submodule(place), magnitude))
    return place


def across(h: Tensor, table: Tensor) -> Tensor:
    """A linear layer over the elements."""
    return torch.einsum("mn,bnc->bmc", table, h) / ELEMENTS


def order_defects(family: str, slot: str, pool: str) -> list[Operator]:
    """The defects that fit any network with per-element features at ``slot`` and a pooling at ``pool``."""
    return [
        Operator("table of places", family, leak(slot, lambda h, table, *_: table, table=(ELEMENTS, CHANNELS)), INDEX),
        Operator("weight per place", family, leak(slot, lambda h, table, *_: h * table, table=(ELEMENTS, 1)), INDEX),
        Operator("linear across places", family, leak(slot, lambda h, table, *_: across(h, table),
                 table=(ELEMENTS, ELEMENTS)), PLACES),
        Operator("cumulative sum", family, leak(slot, lambda h, *_: h.cumsum(1) / ELEMENTS), INDEX),
        Operator("next in the list", family, leak(slot, lambda h, *_: h.roll(1, dims=1)), INDEX),
        Operator("first as summary", family, leak(slot, lambda h, *_: h[:, :1].expand_as(h)), INDEX),
        Operator("sorted and not put back", family, leak(slot, lambda h, *_: h.sort(dim=1).values), INDEX),
        Operator("last element pooled twice", family, leak(pool, lambda m, h: h[:, -1]), INDEX),
        Operator("pool misses one", family, leak(pool, lambda m, h: -h[:, 0] / ELEMENTS), INDEX),
    ]


ORDERS = [
    *order_defects("DeepSets", "blocks.{depth}.each", "blocks.{depth}.pool"),
    *order_defects("attention", "blocks.{depth}.each", "blocks.{depth}.pool"),
    Operator("causal mask", "attention", causal_mask, INDEX),
]
