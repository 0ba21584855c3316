"""What a family, an operator and a planted subject are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.seeding import torch_generator

Leakage = Callable[..., Tensor]
"""(output of the healthy module, *its inputs) -> what is added to the output, before the magnitude."""

MAGNITUDES = (1.0, 1e-3)
FAINT = 1e-5
"""Operators with a magnitude are planted this faint as well, at their first depth; float64 says if it counts."""
DEPTHS = (0, 2)


@dataclass(frozen=True)
class Family:
    """A model with an exact symmetry, its inputs and the claim about it."""

    name: str
    build: Callable[[], nn.Module]
    sample: Callable[[int, torch.Generator], Any]
    symmetry: sym.Symmetry


@dataclass(frozen=True)
class Operator:
    """A defect. ``plant(model, depth, magnitude, generator)`` puts it in and returns the name of the guilty module.

    ``causes`` are the titles of the diagnosis a person would call right.
    """

    name: str
    family: str
    plant: Callable[[nn.Module, int, float, torch.Generator], str]
    causes: tuple[str, ...]
    magnitudes: tuple[float, ...] = MAGNITUDES
    depths: tuple[int, ...] = DEPTHS
    kind: str = "forward"
    """forward: the output breaks; latent: only a parameter's gradient does; backward: only a gradient does."""

    @property
    def settings(self) -> list[tuple[int, float]]:
        """(depth, magnitude) of every model it is planted into."""
        every = [(depth, magnitude) for depth in self.depths for magnitude in self.magnitudes]
        return [*every, (self.depths[0], FAINT)] if len(self.magnitudes) > 1 else every


@dataclass(frozen=True)
class Planted:
    """A model with one defect, and where it is."""

    family: Family
    operator: Operator
    depth: int
    magnitude: float
    model: nn.Module
    place: str

    @property
    def name(self) -> str:
        """What a test or a table calls it."""
        return f"{self.family.name}-{self.operator.name}-{self.depth}-{self.magnitude:g}"


class Leak(nn.Module):
    """A healthy module whose output gets something it should not."""

    def __init__(self, healthy: nn.Module, leakage: Leakage, magnitude: float, table: Tensor | None = None) -> None:
        super().__init__()
        self.healthy, self.leakage, self.magnitude = healthy, leakage, magnitude
        reference = next((p for p in healthy.parameters() if p.is_floating_point()), None)
        dtype = torch.get_default_dtype() if reference is None else reference.dtype
        self.table = None if table is None else nn.Parameter(table.to(dtype))

    def forward(self, *args: Any) -> Tensor:
        out: Tensor = self.healthy(*args)
        wrong = self.leakage(out, *args) if self.table is None else self.leakage(out, self.table, *args)
        return out + self.magnitude * wrong


def leak(slot: str, leakage: Leakage, *, table: tuple[int, ...] | None = None) -> Callable[..., str]:
    """An operator's ``plant``: wraps the module at ``slot`` (``{depth}`` is filled in) into a Leak."""

    def plant(model: nn.Module, depth: int, magnitude: float, generator: torch.Generator) -> str:
        place = slot.format(depth=depth)
        values = None if table is None else torch.randn(table, generator=generator)
        put(model, place, Leak(model.get_submodule(place), leakage, magnitude, values))
        return place

    return plant


def asleep(slot: str, leakage: Leakage, table: tuple[int, ...]) -> Callable[..., str]:
    """As ``leak``, with a table of zeros: nothing breaks until it is trained. The place is the parameter."""

    def plant(model: nn.Module, depth: int, magnitude: float, generator: torch.Generator) -> str:
        place = slot.format(depth=depth)
        put(model, place, Leak(model.get_submodule(place), leakage, magnitude, torch.zeros(table)))
        return f"{place}.table"

    return plant


def instead(slot: str, make: Callable[[nn.Module], nn.Module], *, inside: str = "") -> Callable[..., str]:
    """An operator's ``plant``: puts ``make(healthy)`` at ``slot``; the guilty one is its submodule ``inside``."""

    def plant(model: nn.Module, depth: int, magnitude: float, generator: torch.Generator) -> str:
        place = slot.format(depth=depth)
        put(model, place, make(model.get_submodule(place)))
        return place + inside

    return plant


def put(model: nn.Module, place: str, module: nn.Module) -> None:
    """Replaces the submodule called ``place``."""
    parent, _, name = place.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


def healthy(family: Family, seed: int, *, trained: bool = False) -> nn.Module:
    """A clean model of a family: weights from ``seed`` (no global generator), optionally after 20 steps of Adam."""
    model = family.build()
    draw_weights(model, torch_generator(seed, "weights", family.name))
    if trained:
        train(model, family, seed)
    return model.eval()


def planted(family: Family, operator: Operator, depth: int, magnitude: float, seed: int = 0) -> Planted:
    """A model of a family with one defect."""
    model = healthy(family, seed)
    generator = torch_generator(seed, "defect", operator.name, depth)
    place = operator.plant(model, depth, magnitude, generator)
    return Planted(family, operator, depth, magnitude, model.eval(), place)


def draw_weights(model: nn.Module, generator: torch.Generator) -> None:
    """Gaussian weights with variance 1 / fan-in; biases of size 0.1, so that none is asleep at zero."""
    for module in model.modules():
        ours = type(module).__module__.split(".")[0] in ("torch", "planted_symmetry")
        for name, parameter in module.named_parameters(recurse=False):
            with torch.no_grad():
                parameter.normal_(generator=generator)
                if ours and parameter.ndim > 1:
                    parameter.mul_(parameter[0].numel() ** -0.5)
                elif ours:
                    parameter.mul_(0.1).add_(1.0 if isinstance(module, nn.LayerNorm) and name == "weight" else 0.0)


def train(model: nn.Module, family: Family, seed: int, *, steps: int = 20) -> None:
    """A few steps of Adam towards random targets that have the symmetry: what an audit sees after training."""
    generator = torch_generator(seed, "training", family.name)
    teacher = family.build()
    draw_weights(teacher, generator)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        inputs = family.sample(16, generator)
        with torch.no_grad():
            wanted = tensors(call(teacher, inputs))
        loss = sum((a - b).square().mean() for a, b in zip(tensors(call(model, inputs)), wanted, strict=True))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def call(model: nn.Module, inputs: Any) -> Any:
    """The model at a tensor, a tuple or a dict of inputs."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def tensors(value: Any) -> list[Tensor]:
    """The tensors of a tensor, tuple or dict, in order."""
    if isinstance(value, Tensor):
        return [value]
    return list(value.values() if isinstance(value, dict) else value)
