"""Whether a planted model is really broken, by the plainest measurement there is: a loop in float64.

Shares the group actions with the auditor, none of its measuring or judging.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.seeding import torch_generator
from planted_symmetry.plant import Family, call, tensors

FLOOR_MULTIPLE = 10.0
"""A mutant must be found if its float64 error is at least this many times the float32 rounding of the same pair."""


@dataclass(frozen=True)
class Truth:
    """For every generator: the largest float64 error over the rounding of float32, and relative to the output."""

    excess: dict[str, float]
    relative: dict[str, float]

    @property
    def broken(self) -> frozenset[str]:
        """Generators that float64 says are broken beyond ten times the noise floor."""
        return frozenset(name for name, ratio in self.excess.items() if ratio > FLOOR_MULTIPLE)

    @property
    def marginal(self) -> frozenset[str]:
        """Generators between the floor and ten times it: either answer is accepted."""
        return frozenset(name for name, ratio in self.excess.items() if 1.0 < ratio <= FLOOR_MULTIPLE)


def measure(model: nn.Module, family: Family, *, seed: int = 7, inputs: int = 16, elements: int = 6) -> Truth:
    """|f(gx) - rho(g) f(x)| in float64 and what float32 rounding would be, one element after the other."""
    single, double = copy.deepcopy(model).float(), copy.deepcopy(model).double()
    x = family.sample(inputs, torch_generator(seed, "truth", family.name))
    group = bind(family.symmetry, x)
    here64, here32 = run(double, x, torch.float64), run(single, x, torch.float32)
    excess, relative = {}, {}
    for name, draw in group.generators().items():
        errors, floors, sizes = [], [], []
        drawn = draw(elements, torch_generator(seed, "truth", name))
        for number in range(drawn.count):
            element = drawn[number : number + 1]
            there = moved(family.symmetry.inputs, element, x)
            there64, there32 = run(double, there, torch.float64), run(single, there, torch.float32)
            wanted64 = tensors(moved(family.symmetry.outputs, element, here64))
            wanted32 = tensors(moved(family.symmetry.outputs, element, here32))
            for a, b, c, d in zip(tensors(there64), wanted64, tensors(there32), wanted32, strict=True):
                errors.append(rows(a - b))
                floors.append(rows(c - a) + rows(d - b))
                sizes.append(rows(a))
        floor = torch.stack(floors)
        # Rounding of one pair can vanish by luck; the typical rounding of its output is the least that counts.
        floor = torch.maximum(floor, floor.median(dim=1, keepdim=True).values)
        excess[name] = float((torch.stack(errors) / floor).max())
        relative[name] = float((torch.stack(errors) / torch.stack(sizes)).max())
    return Truth(excess, relative)


def bind(symmetry: sym.Symmetry, x: Any) -> sym.Group:
    """The group with its open sizes taken from the inputs."""
    pairs = zip(tensors(x), tensors_of(symmetry.inputs), strict=True)
    sizes = {part: size for leaf, rep in pairs for part, size in rep.sizes(tuple(leaf.shape)).items()}
    return symmetry.group.bind(sizes)


def tensors_of(declared: Any) -> list[sym.Representation]:
    """The representations of a declaration, in order."""
    if isinstance(declared, sym.Representation):
        return [declared]
    return list(declared.values() if isinstance(declared, dict) else declared)


def moved(declared: Any, element: sym.Elements, value: Any) -> Any:
    """rho(g) applied to a tensor or a dict of tensors, in float64."""
    if isinstance(value, Tensor):
        value = value.double() if value.is_floating_point() else value
        return declared.act(element, value.unsqueeze(0))[0]
    return {name: moved(declared[name], element, one) for name, one in value.items()}


@torch.no_grad()
def run(model: nn.Module, x: Any, dtype: torch.dtype) -> Any:
    """The outputs in float64, computed in ``dtype``."""
    cast = x.to(dtype) if isinstance(x, Tensor) else {name: one.to(dtype) for name, one in x.items()}
    out = call(model, cast)
    return out.double() if isinstance(out, Tensor) else {name: one.double() for name, one in out.items()}


def rows(gap: Tensor) -> Tensor:
    """Norms per input."""
    return torch.linalg.vector_norm(gap.reshape(len(gap), -1), dim=1)
