"""Small models that people really have: scripted, exported, boolean, float64 only, of one batch size, in place."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Norm(nn.Module):
    """Invariant under rotations; ``head`` acts on the squared norm."""

    def __init__(self, head: nn.Module | None = None) -> None:
        super().__init__()
        self.head = head or nn.Linear(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(x.square().sum(-1, keepdim=True))
        return result


class Components(Norm):
    """Not invariant: the head acts on the first component."""

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(x[..., :1])
        return result


class Wrapped(nn.Module):
    """A model with something odd around it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


class Only64(Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        assert x.dtype == torch.float64
        return self.inner(x)


class BareAssert(Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        assert x.dtype == torch.float32
        return self.inner(x)


class FixedBatch(Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.reshape(6, 3))


class InPlace(Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.mul_(2.0))


class Inference(Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        with torch.inference_mode():
            return self.inner(x)


class NonLeaf(Wrapped):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("derived", self.scale * 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * self.derived


class Spectral(Wrapped):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__(inner)
        self.last = torch.nn.utils.spectral_norm(nn.Linear(2, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.inner(x))


class Booleans(Wrapped):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) > 0


class Extras(Wrapped):
    def forward(self, x: Tensor) -> dict[str, object]:
        return {"y": self.inner(x), "note": "text", "nothing": None, "count": 3}


def scripted(inner: nn.Module) -> nn.Module:
    """TorchScript inside an ordinary module."""
    outer = Norm() if isinstance(inner, Norm) and not isinstance(inner, Components) else Components()
    outer.head = torch.jit.script(nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 2)))
    return outer


def whole_script(inner: nn.Module) -> nn.Module:
    return torch.jit.script(inner)


def exported(inner: nn.Module) -> nn.Module:
    return torch.export.export(inner.eval(), (torch.randn(6, 3),)).module()


WRAPPERS = {
    "plain": lambda inner: inner,
    "scripted": scripted,
    "whole script": whole_script,
    "exported": exported,
    "bare assert": BareAssert,
    "fixed batch": FixedBatch,
    "in place": InPlace,
    "inference mode": Inference,
    "computed buffer": NonLeaf,
    "old spectral_norm": Spectral,
    "boolean outputs": Booleans,
    "float64 only": lambda inner: Only64(inner.double()),
    "text beside tensors": Extras,
}
