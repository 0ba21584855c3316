"""Residual blocks by structure: modules around a skip addition in the autograd graph, whatever their class or shape.

An addition is a skip addition of a module when both of its terms were computed from the module's input, one of them by
more products with weights than the other, and the shorter one by at most one (a projection where the shape changes,
which is not on the longer way: a stage that first changes the shape for its block does not add to its own input).
Gates of a recurrent cell add two terms of equal length, a bias does not come from the input: neither is a skip.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from assay.probe.copies import everything_learning

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def residual_modules(model: nn.Module, x: Tensor) -> list[str]:
    """The names of the modules that add to their own input, in the order in which they run.

    Of nested ones the outermost is taken, unless it holds two or more that run one after the other (a stage, a whole
    backbone). Empty where there are none, or where the graph cannot be read.
    """
    calls = _record(model, x)
    found = [call for call in calls if call.count == 1 and call.start is not None and call.end_node is not None
             and not isinstance(call.module, CONTAINERS) and call.has_weights]
    if not found:
        return []
    graph = _Reach([call.end_node for call in calls if call.end_node is not None])
    residual = [call for call in found if graph.adds_to_input(call.start, call.end_node)]
    holds = {id(call): [inner for inner in residual if call.began < inner.began and inner.ended < call.ended]
             for call in residual}
    blocks = _outermost([call for call in residual if len(_outermost(holds[id(call)])) < 2])
    classes = {type(call.module) for call in blocks}
    # A stage that holds a single block is still a stage: its block has the class of the others.
    inner = {id(call): [one for one in _outermost(holds[id(call)]) if type(one.module) in classes] for call in blocks}
    return [(inner[id(call)] or [call])[0].name for call in blocks]


class _NodeCall:
    """One call of a module: when it ran, and the graph nodes of its first tensor in and out."""

    def __init__(self, name: str, module: nn.Module, began: int, start: Any) -> None:
        self.name, self.module, self.began, self.start = name, module, began, start
        self.ended, self.count = -1, 1
        self.end_node: Any = None
        self.has_weights = any(parameter.ndim > 1 for parameter in module.parameters())
        self.kept: Tensor | None = None


def _outermost(calls: list[_NodeCall]) -> list[_NodeCall]:
    return [call for call in calls
            if not any(other.began < call.began and call.ended < other.ended for other in calls)]


def _record(model: nn.Module, x: Tensor) -> list[_NodeCall]:
    """Every module call of a forward pass with gradients, in evaluation mode; the model is left as it was."""
    from assay.probe.blocks import evaluating, first_tensor

    calls: list[_NodeCall] = []
    waiting: dict[int, list[_NodeCall]] = {}
    clock = count()
    handles = []

    def begin(name: str, module: nn.Module, given: Any) -> None:
        tensor = first_tensor(given)
        call = _NodeCall(name, module, next(clock), None if tensor is None else _node(tensor))
        calls.append(call)
        waiting.setdefault(id(module), []).append(call)

    def finish(module: nn.Module, output: Any) -> None:
        call = waiting[id(module)].pop()
        call.ended, call.kept = next(clock), first_tensor(output)
        call.end_node = None if call.kept is None else call.kept.grad_fn

    data = x.detach().clone().requires_grad_() if x.is_floating_point() else x
    try:
        for name, module in model.named_modules():
            if name:
                handles.append(module.register_forward_pre_hook(
                    lambda m, a, k, name=name: begin(name, m, (a, k)), with_kwargs=True))
                handles.append(module.register_forward_hook(lambda m, a, o: finish(m, o)))
        with evaluating(model), torch.random.fork_rng(devices=[]), torch.enable_grad(), everything_learning(model):
            model(data)
    finally:
        for handle in handles:
            handle.remove()
    counts: dict[int, int] = {}
    for call in calls:
        counts[id(call.module)] = counts.get(id(call.module), 0) + 1
    for call in calls:
        call.count = counts[id(call.module)]
    return calls


def _node(tensor: Tensor) -> Any:
    """The graph node of a tensor, also of a leaf."""
    if tensor.grad_fn is not None or not tensor.requires_grad:
        return tensor.grad_fn
    view: Any = tensor.view_as(tensor).grad_fn
    return view.next_functions[0][0]


class _Reach:
    """The graph behind some nodes, children first, with what a product with a weight is."""

    def __init__(self, roots: list[Any]) -> None:
        self.order: list[Any] = []
        seen: set[Any] = set()
        waiting = [(root, False) for root in roots]
        while waiting:
            node, expanded = waiting.pop()
            if expanded:
                self.order.append(node)
            elif node not in seen:
                seen.add(node)
                waiting.append((node, True))
                waiting.extend((child, False) for child, _ in node.next_functions if child is not None)
        self.place = {node: i for i, node in enumerate(self.order)}
        self.below = [[self.place[child] for child, _ in node.next_functions if child is not None]
                      for node in self.order]
        self.weight = [bool((v := getattr(node, "variable", None)) is not None and isinstance(v, nn.Parameter)
                            and v.ndim > 1) for node in self.order]
        views = ("T", "Transpose", "Permute", "View", "Expand", "Unsqueeze", "Slice", "Select", "Split", "Alias")
        for i, node in enumerate(self.order):  # a view of a weight is that weight
            if type(node).__name__.startswith(views) and len(self.below[i]) == 1:
                self.weight[i] = self.weight[i] or (self.weight[self.below[i][0]])

    def adds_to_input(self, start: Any, end: Any) -> bool:
        """Whether an addition between ``start`` and ``end`` takes a long and a short way from ``start``."""
        if start not in self.place or end not in self.place:
            return False
        first, last = self.place[start], self.place[end]
        # products[i]: the most weights multiplied by on a way from start to i; missing where none leads there.
        products = {first: 0}
        for i in range(first + 1, last + 1):
            ways = [products[b] for b in self.below[i] if b in products]
            if ways:
                products[i] = max(ways) + any(self.weight[b] for b in self.below[i])
        if last not in products:
            return False
        behind = {last}
        for i in range(last, first, -1):  # only what the output is made of
            if i in behind:
                behind.update(b for b in self.below[i] if b in products)
        for i in behind:
            terms = self.below[i]
            if type(self.order[i]).__name__.startswith("Add") and len(terms) == 2 and all(t in products for t in terms):
                short, long = sorted(products[t] for t in terms)
                if short <= 1 and long > short and not (short and self._passes_one_product(first, i, products)):
                    return True
        return False

    def _passes_one_product(self, first: int, last: int, products: dict[int, int]) -> bool:
        """Whether all ways lead through the same first product: then the skip begins behind it, not at ``first``."""
        gates = [i for i, count in products.items()
                 if count == 1 and i <= last and any(self.weight[b] for b in self.below[i])]
        for gate in gates:
            reached = {first}
            for i in range(first + 1, last + 1):
                if i != gate and i in products and any(b in reached for b in self.below[i]):
                    reached.add(i)
            if last not in reached:
                return True
        return False
