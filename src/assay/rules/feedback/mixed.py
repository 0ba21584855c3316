"""Products of data with data in which a weight is hidden: joined to the data, or turned into a matrix by it.

``h @ cat([w, h]).T`` multiplies by a tensor that depends on the data, but where ``w`` stands it is the weight itself.
``x @ (p(x) @ w).view(8, 8)`` uses feedback where ``p`` learns, but what is sent to ``x`` goes through ``w`` as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from assay.rules.feedback.coverage import WeightCoverage
from assay.rules.feedback.graph import Graph, Saved
from assay.rules.feedback.nodes import (
    Sent,
    ask,
    changed,
    changed_where,
    children,
    elementwise,
    kind,
    make_error,
    otherwise,
    output_like,
)

MADE = ("used to make a matrix of the data by which {} multiplies data from below it: the error goes through the "
        "weight itself")
JOINED = "joined with data by {}; {} multiplies other data by what is joined, the weight itself among it"


def find_mixed(graph: Graph) -> list[WeightCoverage]:
    """Weights whose own values are part of a matrix that depends on the data, and by which the error is sent on."""
    return list(_Mixtures(graph).found())


class _Mixtures:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def order(self) -> dict[Any, int]:
        return {node: number for number, node in enumerate(self.graph.nodes)}

    def found(self) -> Iterator[WeightCoverage]:
        for node in self.graph.nodes:
            if node not in self.graph.depends or not self.graph.open_inputs(node):
                continue
            for kept in self.graph.saved[node]:
                maker = kept.tensor.grad_fn
                if kept.weight is not None or maker is None or maker not in self.graph.depends:
                    continue
                for names, reason in (self.made(node, kept, maker), self.joined(node, kept, maker)):
                    yield from (WeightCoverage(name, "not reached", False, reason) for name in sorted(names))

    def made(self, node: Any, kept: Saved, maker: Any) -> tuple[Collection[str], str]:
        """Weights that turn data into the matrix ``kept``, where data from below them is multiplied by it."""
        products = self._products(maker)
        if not products or self._gates(node, kept.tensor) or not self._proportional(node, kept.tensor):
            return (), ""
        uses = {use for child in self.graph.open_inputs(node) for use in self._first_uses(child)} - products
        names = {name for product in products if self._any_below(product, uses) for name in self._fed_back(product)}
        return names, MADE.format(kind(node))

    def _gates(self, node: Any, tensor: Tensor) -> bool:
        """Whether a node multiplies by a tensor place by place, and nothing sums over its places next."""
        return not self.graph.summed_over(node, tensor) and elementwise(node, self.graph.depends, tensor, repeated=True)

    def _products(self, maker: Any) -> set[Any]:
        """The products with feedback of which a tensor is a sum of rearrangements, and of nothing else."""
        found, waiting, seen = set(), [maker], set()
        while waiting:
            now = waiting.pop()
            if now in seen:
                continue
            seen.add(now)
            if self._fed_back(now):
                found.add(now)
                continue
            below = self.graph.open_inputs(now)
            if not below or not (self._moves(now) or self._scales(now)):
                return set()
            waiting.extend(below)
        return found

    def _scales(self, node: Any) -> bool:
        """Whether a node multiplies data by weights place by place, so that what it sends is the same for all data."""
        carriers = self.graph.carriers(node)
        data = [kept.tensor for kept in self.graph.saved[node] if kept.tensor.grad_fn in self.graph.depends]
        return bool(carriers) and all(carrier.gain for carrier in carriers) and self._sends(node, data) == "the same"

    def _proportional(self, node: Any, tensor: Tensor) -> bool:
        """Whether twice the tensor makes a node send twice as much to other data: it multiplies by it."""
        return self._sends(node, [tensor], lambda value: 2 * value, apart_from=tensor.grad_fn) == "twice"

    def _sends(self, node: Any, tensors: list[Tensor], how: Callable[[Tensor], Tensor] = otherwise, *,
               apart_from: Any = None) -> str:
        """What becomes of what a node sends to data when these tensors are changed."""
        error = make_error(node, _even)
        before = None if error is None else ask(node, error)
        if error is None or before is None:
            return "unknown"
        with changed(tensors, how):
            after = ask(node, error)
        pairs = [(one, two) for (child, _), one, two in zip(node.next_functions, before, after or before, strict=True)
                 if child in self.graph.depends and child is not apart_from and one is not None and two is not None]
        if after is None or not any(one.any() for one, _ in pairs):
            return "nothing"
        return next((said for said, factor in (("the same", 1), ("twice", 2))
                     if all(_same(factor * one, two) for one, two in pairs)), "otherwise")

    def _fed_back(self, node: Any) -> set[str]:
        """The weights whose feedback a node uses in their place."""
        if type(node).__name__ == "DirectBackward":
            return set(self.graph.weights_below(node.next_functions[1][0]))
        return {name for carrier in self.graph.carriers(node) if carrier.exchanged for name in carrier.weights}

    def _first_uses(self, node: Any) -> set[Any]:
        """Nodes where a parameter takes part that an error arrives at before it has gone through any feedback."""
        found, waiting, seen = set(), [node], set()
        while waiting:
            now = waiting.pop()
            if now in seen:
                continue
            seen.add(now)
            fed_back = self._fed_back(now)
            if fed_back or any(child not in self.graph.depends and self.graph.weights_below(child)
                               for child in children(now)):
                found.add(now)
            if not fed_back:
                waiting.extend(self.graph.open_inputs(now))
        return found

    def _any_below(self, product: Any, uses: Collection[Any]) -> bool:
        """Whether any of these nodes takes part in making what a product is given."""
        first = min((self.order[use] for use in uses), default=len(self.order))
        direct = type(product).__name__ == "DirectBackward"
        waiting = children(product)[:1] if direct else self.graph.open_inputs(product)
        seen: set[Any] = set()
        while waiting:
            now = waiting.pop()
            if now in uses:
                return True
            if now not in seen and self.order[now] > first:  # children come before their parents
                seen.add(now)
                waiting.extend(children(now))
        return False

    def joined(self, node: Any, kept: Saved, maker: Any) -> tuple[Collection[str], str]:
        """Weights that stand beside data in the tensor ``kept``, where other data is multiplied by it."""
        join, chain = maker, [maker]
        while self._moves(join) and len(children(join)) == 1:
            join = children(join)[0]
            chain.append(join)
        names = {name for child in children(join) if child not in self.graph.depends
                 for name in self.graph.weights_below(child)}
        if not names or not self._moves(join) or self.graph.multiplies_places(node, kept.tensor):
            return (), ""
        inside = self._weights_inside(kept.tensor, chain)
        error = make_error(node, _even)
        before = None if error is None else ask(node, error)
        if error is None or before is None or inside is None or not inside.any():
            return (), ""
        with changed_where(kept.tensor, inside):
            after = ask(node, error)
        same = after is not None and all(map(_same, self._arriving(node, before), self._arriving(node, after)))
        return (() if same else names), JOINED.format(kind(join), kind(node))

    def _moves(self, node: Any) -> bool:
        """Whether a node moves and adds what it is given, and nothing else."""
        return node in self.graph.depends and bool(children(node)) and not any(map(_numbers, self.graph.saved[node]))

    def _weights_inside(self, tensor: Tensor, chain: list[Any]) -> Tensor | None:
        """Where a tensor holds no data, only weights: where an error at it reaches no data through the ``chain``."""
        with torch.enable_grad():
            error = _even(tensor.detach()).requires_grad_()
            arrived = self._descend(chain[0], tensor.output_nr, error)
            total = [part.mul(_even(part)).sum() for part in arrived if part.requires_grad]
            if not total:
                return None
            reached = torch.autograd.grad(torch.stack([part.real for part in total]).sum(), error)[0]
        return reached == 0

    def _arriving(self, node: Any, sent: Sent) -> list[Tensor]:
        """What a node sends, where it arrives at data: behind whatever only moves values about."""
        return [part for (child, output), given in zip(node.next_functions, sent, strict=True)
                if child in self.graph.depends and given is not None for part in self._descend(child, output, given)]

    def _descend(self, node: Any, output: int, error: Tensor) -> list[Tensor]:
        if not self._moves(node):
            return [error]
        sent = ask(node, output_like(node, output, error), learn=error.requires_grad)
        return [error] if sent is None else self._arriving(node, sent)


def _numbers(kept: Saved) -> bool:
    return kept.tensor.is_floating_point() or kept.tensor.is_complex()


def _even(like: Tensor) -> Tensor:
    """The same numbers each time, none near zero, hardly two alike."""
    generator = torch.Generator().manual_seed(1)
    return (torch.rand(like.shape, generator=generator, dtype=torch.float64) + 0.5).to(like)


def _same(one: Tensor, two: Tensor) -> bool:
    return torch.equal(one.nan_to_num(), two.nan_to_num())
