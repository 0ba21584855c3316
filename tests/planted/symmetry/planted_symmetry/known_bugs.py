"""Minimal re-creations of defects that people have reported, each with the public thread it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.results import Verdict
from assay.seeding import torch_generator
from planted_symmetry.plant import draw_weights

E3 = sym.E(3) * sym.S()
ENERGY = sym.Symmetry(E3, inputs=sym.point() @ sym.permuted(1), outputs=sym.invariant())


@dataclass(frozen=True)
class KnownBug:
    """A reported defect: how to make it, and what an audit has to say."""

    name: str
    source: str
    build: Callable[[], nn.Module]
    sample: Any
    symmetry: sym.Symmetry
    verdict: Verdict
    title: str
    location: str = ""
    """What the location of the issue must hold; empty where the defect has no module."""

    def model(self) -> nn.Module:
        """The model with reproducible weights; weights that are zero on purpose stay so."""
        model = self.build()
        asleep = {name for name, p in model.named_parameters() if not bool(p.detach().any())}
        draw_weights(model, torch_generator(0, "known bug", self.name))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name in asleep:
                    parameter.zero_()
        return model.eval()


def cloud(n: int, generator: torch.Generator, points: int = 6) -> Tensor:
    """Random points."""
    return torch.randn(n, points, 3, generator=generator)


def differences(pos: Tensor) -> Tensor:
    """Vectors between all pairs."""
    return pos.unsqueeze(2) - pos.unsqueeze(1)


class VectorBias(nn.Module):
    """A projection of vector channels that keeps the default bias."""

    def __init__(self, *, asleep: bool = False) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(4, 4), nn.Linear(4, 1, bias=False)
        nn.init.constant_(self.project.bias, 0.0 if asleep else 0.1)

    def forward(self, pos: Tensor) -> Tensor:
        d = differences(pos)
        square = d.square().sum(-1, keepdim=True)
        v = torch.stack([(d / (1 + k * square)).sum(2) for k in range(1, 5)], dim=-1)
        return self.out(self.project(v)).squeeze(-1)


class CappedNeighbours(nn.Module):
    """At most three neighbours within the cutoff, taken in the order in which a sweep along x finds them."""

    def __init__(self) -> None:
        super().__init__()
        self.neighbours, self.score = Capped(), nn.Linear(1, 1)

    def forward(self, pos: Tensor) -> Tensor:
        return self.score(self.neighbours(pos).unsqueeze(-1)).sum((1, 2))


class Capped(nn.Module):
    """The sum over the first three neighbours, in the order of x."""

    def forward(self, pos: Tensor) -> Tensor:
        square = differences(pos).square().sum(-1)
        inside = (square < 2.0**2) & (square > 0)
        order = pos[..., 0].argsort(dim=1).argsort(dim=1)
        place = torch.where(inside, order.unsqueeze(1).expand_as(inside), torch.full_like(square, 99).long())
        kept = inside & (place.argsort(dim=2).argsort(dim=2) < 3)
        return (torch.exp(-square) * kept).sum(2)


class Periodic(nn.Module):
    """An energy that depends on positions within a cell."""

    def forward(self, pos: Tensor, cell: Tensor) -> Tensor:
        fractional = torch.linalg.solve(cell.mT, pos.mT).mT
        return torch.cos(2 * torch.pi * differences(fractional)).sum((1, 2, 3))


class StridedPooling(nn.Module):
    """A symmetric filter with stride 2: (size - 3) must be even, so that even images lose one row on one side."""

    def __init__(self) -> None:
        super().__init__()
        self.blur = nn.AvgPool2d(3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.blur(x)).mean((-1, -2))


class SelfEdges(nn.Module):
    """Forces by autograd through the distance of a point to itself: the root of zero has no derivative."""

    def forward(self, pos: Tensor) -> dict[str, Tensor]:
        pos = pos if pos.requires_grad else pos.detach().requires_grad_(True)
        energy = torch.exp(-differences(pos).norm(dim=-1)).sum((1, 2))
        root = (differences(pos).square().sum(-1)).sqrt().sum((1, 2))
        (grad,) = torch.autograd.grad((energy + root).sum(), pos, create_graph=True)
        return {"energy": energy, "forces": -grad}


class DropoutLeftOn(nn.Module):
    """Dropout called as a function, which forgets to ask for the mode of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 4)

    def forward(self, pos: Tensor) -> Tensor:
        h = self.layer(differences(pos).square().sum((1, 2, 3), keepdim=False).unsqueeze(-1))
        return nn.functional.dropout(h, 0.2)


class DirectForces(nn.Module):
    """Forces from a head of their own: covariant, and not the gradient of the energy."""

    def __init__(self) -> None:
        super().__init__()
        self.pair, self.head = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, pos: Tensor) -> dict[str, Tensor]:
        d = differences(pos)
        square = d.square().sum(-1, keepdim=True)
        energy = torch.tanh(self.pair(square)).sum((1, 2, 3))
        return {"energy": energy, "forces": (d * torch.tanh(self.head(square))).sum(2)}


class DetachedFrame(nn.Module):
    """A weight by distance from the centre that is detached: covariant forward and backward, wrong derivative."""

    def forward(self, pos: Tensor) -> Tensor:
        centred = pos - pos.mean(1, keepdim=True)
        weight = torch.sigmoid(centred.square().sum(-1)).detach()
        return (weight * torch.tanh(centred.square().sum(-1))).sum(1)


class ComponentBatchNorm(nn.Module):
    """Batch normalisation of vector components: fine with the statistics of a new model, not in training."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3, affine=False)

    def forward(self, v: Tensor) -> Tensor:
        return self.norm(v.flatten(0, 1)).unflatten(0, v.shape[:2])


def with_cell(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points and a skew cell for each input."""
    return cloud(n, generator), torch.eye(3) + 0.2 * torch.randn(n, 3, 3, generator=generator)


FORCES = sym.Symmetry(
    E3,
    inputs={"pos": sym.point() @ sym.permuted(1)},
    outputs={"energy": sym.invariant(), "forces": sym.vector() @ sym.permuted(1)},
)
VECTORS = sym.Symmetry(E3, inputs=sym.point() @ sym.permuted(1), outputs=sym.vector() @ sym.permuted(1))

KNOWN_BUGS = [
    KnownBug("vector bias", "torchmd/torchmd-net#57", VectorBias, cloud, VECTORS, Verdict.FAIL, "Bias on vectors",
             "project"),
    KnownBug("bias that appears after training", "QUVA-Lab/e2cnn#11", lambda: VectorBias(asleep=True), cloud, VECTORS,
             Verdict.PARTIAL, "Latent: training will break it", "project.bias"),
    KnownBug("neighbour cap under rotation", "rusty1s/pytorch_cluster#106", CappedNeighbours, cloud, ENERGY,
             Verdict.FAIL, "A fixed direction", "neighbours"),
    KnownBug("forgotten cell", "e3nn/e3nn#282", Periodic, with_cell,
             sym.Symmetry(sym.SO(3), inputs=(sym.vector(), sym.invariant()), outputs=sym.invariant()),
             Verdict.FAIL, "Your test may be wrong", "cell"),
    KnownBug("image size parity", "QUVA-Lab/e2cnn#36", StridedPooling,
             lambda n, generator: torch.randn(n, 1, 9, 9, generator=generator),
             sym.Symmetry(sym.C(4), inputs=sym.image(-2, -1), outputs=sym.invariant()),
             Verdict.FAIL, "Breaks at one parity of the image size"),
    KnownBug("self-edges", "e3nn/e3nn#79", SelfEdges, lambda n, g: {"pos": cloud(n, g)}, FORCES, Verdict.FAIL,
             "Output is not finite"),
    KnownBug("stochastic inference", "atomicarchitects/equiformer_v2#5", DropoutLeftOn, cloud, ENERGY,
             Verdict.INCONCLUSIVE, "The model is stochastic"),
    KnownBug("forces are not the gradient", "PASSIONLab/OpenEquivariance#211", DirectForces,
             lambda n, g: {"pos": cloud(n, g)}, FORCES, Verdict.FAIL, "Forces are not the gradient of the energy"),
    KnownBug("detached frame", "facebookresearch/fairchem#779", DetachedFrame, cloud, ENERGY, Verdict.FAIL,
             "Gradient is not the derivative"),
    KnownBug("batch norm on components", "seed of the auditor", ComponentBatchNorm, cloud,
             sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector()), Verdict.PARTIAL,
             "Breaks in train mode", "norm"),
]
