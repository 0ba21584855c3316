"""A network of e3nn layers on one set of irreps, exact under O(3)."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from assay import symmetry as sym
from planted_symmetry.plant import Family

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from e3nn import o3
    from e3nn.nn import Gate

INPUT, HIDDEN = "2x0e+2x1o", "4x0e+2x1o+2x1e+1x2e"
SCALARS, ODD, EVEN, SECOND = slice(0, 4), slice(4, 10), slice(10, 16), slice(16, 21)
"""Where the parts of HIDDEN are: 4x0e, 2x1o, 2x1e, 1x2e."""


class Block(nn.Module):
    """Linear, product of the features with themselves, gate, with a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate("4x0e", [torch.nn.functional.silu], "5x0e", [torch.sigmoid], "2x1o+2x1e+1x2e")
        self.mix = o3.Linear(HIDDEN, HIDDEN)
        self.product = o3.FullyConnectedTensorProduct(HIDDEN, HIDDEN, self.gate.irreps_in)

    def forward(self, h: Tensor) -> Tensor:
        m = self.mix(h)
        return h + self.gate(self.product(m, m))


class Steerable(nn.Module):
    """Irreps -> a scalar, two vectors and a traceless symmetric tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = o3.Linear(INPUT, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = o3.Linear(HIDDEN, "1x0e+2x1o+1x2e")

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def build() -> nn.Module:
    """The network in float64: e3nn rounds its coupling coefficients to the default dtype when a layer is made.

    Made in float32 and cast up, the same network is off by 1e-9: float-limited, not exact.
    """
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        return Steerable()
    finally:
        torch.set_default_dtype(before)


def sample(n: int, generator: torch.Generator) -> Tensor:
    """Random features."""
    return torch.randn(n, 8, generator=generator, dtype=torch.float64)


STEERABLE = Family(
    "e3nn",
    build,
    sample,
    sym.Symmetry(sym.O(3), inputs=sym.irreps(INPUT), outputs=sym.irreps("1x0e+2x1o+1x2e")),
)
