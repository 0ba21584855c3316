"""The autograd graph of a forward pass: what depends on the data, and which saved tensors come from weights alone.

Nothing here goes by the names of operations. A node *carries* an error by a weight when one of its inputs depends on
the data and one of the tensors it saved for the backward pass was computed from parameters alone: only through what it
saved can a node use a weight on the way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from assay.rules.feedback.nodes import children, elementwise, is_complex, opaque, sizes


@dataclass(frozen=True)
class Saved:
    """A tensor that a node keeps for the backward pass; ``weight`` names the weight whose feedback it is, if any."""

    attribute: str
    tensor: Tensor
    weight: str | None = None

    @property
    def constant(self) -> bool:
        """Neither computed from parameters nor feedback."""
        return self.weight is None and not self.tensor.requires_grad


@dataclass(frozen=True)
class Carrier:
    """A tensor made of parameters that a node uses to send an error to an input that depends on the data."""

    weights: frozenset[str]
    exchanged: bool
    """Whether feedback took its place."""
    gain: bool
    """True where it multiplies place by place: nothing is transposed."""


class Graph:
    """The nodes behind ``output``, children before parents.

    ``parameters`` names the leaves that are parameters and ``data`` is the input. ``loaded``
    receives the name of a weight whenever its feedback is loaded in its place: that tells which saved tensors are
    feedback.
    """

    def __init__(self, output: Tensor, *, parameters: Mapping[int, str], data: Tensor, loaded: list[str]) -> None:
        self.parameters = dict(parameters)
        self.unregistered: dict[str, Tensor] = {}
        self.nodes = _ordered(output.grad_fn)
        self.saved = {node: _saved(node, loaded) for node in self.nodes}
        self.leaf = {node: id(v) for node in self.nodes if (v := getattr(node, "variable", None)) is not None}
        self.depends = {node for node, leaf in self.leaf.items() if leaf == id(data)}
        for node, leaf in self.leaf.items():
            if leaf != id(data) and leaf not in self.parameters:
                name = f"a tensor {tuple(node.variable.shape)} outside the model's parameters"
                self.parameters[leaf], self.unregistered[name] = name, node.variable
        self._below = self._find_below()
        self.sources: set[Any] = set()
        self.selected: set[Any] = set()
        """Weights that the data chooses among (experts by index, rows of a table), as they are or reshaped."""
        self._carriers: dict[Any, list[Carrier]] = {}
        self.parents: dict[Any, list[Any]] = {}
        for node in self.nodes:
            for child in children(node):
                self.parents.setdefault(child, []).append(node)
        self.spread()

    def spread(self) -> None:
        """Everything computed from what depends on the data depends on it."""
        self._carriers.clear()
        self.selected.clear()
        for node in self.nodes:
            below = children(node)
            if any(child in self.depends for child in below):
                self.depends.add(node)
                if len(below) == 1 and below[0] in self.selected and not self.saved[node]:
                    self.selected.add(node)
            elif node in self.sources and below and self.weights_below(node):
                chosen = self._constants(node)
                if not any(tensor.is_floating_point() or tensor.is_complex() for tensor in chosen):
                    self.selected.add(node)

    def has_other_data(self, node: Any) -> bool:
        """Whether a node also reads data that is more than a choice among weights."""
        return any(child not in self.selected for child in self.open_inputs(node))

    def add_sources(self, other: Graph) -> None:
        """Nodes whose constants differ from those of the same model on other data depend on the data too."""
        same = len(self.nodes) == len(other.nodes)
        for mine, theirs in zip(self.nodes, other.nodes if same else self.nodes, strict=True):
            constants, others = self._constants(mine), other._constants(theirs) if same else []
            if len(others) != len(constants) or not all(map(_equal, constants, others)):
                self.depends.add(mine)
                self.sources.add(mine)
        self.spread()

    def _constants(self, node: Any) -> list[Tensor]:
        """What a node keeps that was not computed from parameters; a leaf that is none of them keeps itself."""
        strange = self.parameters.get(self.leaf.get(node, 0)) in self.unregistered
        return [kept.tensor for kept in self.saved[node] if kept.constant] + ([node.variable] if strange else [])

    def assume_data(self) -> None:
        """Without other data to compare with, every constant counts as data."""
        self.sources = {node for node in self.nodes if self._constants(node)}
        self.depends |= self.sources
        self.spread()

    def weights_below(self, node: Any) -> frozenset[str]:
        """The names of the parameters a node was computed from."""
        return self._below.get(node, frozenset())

    def _find_below(self) -> dict[Any, frozenset[str]]:
        """The same for all nodes, children first, so that none is walked twice."""
        found: dict[Any, frozenset[str]] = {}
        for node in self.nodes:
            parts = {found[child] for child in children(node)}
            if (name := self.parameters.get(self.leaf.get(node, 0))) is not None:
                parts.add(frozenset({name}))
            found[node] = parts.pop() if len(parts) == 1 else frozenset[str]().union(*parts)
        return found

    def open_inputs(self, node: Any) -> list[Any]:
        """The inputs of a node that depend on the data: where it sends an error."""
        return [child for child in children(node) if child in self.depends]

    def carriers(self, node: Any) -> list[Carrier]:
        """What of the weights a node uses to send its error on."""
        if node not in self._carriers:
            self._carriers[node] = self._find_carriers(node)
        return self._carriers[node]

    def _find_carriers(self, node: Any) -> list[Carrier]:
        if not self.open_inputs(node):
            return []
        found = []
        for kept in self.saved[node]:
            tensor = kept.tensor
            if kept.weight is not None:
                found.append(Carrier(frozenset({kept.weight}), exchanged=True, gain=False))
            elif kept.attribute in ADDED or (not self.has_other_data(node) and tensor.grad_fn in self.selected):
                continue
            elif weights := self._made_of(tensor):
                found.append(Carrier(weights, exchanged=False, gain=self.multiplies_places(node, tensor)))
        return found

    def multiplies_places(self, node: Any, tensor: Tensor) -> bool:
        """Whether the error is multiplied by this tensor place by place, and not summed over its places next."""
        if tensor.is_complex() or (tensor.numel() > 1 and self._of_spectra(node)):
            return False  # a product of spectra is a convolution
        normalises = any(norm in type(node).__name__ for norm in NORMS)
        return normalises or (not self.summed_over(node, tensor) and elementwise(node, self.depends, tensor))

    def _of_spectra(self, node: Any) -> bool:
        """Whether a node multiplies what a Fourier transform makes of data, moved and scaled at most."""
        waiting, seen = self.open_inputs(node) if is_complex(node) else [], set()
        while waiting:
            now = waiting.pop()
            if "Fft" in type(now).__name__:
                return True
            scaled = any(kept.tensor.grad_fn not in self.depends for kept in self.saved[now])
            if now not in seen and is_complex(now) and (scaled or not self.saved[now]):
                waiting.extend(self.open_inputs(now))
            seen.add(now)
        return False

    def summed_over(self, node: Any, tensor: Tensor) -> bool:
        """Whether the next step sums over an axis along which the tensor varies: a product written by hand."""
        rank = len(sizes(node) or ())
        varies = {rank - 1 - axis for axis, size in enumerate(reversed(tensor.shape)) if size > 1}
        for parent in self.parents.get(node, ()):
            if type(parent).__name__.startswith(("Sum", "Mean")):
                axes = getattr(parent, "_saved_dim", None)  # none: over all
                if not axes or varies & {(axis if axis < 2**63 else axis - 2**64) % rank for axis in axes}:
                    return bool(varies)
        return False

    def _made_of(self, tensor: Tensor) -> frozenset[str]:
        """The parameters a saved tensor was computed from, if from nothing else."""
        if tensor.is_leaf:
            name = self.parameters.get(id(tensor))
            return frozenset({name}) if name is not None else frozenset()
        maker = tensor.grad_fn
        if maker not in self.saved or (maker in self.depends and maker not in self.selected):
            return frozenset()
        return self.weights_below(maker)


ADDED = ("_saved_attn_mask", "_saved_attn_bias")
"""What fused attention adds to its scores; the error does not go through it."""
NORMS = ("LayerNorm", "BatchNorm", "GroupNorm", "RmsNorm", "InstanceNorm")
"""Normalisations, whose weight scales their result place by place."""


def _ordered(root: Any) -> list[Any]:
    """All nodes, children first, in an order that depends on the graph alone."""
    order: list[Any] = []
    done: set[Any] = set()
    waiting = [(root, False)] if root is not None else []
    while waiting:
        node, expanded = waiting.pop()
        if expanded:
            order.append(node)
        elif node not in done:
            done.add(node)
            waiting.append((node, True))
            waiting.extend((child, False) for child in reversed(children(node)))
    return order


@cache
def _attributes(kind: Any) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_saved_"))


def _saved(node: Any, loaded: list[str]) -> list[Saved]:
    """The tensors a node saved."""
    if opaque(node):
        return [Saved("", tensor) for tensor in node.saved_tensors if isinstance(tensor, Tensor)]
    found: list[Saved] = []
    for attribute in _attributes(node.__class__):
        loaded.clear()
        try:
            value = getattr(node, attribute)
        except RuntimeError:  # changed in place since; a backward pass would say so
            continue
        weight = loaded[-1] if loaded else None
        items = value if isinstance(value, tuple | list) else (value,)
        found.extend(Saved(attribute, item, weight) for item in items if isinstance(item, Tensor))
    return found


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(torch.equal(a, b))
