"""One forward-backward pass as named quantities: outputs, gradients, forces, buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor, nn

from assay.probe import tree
from assay.probe.calling import default_call
from assay.probe.copies import cast, device_of
from assay.probe.values import exact, is_continuous
from assay.seeding import torch_generator

Call = Callable[[nn.Module, Any], Any]


class Kind(StrEnum):
    """What sort of number a pass gives."""

    OUTPUT = "output"
    GRADIENT = "gradient"
    SECOND = "second derivative"
    BUFFER = "buffer"


JOINED = {Kind.OUTPUT: " ", Kind.GRADIENT: " by ", Kind.SECOND: ", by ", Kind.BUFFER: " "}


@dataclass(frozen=True)
class Quantity:
    """One thing both models are asked for: an output, a derivative by an input or a weight, a buffer.

    >>> print(Quantity(Kind.GRADIENT, "0.weight"))
    gradient by 0.weight
    """

    kind: Kind
    of: str = ""
    """Of which; empty for the only output."""

    def __str__(self) -> str:
        return f"{self.kind}{JOINED[self.kind]}{self.of}" if self.of else str(self.kind)


Quantities = dict[Quantity, Tensor]
"""Every quantity of a pass, in float64."""


class Wrapped(nn.Module):
    """A plain callable as a module without parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the callable returns."""
        return self.function(*args, **kwargs)


@dataclass(frozen=True)
class Inquiry:
    """What both models are asked: inputs as leaves of a template, how to call, which weights are counterparts."""

    template: Any
    input_names: tuple[str, ...]
    call: Call | None
    seed: int
    order: int
    """The highest derivative asked for: 0 outputs, 1 gradients, 2 those of forces too where the output is an energy."""

    def ask(
        self,
        model: nn.Module,
        leaves: list[Any],
        dtype: torch.dtype | None,
        *,
        names: Mapping[str, str] | None = None,
        dtypes: dict[str, str] | None = None,
    ) -> Quantities:
        """All quantities of one pass; ``names`` renames weights to those of the reference, ``dtypes`` is filled."""
        fed = [self._fed(leaf, model, dtype) for leaf in leaves]
        value = tree.rebuild(self.template, iter(fed))
        with torch.set_grad_enabled(True):
            result = self.call(model, value) if self.call else default_call(model, value, self.seed)
            outputs = [(name or "output", leaf) for name, leaf in tree.leaves(result) if isinstance(leaf, Tensor)]
            if dtypes is not None:
                dtypes.update({name: str(y.dtype) for name, y in outputs})
            found = {Quantity(Kind.OUTPUT, name if name != "output" else ""): exact(y) for name, y in outputs}
            if self.order:
                found |= self._gradients(model, fed, outputs, names)
        for name, buffer in model.named_buffers():
            found[Quantity(Kind.BUFFER, (names or {}).get(name, name))] = exact(buffer)
        return found

    def _fed(self, leaf: Any, model: nn.Module, dtype: torch.dtype | None) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        # clone keeps strides: a non-contiguous input stays one.
        fed = leaf.detach().clone(memory_format=torch.preserve_format)
        fed = (fed if dtype is None else cast(fed, dtype)).to(device_of(model))
        return fed.requires_grad_(True) if self.order and is_continuous(fed) else fed

    def _gradients(
        self, model: nn.Module, fed: list[Any], outputs: list[tuple[str, Tensor]], names: Mapping[str, str] | None
    ) -> Quantities:
        generator = torch_generator(self.seed, "cotangents")
        terms = []
        for _, y in outputs:
            u = torch.randn(y.shape, generator=generator, dtype=torch.float64)
            if y.requires_grad and is_continuous(y):
                terms.append((u.to(y.device, y.real.dtype if y.is_complex() else y.dtype) * y).sum())
        if not terms:
            return {}
        inputs = {n or "the input": x for n, x in zip(self.input_names, fed, strict=True) if is_continuous(x)}
        weights = {(names or {}).get(n, n): p for n, p in model.named_parameters() if p.requires_grad}
        sources = [*inputs.values(), *weights.values()]
        total = torch.stack([term.real if term.is_complex() else term for term in terms]).sum()
        rows = max((len(x) for x in inputs.values() if x.ndim), default=1)
        energy = self.order > 1 and len(outputs) == 1 and bool(inputs) and 0 < outputs[0][1].numel() <= rows
        found = torch.autograd.grad(total, sources, allow_unused=True, create_graph=energy)
        by = [*inputs, *weights]
        result = {Quantity(Kind.GRADIENT, n): _or_zero(g, x) for n, g, x in zip(by, found, sources, strict=True)}
        if energy:
            result |= self._forces(found[: len(inputs)], sources, by)
        return result

    def _forces(self, forces: Any, sources: list[Tensor], by: list[str]) -> Quantities:
        """Of an energy: the derivatives of its forces (the gradient by inputs), along a random direction."""
        generator = torch_generator(self.seed, "directions")
        terms = [
            (torch.randn(f.shape, generator=generator, dtype=torch.float64).to(f) * f).sum()
            for f in forces
            if f is not None and f.requires_grad
        ]
        if not terms:
            return {}
        second = torch.autograd.grad(torch.stack(terms).sum(), sources, allow_unused=True)
        return {Quantity(Kind.SECOND, n): _or_zero(g, x) for n, g, x in zip(by, second, sources, strict=True)}


def _or_zero(gradient: Tensor | None, like: Tensor) -> Tensor:
    return exact(torch.zeros_like(like) if gradient is None else gradient)


def counterparts(reference: nn.Module, candidate: nn.Module, given: Mapping[str, str] | None) -> dict[str, str]:
    """The reference's name of each parameter and buffer of the candidate: as given, by name, else by order."""
    named = dict(reference.named_parameters()) | dict(reference.named_buffers())
    found: dict[str, str] = {}
    own = dict(candidate.named_parameters()) | dict(candidate.named_buffers())
    for name, value in own.items():
        plain = name.replace("_orig_mod.", "")
        wanted = (given or {}).get(name, plain)
        if wanted in named and named[wanted].shape == value.shape:
            found[name] = wanted
    if len(found) == len(own):
        return found
    theirs = [(n, v) for n, v in candidate.named_parameters()]
    ours = [(n, v) for n, v in reference.named_parameters()]
    if not found and [v.shape for _, v in theirs] == [v.shape for _, v in ours]:
        return {name: other for (name, _), (other, _) in zip(theirs, ours, strict=True)}
    return found
