"""ViT-Mini: a small pre-LayerNorm vision transformer with a class token and a terminal LayerNorm.

    h_0 = [cls, patches] + positions,   h += attention(LN(h)),   h += mlp(LN(h)),   logits = head(LN(h_L)[cls])
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.networks.feedforward.default_init import materialise
from assay.seeding import torch_generator

TOKEN_SCALE = 0.02
"""Standard deviation of the class token and the positions at the start."""


class ViTBlock(nn.Module):
    """Self-attention and a perceptron, each added to the stream of tokens (batch, tokens, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.w1 = nn.Linear(width, 4 * width)
        self.w2 = nn.Linear(4 * width, width)

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.attend(self.ln1(h))
        written: Tensor = self.w2(nn.functional.gelu(self.w1(self.ln2(h))))
        return h + written

    def attend(self, h: Tensor) -> Tensor:
        """Multi-head self-attention; (batch, tokens, width) -> the same."""
        batch, tokens, width = h.shape
        split = self.qkv(h).view(batch, tokens, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each (batch, heads, tokens, width / heads)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.proj(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return out


class ViTMini(nn.Module):
    """A vision transformer of ``depth`` blocks on square images (batch, channels, size, size).

    >>> ViTMini(size=8, patch=4, width=16, depth=1, heads=2, seed=0)(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        size: int = 32,
        patch: int = 4,
        channels: int = 3,
        width: int = 128,
        depth: int = 4,
        heads: int = 4,
        classes: int = 10,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if size % patch:
            raise expected("a picture size divisible by the patch size", given=f"size={size}, patch={patch}")
        if width % heads:
            raise expected("a width divisible by the number of heads", given=f"width={width}, heads={heads}")
        self.image = (channels, size, size)
        with torch.device("meta"):
            self.patches = nn.Conv2d(channels, width, patch, stride=patch)
            self.cls = nn.Parameter(torch.empty(1, 1, width))
            self.positions = nn.Parameter(torch.empty(1, 1 + (size // patch) ** 2, width))
            self.blocks = nn.ModuleList(ViTBlock(width, heads) for _ in range(depth))
            self.out_ln = nn.LayerNorm(width)
            self.out_head = nn.Linear(width, classes)
        generator = torch_generator(seed, "init", "vit-mini")
        materialise(self, generator)
        with torch.no_grad():
            self.cls.normal_(0, TOKEN_SCALE, generator=generator)
            self.positions.normal_(0, TOKEN_SCALE, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or tuple(x.shape[1:]) != self.image:
            raise expected(f"images of shape (batch, {', '.join(map(str, self.image))})", given=tuple(x.shape))
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.cls.expand(len(x), -1, -1), tokens], dim=1) + self.positions
        for block in self.blocks:
            h = block(h)
        logits: Tensor = self.out_head(self.out_ln(h)[:, 0])
        return logits
