"""ResMLP: the pre-LayerNorm residual perceptron on which the feedback-alignment protocol was published.

    h_0 = embed(x),    h_{l+1} = h_l + w2(GELU(w1(LN(h_l)))),    logits = head(out_ln(h_L))

The write matrix w2 starts at N(0, 0.01^2) with zero bias, so a fresh block writes about a tenth of what is in
the stream (|f| / |h| close to 0.096 at width 256).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.networks.feedforward.default_init import materialise
from assay.seeding import torch_generator

WRITE_SCALE = 0.01
"""Standard deviation of w2 at the start."""


class ResidualBlock(nn.Module):
    """One block: the stream plus what the block writes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(width)
        self.w1 = nn.Linear(width, width)
        self.w2 = nn.Linear(width, width)

    def write(self, h: Tensor) -> Tensor:
        """f(h), the part the block adds to the stream; (batch, width) -> (batch, width)."""
        written: Tensor = self.w2(nn.functional.gelu(self.w1(self.ln(h))))
        return written

    def forward(self, h: Tensor) -> Tensor:
        return h + self.write(h)


class ResMLP(nn.Module):
    """A residual perceptron with ``depth`` pre-LayerNorm blocks; inputs of any shape are flattened.

    ``terminal_norm=False`` leaves out the LayerNorm before the head: the logits then feel the scale of the stream.

    >>> model = ResMLP(12, width=8, depth=2, classes=3, seed=0)
    >>> model(torch.zeros(5, 3, 2, 2)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        inputs: int = 3072,
        *,
        width: int = 256,
        depth: int = 4,
        classes: int = 10,
        terminal_norm: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, value in (("inputs", inputs), ("width", width), ("depth", depth), ("classes", classes)):
            if value < 1:
                raise expected(f"{name} >= 1", given=f"{name}={value}")
        self.inputs = inputs
        with torch.device("meta"):
            self.embed = nn.Linear(inputs, width)
            self.blocks = nn.ModuleList(ResidualBlock(width) for _ in range(depth))
            self.out_ln = nn.LayerNorm(width) if terminal_norm else nn.Identity()
            self.out_head = nn.Linear(width, classes)
        generator = torch_generator(seed, "init", "res-mlp")
        materialise(self, generator)
        with torch.no_grad():
            for block in self.blocks:
                assert isinstance(block, ResidualBlock)
                block.w2.weight.normal_(0, WRITE_SCALE, generator=generator)
                block.w2.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        if flat.shape[1] != self.inputs:
            raise expected(f"inputs with {self.inputs} features", given=f"x of shape {tuple(x.shape)}",
                           do="build ResMLP with inputs= the number of features of one sample")
        h = self.embed(flat)
        for block in self.blocks:
            h = block(h)
        logits: Tensor = self.out_head(self.out_ln(h))
        return logits
