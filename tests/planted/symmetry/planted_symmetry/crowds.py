"""Crowds of small random models whose answer is known: clean ReLU networks, clean float32-only ones, broken jumps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.results import Finding
from assay.seeding import torch_generator

SET = sym.Symmetry(sym.S(), inputs=sym.permuted(1), outputs=sym.permuted(1))
POOLED = sym.Symmetry(sym.S(), inputs=sym.permuted(1), outputs=sym.invariant())
MOLECULE = sym.Symmetry(
    sym.E(3) * sym.S(),
    inputs=sym.point() @ sym.permuted(1),
    outputs={"energy": sym.invariant(), "forces": sym.vector() @ sym.permuted(1)},
)
GRAPH = sym.Symmetry(sym.S(), inputs=sym.permuted(0, 1), outputs=sym.permuted(0), batch=None)


@dataclass(frozen=True)
class Member:
    """One model of a crowd with its inputs and the claim about it."""

    name: str
    model: nn.Module
    sample: Any
    symmetry: sym.Symmetry


def relu_nets(number: int) -> Member:
    """The n-th clean ReLU network: circular CNN, orbit-averaged CNN, set network, attention or pair potential."""
    generator = torch_generator(number, "relu nets")
    width = int(torch.randint(3, 9, (), generator=generator))
    make: tuple[Callable[[int, torch.Generator], Member], ...] = (_circular, _averaged, _pooled, _encoder, _potential)
    member = make[number % len(make)](width, generator)
    draw(member.model, generator)
    return Member(f"{member.name} {number}", member.model.eval(), member.sample, member.symmetry)


def float32_only(number: int) -> Member:
    """The n-th clean model without a float64 run: a pair potential with forces, or a set network."""
    generator = torch_generator(number, "float32 only")
    width = int(torch.randint(3, 9, (), generator=generator))
    member = (_potential if number % 4 else _pooled)(width, generator)
    draw(member.model, generator)
    return Member(f"float32 {member.name} {number}", Only32(member.model).eval(), member.sample, member.symmetry)


def jumps(number: int) -> Member:
    """The n-th broken discontinuous model: eigenvectors of unfixed sign, a sort by index, an argmax, a sign."""
    generator = torch_generator(number, "jumps")
    kinds: tuple[type[nn.Module], ...] = (Eigenvectors, Eigenvectors, SortedPlaces, FirstLargest, SignOfFirst)
    model = kinds[number % len(kinds)]()
    draw(model, generator)
    if isinstance(model, Eigenvectors):
        return Member(f"eigenvectors {number}", model.eval(), adjacency(generator), GRAPH)
    return Member(f"{type(model).__name__} {number}", model.eval(), torch.randn(8, 6, 3, generator=generator), SET)


def audited(member: Member, *, seed: int) -> Finding:
    """A small full audit: few inputs and elements, nothing left out."""
    return sym.audit_symmetry(member.model, member.sample, member.symmetry, seed=seed, inputs=8, transforms=8)


def draw(model: nn.Module, generator: torch.Generator) -> None:
    """Weights of the usual size; biases of size 0.1, every fourth model without."""
    bare = bool(torch.randint(4, (), generator=generator) == 0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(generator=generator).mul_(parameter[0].numel() ** -0.5)
            elif "norm" not in name:
                parameter.normal_(generator=generator).mul_(0.0 if bare else 0.1)


def adjacency(generator: torch.Generator, nodes: int = 8) -> Tensor:
    """A random connected graph: a ring and some chords."""
    ring = torch.roll(torch.eye(nodes), 1, dims=0)
    chords = (torch.rand(nodes, nodes, generator=generator) < 0.25).float()
    return ((ring + chords + (ring + chords).T) > 0).float().fill_diagonal_(0.0)


class Only32(nn.Module):
    """A model that refuses float64."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        if x.dtype != torch.float32:
            raise TypeError("float32 inputs only")
        return self.inner(x)


class Averaged(nn.Module):
    """A CNN averaged over quarter turns."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        turned = [self.inner(torch.rot90(x, k, (-2, -1))).mean((-2, -1)) for k in range(4)]
        return torch.stack(turned).mean(0)


class PairPotential(nn.Module):
    """An energy from distances and its forces."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.radial = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.out = nn.Linear(width, 1)

    def forward(self, pos: Tensor) -> dict[str, Tensor]:
        with torch.enable_grad():
            pos = pos if pos.requires_grad else pos.clone().requires_grad_(True)
            gap = pos.unsqueeze(2) - pos.unsqueeze(1)
            distance = (gap.square().sum(-1) + 1e-6).sqrt()
            features = torch.stack([torch.exp(-distance * k) for k in (0.3, 1.0, 2.0, 3.0)], dim=-1)
            energy = self.out(self.radial(features)).sum((1, 2, 3))
            (slope,) = torch.autograd.grad(energy.sum(), pos, create_graph=torch.is_grad_enabled())
        return {"energy": energy, "forces": -slope}


class Eigenvectors(nn.Module):
    """Positional encodings from eigenvectors of the Laplacian, whose signs nobody fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    def forward(self, graph: Tensor) -> Tensor:
        laplacian = torch.diag(graph.sum(1)) - graph
        return self.out(torch.linalg.eigh(laplacian).eigenvectors[:, 1:4])


class SortedPlaces(nn.Module):
    """Adds where an element would stand in the sorted list, shifted by one place."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        order = x[..., 0].argsort(dim=1).to(x) / x.shape[1]
        return self.mix(x) + order.unsqueeze(-1)


class FirstLargest(nn.Module):
    """Adds the index of the largest element."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x) + 0.1 * x[..., :1].argmax(dim=1, keepdim=True).to(x)


class SignOfFirst(nn.Module):
    """Multiplies by the sign of the first element."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x) * (1 + 0.01 * x[:, :1, :1].sign())


class _Pooled(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.each = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.out(self.each(x).sum(1))
        return pooled


def _circular(width: int, generator: torch.Generator) -> Member:
    layers: list[nn.Module] = [nn.Conv2d(1, width, 3, padding=1, padding_mode="circular"), nn.ReLU()]
    layers += [nn.Conv2d(width, width, 3, padding=1, padding_mode="circular"), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3)]
    spec = sym.Symmetry(sym.shifts(), inputs=sym.image(-2, -1), outputs=sym.invariant())
    return Member("circular CNN", nn.Sequential(*layers), torch.randn(6, 1, 12, 12, generator=generator), spec)


def _averaged(width: int, generator: torch.Generator) -> Member:
    body = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 4, 3, padding=1), nn.ReLU())
    spec = sym.Symmetry(sym.C(4), inputs=sym.image(-2, -1), outputs=sym.invariant())
    return Member("averaged CNN", Averaged(body), torch.randn(6, 1, 14, 14, generator=generator), spec)


def _pooled(width: int, generator: torch.Generator) -> Member:
    return Member("set network", _Pooled(width), torch.randn(8, 6, 3, generator=generator), POOLED)


def _encoder(width: int, generator: torch.Generator) -> Member:
    layer = nn.TransformerEncoderLayer(8, 2, 4 * width, dropout=0.0, batch_first=True)
    return Member("encoder", nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
                  torch.randn(6, 5, 8, generator=generator), SET)  # fmt: skip


def _potential(width: int, generator: torch.Generator) -> Member:
    return Member("pair potential", PairPotential(width), torch.randn(6, 5, 3, generator=generator), MOLECULE)
