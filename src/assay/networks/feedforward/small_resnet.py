"""SmallResNet: a three-stage convolutional residual net with BatchNorm and no LayerNorm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.networks.feedforward.default_init import materialise
from assay.seeding import torch_generator


class ConvBlock(nn.Module):
    """Two 3 x 3 convolutions added to the stream; with stride 2 the stream is halved and projected on the way."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.skip = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        written = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(h)))))
        return torch.relu(self.skip(h) + written)


class SmallResNet(nn.Module):
    """A residual net with ``blocks_per_stage`` blocks at each of the widths w, 2w and 4w.

    >>> SmallResNet(width=4, blocks_per_stage=1, seed=0).eval()(torch.zeros(2, 3, 16, 16)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        channels: int = 3,
        width: int = 16,
        blocks_per_stage: int = 2,
        classes: int = 10,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if blocks_per_stage < 1:
            raise expected("blocks_per_stage >= 1", given=blocks_per_stage)
        self.channels = channels
        with torch.device("meta"):
            self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
            self.stem_bn = nn.BatchNorm2d(width)
            self.blocks = nn.ModuleList(
                ConvBlock(
                    width * 2 ** max(stage - (index == 0), 0),
                    width * 2**stage,
                    stride=2 if stage > 0 and index == 0 else 1,
                )
                for stage in range(3)
                for index in range(blocks_per_stage)
            )
            self.out_head = nn.Linear(4 * width, classes)
        materialise(self, torch_generator(seed, "init", "small-resnet"))

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != self.channels:
            raise expected(f"images of shape (batch, {self.channels}, height, width)", given=tuple(x.shape))
        h = torch.relu(self.stem_bn(self.stem(x)))
        for block in self.blocks:
            h = block(h)
        logits: Tensor = self.out_head(h.mean(dim=(2, 3)))
        return logits
