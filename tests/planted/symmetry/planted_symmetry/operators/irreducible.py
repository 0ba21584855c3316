"""Defects of networks of irreducible representations: components, parities and conventions mixed up."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from planted_symmetry.plant import Operator, instead, leak

DEPTHS = (0, 1)
ODD, EVEN, SECOND, SIZE = slice(4, 10), slice(10, 16), slice(16, 21), 21
DIRECTION, PARITY = ("A fixed direction",), ("Parity",)


def only(h: Tensor, part: slice, value: Tensor) -> Tensor:
    """``value`` in one part of the features, zero elsewhere."""
    out = torch.zeros_like(h)
    out[..., part] = value
    return out


def turned_about(h: Tensor) -> Tensor:
    """Components of the vectors in another order: (y, z, x) of the library against (x, y, z) of the caller."""
    return only(h, ODD, h[..., ODD].unflatten(-1, (2, 3)).roll(1, dims=-1).flatten(-2))


IRREDUCIBLE = [
    Operator("bias on l = 1", "e3nn",
             leak("blocks.{depth}.mix", lambda h, table, *_: only(h, ODD, table.expand(*h.shape[:-1], 6)), table=(6,)),
             ("Bias on vectors", *DIRECTION), depths=DEPTHS),
    Operator("tanh of components", "e3nn", leak("blocks.{depth}.mix", lambda h, *_: h.tanh()), DIRECTION,
             depths=DEPTHS),
    Operator("LayerNorm on irreps", "e3nn",
             instead("blocks.{depth}.mix", lambda m: nn.Sequential(m, nn.LayerNorm(SIZE, dtype=torch.float64)),
                     inside=".1"),
             ("Normalisation on components",), magnitudes=(1.0,), depths=DEPTHS),
    Operator("one component of l = 2", "e3nn",
             leak("blocks.{depth}.gate", lambda h, *_: only(h, slice(16, 17), h[..., 16:17])), DIRECTION,
             depths=DEPTHS),
    Operator("parities mixed", "e3nn", leak("blocks.{depth}.mix", lambda h, *_: only(h, ODD, h[..., EVEN])), PARITY,
             depths=DEPTHS),
    Operator("order of components", "e3nn", leak("blocks.{depth}.mix", lambda h, *_: turned_about(h)), DIRECTION,
             depths=DEPTHS),
    Operator("component as a scalar", "e3nn",
             leak("blocks.{depth}.gate", lambda h, *_: only(h, slice(0, 1), h[..., 4:5])), DIRECTION, depths=DEPTHS),
]
