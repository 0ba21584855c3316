"""Well-known nets written out small: torchvision's ResNet and ConvNeXt, timm's ViT, Hugging Face's BERT and GPT-2."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """As in torchvision: two convolutions, a projection where the shape changes."""

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride > 1 or inputs != width:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 8))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16))
        self.fc = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer2(self.layer1(x)).mean((2, 3)))


class PlainBetween(nn.Module):
    """Residual blocks that keep their shape, with a plain convolution between the stages."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)
            nn.init.zeros_(self.two.weight)
            nn.init.zeros_(self.two.bias)

        def forward(self, h: Tensor) -> Tensor:
            return h + self.two(torch.relu(self.one(h)))

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1)
        self.first = nn.Sequential(self.Block(8), self.Block(8))
        self.between = nn.Conv2d(8, 16, 3, 2, 1)
        self.second = nn.Sequential(self.Block(16), self.Block(16))
        self.head = nn.Linear(16, 4)
        with torch.no_grad():
            self.between.weight.mul_(5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.between(self.first(self.stem(x)))).mean((2, 3)))


class CNBlock(nn.Module):
    """As in torchvision's ConvNeXt: a scaled branch beside the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, groups=width), Channels(),
                                   nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(),
                                   nn.Linear(2 * width, width), Channels(back=True))
        self.layer_scale = nn.Parameter(torch.ones(width, 1, 1) * 1e-2)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer_scale * self.block(x)


class Channels(nn.Module):
    def __init__(self, back: bool = False) -> None:
        super().__init__()
        self.order = (0, 3, 1, 2) if back else (0, 2, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.order)


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 2, 2), nn.Sequential(CNBlock(8), CNBlock(8)), nn.Conv2d(8, 16, 2, 2),
            nn.Sequential(CNBlock(16), CNBlock(16)))
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))


class TimmStage(nn.Module):
    """As in timm's ConvNeXt: what changes the shape belongs to the stage, in front of its blocks."""

    def __init__(self, inputs: int, width: int, depth: int) -> None:
        super().__init__()
        self.downsample = nn.Identity() if inputs == width else nn.Sequential(nn.Conv2d(inputs, width, 2, 2))
        self.blocks = nn.Sequential(*(CNBlock(width) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(self.downsample(x))


class TimmConvNeXt(nn.Module):
    """Stages of one, two and one blocks: a stage that holds a single block is no block."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 2, 2)
        self.stages = nn.Sequential(TimmStage(8, 8, 1), TimmStage(8, 12, 2), TimmStage(12, 16, 1))
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


class ViTBlock(nn.Module):
    """As in timm: attention and perceptron, each added."""

    class Attention(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            return self.proj(torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, -1) @ v)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = self.Attention(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 8, 4, 4)
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, 8))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 5, 8))
        self.blocks = nn.Sequential(*(ViTBlock(8) for _ in range(3)))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.patch_embed(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.cls_token.expand(len(x), -1, -1), h], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(h))[:, 0])


class BertLayer(nn.Module):
    """As in Hugging Face's BERT: post-norm, the skip is added in a module of its own that gets both."""

    class Output(nn.Module):
        def __init__(self, inputs: int, width: int) -> None:
            super().__init__()
            self.dense, self.LayerNorm = nn.Linear(inputs, width), nn.LayerNorm(width)

        def forward(self, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
            return self.LayerNorm(self.dense(hidden_states) + input_tensor)

    class Attention(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
            self.output = BertLayer.Output(width, width)

        def forward(self, hidden_states: Tensor) -> tuple[Tensor]:
            q, k, v = self.query(hidden_states), self.key(hidden_states), self.value(hidden_states)
            mixed = torch.softmax(q @ k.transpose(1, 2), -1) @ v
            return (self.output(mixed, hidden_states),)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = self.Attention(width)
        self.intermediate = nn.Linear(width, 2 * width)
        self.output = self.Output(2 * width, width)

    def forward(self, hidden_states: Tensor) -> tuple[Tensor]:
        attended = self.attention(hidden_states)[0]
        return (self.output(torch.nn.functional.gelu(self.intermediate(attended)), attended),)


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings, self.LayerNorm = nn.Embedding(11, 8), nn.LayerNorm(8)
        self.layer = nn.ModuleList(BertLayer(8) for _ in range(3))
        self.classifier = nn.Linear(8, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden_states = self.LayerNorm(self.word_embeddings(tokens))
        for layer in self.layer:
            hidden_states = layer(hidden_states)[0]
        return self.classifier(hidden_states[:, 0])


class GPTBlock(nn.Module):
    """As in Hugging Face's GPT-2: Conv1D weights by addmm, blocks that return tuples."""

    class Conv1D(nn.Module):
        def __init__(self, outputs: int, inputs: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(0.1 * torch.randn(inputs, outputs))
            self.bias = nn.Parameter(torch.zeros(outputs))

        def forward(self, x: Tensor) -> Tensor:
            flat = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
            return flat.view(*x.shape[:-1], -1)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = self.Conv1D(3 * width, width), self.Conv1D(width, width)
        self.c_fc, self.c_out = self.Conv1D(2 * width, width), self.Conv1D(width, 2 * width)

    def forward(self, hidden_states: Tensor) -> tuple[Tensor]:
        residual = hidden_states
        q, k, v = self.c_attn(self.ln_1(hidden_states)).split(hidden_states.shape[-1], 2)
        hidden_states = self.c_proj(torch.softmax(q @ k.transpose(1, 2), -1) @ v) + residual
        return (hidden_states + self.c_out(nn.functional.gelu(self.c_fc(self.ln_2(hidden_states)))),)


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.h = nn.ModuleList(GPTBlock(8) for _ in range(3))
        self.ln_f = nn.LayerNorm(8)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            h = block(h)[0]
        return (self.ln_f(h) @ self.wte.weight.t())[:, -1]


PICTURE, TOKENS = (3, 8, 8), None
NETS = {
    "torchvision ResNet": (ResNet, PICTURE, ["layer1.0", "layer1.1", "layer2.0", "layer2.1"]),
    "plain layer between stages": (PlainBetween, PICTURE, ["first.0", "first.1", "second.0", "second.1"]),
    "timm ConvNeXt": (TimmConvNeXt, PICTURE, [f"stages.{i}" for i in ("0.blocks.0", "1.blocks.0", "1.blocks.1",
                                                                      "2.blocks.0")]),
    "torchvision ConvNeXt": (ConvNeXt, PICTURE, [f"features.{i}" for i in ("1.0", "1.1", "3.0", "3.1")]),
    "timm ViT": (ViT, PICTURE, ["blocks.0", "blocks.1", "blocks.2"]),
    "BERT": (Bert, TOKENS, ["layer.0", "layer.1", "layer.2"]),
    "GPT-2": (GPT, TOKENS, ["h.0", "h.1", "h.2"]),
}


def data(shape: tuple[int, ...] | None, count: int = 6) -> tuple[Tensor, Tensor]:
    """A batch for one of the nets."""
    generator = torch.Generator().manual_seed(5)
    y = torch.arange(count) % 4
    if shape is None:
        return torch.randint(11, (count, 6), generator=generator), y
    return torch.randn(count, *shape, generator=generator), y
