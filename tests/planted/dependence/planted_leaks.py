"""Small models of many kinds, each healthy or with one leak of a known module."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay import dependence as dep
from assay.seeding import torch_generator

WIDTH = 8


@dataclass(frozen=True)
class Case:
    """A model, its sample and claim; ``module`` names the leak (None for a healthy twin, "*" if any place will do)."""

    name: str
    family: str
    build: Callable[[], nn.Module]
    sample: Any
    depends: Any
    module: str | None


class Attention(nn.Module):
    """Self-attention whose mask lies ``shift`` above the diagonal; healthy at 1."""

    def __init__(self, shift: int | None = 1, strength: float = 1.0) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.shift, self.strength = shift, strength

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.mT / math.sqrt(WIDTH)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        bad = torch.zeros_like(hidden) if self.shift is None else torch.ones_like(hidden).triu(self.shift)
        right = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        given = scores.masked_fill(bad, -torch.inf).softmax(-1)
        return self.out((right + self.strength * (given - right)) @ v)


class Block(nn.Module):
    def __init__(self, attention: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.norm, self.attention = norm, attention
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class TimeNorm(nn.Module):
    """Normalises over time instead of features."""

    def __init__(self, strength: float = 1.0) -> None:
        super().__init__()
        self.strength = strength

    def forward(self, x: Tensor) -> Tensor:
        return x - self.strength * x.mean(1, keepdim=True)


class GPT(nn.Module):
    """Tokens in, logits out."""

    def __init__(self, blocks: list[nn.Module], vocabulary: int = 11) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Parameter(torch.randn(32, WIDTH) / 8)
        self.blocks, self.head = nn.ModuleList(blocks), nn.Linear(WIDTH, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Convolution(nn.Module):
    """Dilated causal convolutions; the ``wrong`` one is padded on both sides."""

    def __init__(self, wrong: int | None, dilation: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(WIDTH, WIDTH, 3, dilation=dilation) for _ in range(3))
        self.wrong, self.dilation = wrong, dilation

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            pad = 2 * self.dilation
            left = pad // 2 if number == self.wrong else pad
            x = torch.tanh(layer(nn.functional.pad(x, (left, pad - left))))
        return x


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.GRU] | type[nn.LSTM], both: bool) -> None:
        super().__init__()
        self.rnn = kind(WIDTH, WIDTH, batch_first=True, bidirectional=both)
        self.head = nn.Linear(WIDTH * (2 if both else 1), 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0])


class Rowwise(nn.Module):
    """An MLP with something between its layers that may mix rows."""

    def __init__(self, between: nn.Module) -> None:
        super().__init__()
        self.first, self.between, self.second = nn.Linear(WIDTH, WIDTH), between, nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.between(self.first(x))))


class BatchMean(nn.Module):
    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength

    def forward(self, x: Tensor) -> Tensor:
        return x - self.strength * x.mean(0, keepdim=True)


class Graph(nn.Module):
    def __init__(self, wrong: str = "", strength: float = 1.0) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)
        self.wrong, self.strength = wrong, strength

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in (self.first, self.second):
            message = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
            if self.wrong == "mean" and layer is self.second:
                message = message + self.strength * x.mean(0)
            x = torch.tanh(layer(x + message))
        return x


class Leaky(nn.Module):
    """Takes x and a target; may peek at the target."""

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.read, self.strength = nn.Linear(WIDTH, 3), strength

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return self.read(x) + self.strength * target


class Masked(nn.Module):
    """Attention over real tokens; padding may be seen, or positions counted from the left edge."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, WIDTH), nn.Embedding(40, WIDTH)
        self.wrong, self.out = wrong, nn.Linear(WIDTH, 5)

    def forward(self, tokens: Tensor, attention_mask: Tensor) -> Tensor:
        counted = (attention_mask.cumsum(1) - 1).clamp(min=0)
        if self.wrong == "positions":
            counted = torch.arange(tokens.shape[1]).expand_as(tokens)
        x = self.tokens(tokens) + self.places(counted)
        scores = x @ x.mT
        if self.wrong != "mask":
            scores = scores.masked_fill(attention_mask[:, None] == 0, -torch.inf)
        return self.out(x + scores.softmax(-1) @ x)


def normal(*shape: int, seed: int) -> Tensor:
    """Random numbers of a seed."""
    return torch.randn(shape, generator=torch_generator(seed, "sample"))


def integers(*shape: int, seed: int, high: int = 11) -> Tensor:
    """Random tokens of a seed."""
    return torch.randint(0, high, shape, generator=torch_generator(seed, "tokens"))


def ring(nodes: int) -> Tensor:
    """A ring of nodes, edges in both directions."""
    here = torch.arange(nodes)
    return torch.cat([torch.stack([here, (here + 1) % nodes]), torch.stack([(here + 1) % nodes, here])], 1)


def step(model: Any, piece: Tensor, cache: Any) -> tuple[Tensor, Any]:
    """One place of the running-sum decoder."""
    return model.step(piece, cache)


class Decoder(nn.Module):
    """A GRU decoded with its state; ``stale`` forgets to hand the state on every third step."""

    def __init__(self, wrong: float = 0.0) -> None:
        super().__init__()
        self.rnn, self.wrong = nn.GRU(WIDTH, WIDTH, batch_first=True), wrong

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]

    def step(self, piece: Tensor, cache: Any) -> tuple[Tensor, Any]:
        state = None if cache is None else cache * (1 - self.wrong)
        y, state = self.rnn(piece, state)
        return y, state


def _seeded(make: Callable[[], nn.Module], seed: int) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(torch_generator(seed, "weights").get_state())
            return make()

    return build


def suite(seed: int, *, draws: int = 1) -> list[Case]:
    """Planted leaks of several sizes and their healthy twins; another seed is another draw of everything."""
    found: list[Case] = []
    for draw in range(draws):
        found += _one(seed * 1000 + draw)
    return found


def _one(seed: int) -> list[Case]:
    cases: list[Case] = []

    def add(
        family: str, name: str, make: Callable[[], nn.Module], sample: Any, depends: Any, module: str | None
    ) -> None:
        cases.append(Case(f"{family}/{name}/{seed}", family, _seeded(make, seed), sample, depends, module))

    tokens, x, length = integers(4, 9, seed=seed), normal(4, 9, WIDTH, seed=seed), 9
    causal = dep.causal()

    def blocks(at: int, bad: nn.Module | None = None, norm: nn.Module | None = None) -> list[nn.Module]:
        return [Block(bad if bad is not None and i == at else Attention(), norm if norm is not None and i == at
                      else nn.LayerNorm(WIDTH)) for i in range(3)]  # fmt: skip

    add("gpt", "healthy", lambda: GPT(blocks(0)), tokens, causal, None)
    for at in (0, 2):
        for strength in (1.0, 1e-4):
            for name, shift in (("shifted mask", 2), ("no mask", None)):
                add("gpt", f"{name} {at} {strength}",
                    lambda at=at, s=strength, shift=shift: GPT(blocks(at, Attention(shift, s))), tokens, causal,
                    f"blocks.{at}.attention")  # fmt: skip
            add("gpt", f"norm over time {at} {strength}",
                lambda at=at, s=strength: GPT(blocks(at, norm=TimeNorm(s))), tokens, causal,
                f"blocks.{at}.norm")  # fmt: skip
    add("transformer", "healthy floats", lambda: nn.Sequential(*blocks(0)), x, causal, None)
    add("transformer", "no mask", lambda: nn.Sequential(*blocks(1, Attention(None))), x, causal, "1.attention")
    add("transformer", "shifted", lambda: nn.Sequential(*blocks(1, Attention(2, 1e-5))), x, causal, "1.attention")
    signal, in_time = normal(3, WIDTH, 16, seed=seed), dep.causal(2, 2)
    add("convolution", "healthy", lambda: Convolution(None), signal, in_time, None)
    add("convolution", "healthy field", lambda: Convolution(None, 1), signal, dep.local(2, 6), None)
    add("convolution", "field too large", lambda: Convolution(None, 2), signal, dep.local(2, 6), "*")
    for wrong in range(3):
        add("convolution", f"padded {wrong}", lambda w=wrong: Convolution(w), signal, in_time, f"layers.{wrong}")
    for kind in (nn.GRU, nn.LSTM):
        add("recurrent", f"{kind.__name__} healthy", lambda k=kind: Recurrent(k, False), x, causal, None)
        add("recurrent", f"{kind.__name__} both ways", lambda k=kind: Recurrent(k, True), x, causal, "rnn")
    rows = normal(6, WIDTH, seed=seed)
    add("rows", "healthy", lambda: Rowwise(nn.LayerNorm(WIDTH)), rows, dep.rows(), None)
    add("rows", "batch norm in evaluation", lambda: Rowwise(nn.BatchNorm1d(WIDTH).eval()), rows, dep.rows(), None)
    for strength in (1.0, 1e-3, 1e-6):
        add("rows", f"batch mean {strength}", lambda s=strength: Rowwise(BatchMean(s)), rows, dep.rows(), "between")
    graph = (normal(12, WIDTH, seed=seed), ring(12))
    near = dep.neighbours("edge_index", 2, nodes="x")
    add("graph", "healthy", lambda: Graph(), graph, near, None)
    for strength in (1.0, 1e-5):
        add("graph", f"global mean {strength}", lambda s=strength: Graph("mean", s), graph, near, "")
    add("graph", "too few hops declared", lambda: Graph(), graph, dep.neighbours("edge_index", 1, nodes="x"), "*")
    both = (normal(5, WIDTH, seed=seed), normal(5, 3, seed=seed + 1))
    add("never", "healthy", lambda: Leaky(0.0), both, dep.never("target"), None)
    add("only", "healthy", lambda: Leaky(0.0), both, dep.only("x"), None)
    for strength in (1.0, 1e-7):
        add("never", f"leak {strength}", lambda s=strength: Leaky(s), both, dep.never("target"), "")
        add("only", f"leak {strength}", lambda s=strength: Leaky(s), both, dep.only("x"), "")
    mask = torch.ones(4, 9, dtype=torch.long)
    mask[1, 6:] = 0
    padded = (tokens, mask)
    add("padding", "healthy", lambda: Masked(), padded, dep.padding("attention_mask"), None)
    add("padding", "mask dropped", lambda: Masked("mask"), padded, dep.padding("attention_mask"), "")
    add("padding", "absolute positions", lambda: Masked("positions"), padded, dep.padding("attention_mask"), "*")
    add("padding", "absolute positions, right only", lambda: Masked("positions"), padded,
        dep.padding("attention_mask", sides=("right",)), None)  # fmt: skip
    add("cache", "healthy", lambda: Decoder(), x, dep.cache(step), None)
    for wrong_state in (1.0, 1e-3):
        add("cache", f"stale {wrong_state}", lambda w=wrong_state: Decoder(w), x, dep.cache(step), "*")
    assert length == x.shape[1]
    return cases
