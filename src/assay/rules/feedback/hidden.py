"""Weights that carry the error although no node has them in its books as a weight.

A node is asked twice what it sends, with a tensor exchanged in between: so a weight is found that was detached, that a
function of its own keeps, that was computed without gradients, or that was joined with data to look like data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from assay.rules.feedback.coverage import WeightCoverage
from assay.rules.feedback.graph import Graph
from assay.rules.feedback.nodes import Sent, ask, changed, children, elementwise, kind, make_error, sizes, spread_over

JOINS = ("Cat", "Stack")
"""Operations of several tensors that do not add them."""


def find_hidden(graph: Graph, parameters: Mapping[str, nn.Parameter]) -> list[WeightCoverage]:
    """Parameters kept outside autograd's books, and matrices that data is spread over."""
    asked = [node for node in graph.nodes if _passes(graph, node)]
    found = []
    for node, names in _keepers(graph, parameters, [node for node in asked if not graph.carriers(node)]).items():
        found += [(name, f"kept by {kind(node)} outside autograd's books, which sends the error through it")
                  for name in names]
    for node in asked:
        found += [(name, f"joined by {kind(node)} with data that is repeated over it, so that what follows sends the "
                         "error through it") for name in _spread(graph, node)]
    return [WeightCoverage(name, "not reached", False, reason) for name, reason in found]


def find_fixed(graph: Graph, shifted: Graph | None, model: nn.Module, *, buffers: Mapping[int, str],
               written: Collection[str]) -> list[WeightCoverage]:
    """Matrices that are no parameters, by which the error is sent on: a buffer, or weights taken out of the graph.

    ``shifted`` is the graph of the same data with other parameters, where that could be had: what differs there was
    computed from parameters. ``buffers`` names the model's by their memory; those ``written`` by the pass itself learn.
    """
    known = {parameter.data_ptr() for parameter in model.parameters()}  # found by ``find_hidden``
    comparable = shifted if shifted is not None and len(shifted.nodes) == len(graph.nodes) else None
    rows = {}
    for number, node in enumerate(graph.nodes):
        if not _passes(graph, node):
            continue
        for place, kept in enumerate(graph.saved[node]):
            tensor = kept.tensor
            matrix = kept.constant and tensor.is_floating_point() and sum(size > 1 for size in tensor.shape) > 1
            data = node in graph.sources and buffers.get(tensor.data_ptr()) not in written
            if not matrix or data or tensor.data_ptr() in known:
                continue
            if elementwise(node, graph.depends, tensor) or not _depends_on(graph, node, tensor):
                continue
            others = comparable.saved[comparable.nodes[number]] if comparable is not None else []
            moved = len(others) == len(graph.saved[node]) and not torch.equal(tensor, others[place].tensor)
            name = buffers.get(tensor.data_ptr(), f"a matrix {tuple(tensor.shape)} used by {kind(node)}")
            if moved:
                rows[name] = WeightCoverage(name, "not reached", False, "computed from parameters outside autograd's "
                                                                        "books; the error goes through it")
            elif name in written:
                rows[name] = WeightCoverage(name, "not reached", False, "a buffer that the model writes as it runs, so "
                                                                        "it learns; the error goes through it")
            else:
                rows[name] = WeightCoverage(name, "constant", True, f"no parameter, so it has no feedback: {kind(node)}"
                                                                    " sends the error through its exact transpose")
    return list(rows.values())


def find_rearranged(graph: Graph) -> list[WeightCoverage]:
    """Parameters that scale several rearrangements of the same data, which are then added: a matrix in disguise.

    ``sum(x.roll(k) * w[k] for k in ...)`` multiplies place by place and sends the error back through a transpose; so do
    single numbers, each a parameter of its own.
    """
    gains: dict[Any, list[tuple[Any, Any, frozenset[str]]]] = {}
    for node in graph.nodes:
        names = frozenset[str]().union(*(c.weights for c in graph.carriers(node) if c.gain))
        if names and "Norm" not in kind(node) and _passes(graph, node):
            for child in graph.open_inputs(node):
                gains.setdefault(_rearranged(graph, child), []).append((node, child, names))
    found: set[str] = set()
    for uses in gains.values():
        sums = [(child, _added_into(graph, node), names) for node, child, names in uses]
        for i, (a, one, names) in enumerate(sums):
            found.update(*(names | others for b, two, others in sums[:i] if a is not b and one & two))
    why = ("used to scale several rearrangements of the same data that are added: a product with a matrix, through "
           "whose transpose the error goes")
    return [WeightCoverage(name, "not reached", False, why) for name in sorted(found)]


def _rearranged(graph: Graph, node: Any) -> Any:
    """What a tensor is a rearrangement of: the node below all that only moves values about."""
    while len(below := children(node)) == 1 and not any(
            kept.tensor.is_floating_point() for kept in graph.saved[node]) and node not in graph.leaf:
        node = below[0]
    return node


def _added_into(graph: Graph, node: Any) -> frozenset[Any]:
    """The nodes that sum a node with others, as it is or rearranged; itself, where it scales several inputs."""
    found = {node} if len(graph.open_inputs(node)) > 1 else set()
    seen: set[tuple[Any, bool]] = set()
    waiting = [(node, False)]
    while waiting:
        below, joined = waiting.pop()
        for parent in graph.parents.get(below, ()):
            state = parent, joined or kind(parent) in JOINS
            if state in seen or not (not graph.saved[parent] or _unchanged(parent, below)):
                continue
            seen.add(state)
            waiting.append(state)
            if (kind(parent) not in JOINS and len(children(parent)) > 1) or (joined and _sums(parent)):
                found.add(parent)
    return frozenset(found)


def _unchanged(node: Any, child: Any) -> bool:
    """Whether a node sends its error to this input as it came."""
    asked = _answer(node)
    if asked is None:
        return False
    error, sent = asked
    return any(below is child and given is not None and error[0] is not None and torch.equal(given, error[0])
               for (below, _), given in zip(node.next_functions, sent, strict=True))


def _sums(node: Any) -> bool:
    """Whether a node of one input makes few values of many and every one of the many counts: no choice among them."""
    asked = _answer(node)
    given = asked[1][0] if asked is not None and len(asked[1]) == 1 else None
    shape = sizes(node)
    return shape is not None and given is not None and given.numel() > shape.numel() and bool(given.all())


def _passes(graph: Graph, node: Any) -> bool:
    """Whether a node sends an error to something that learns."""
    direct = type(node).__name__ == "DirectBackward"
    return node in graph.depends and not direct and any(map(graph.weights_below, graph.open_inputs(node)))


def _keepers(graph: Graph, parameters: Mapping[str, nn.Parameter], nodes: list[Any]) -> dict[Any, list[str]]:
    """Which of these nodes send something else when the memory of a parameter is changed, and of which parameter."""
    before: dict[Any, tuple[list[Tensor | None], Sent]] = {}
    for node in nodes:
        if (asked := _answer(node)) is not None:
            before[node] = asked
    with changed(parameters.values()):
        suspects = [node for node, asked in before.items() if _differs(graph, node, *asked)]
    found: dict[Any, list[str]] = {}
    for name, parameter in parameters.items() if suspects else ():
        with changed([parameter]):
            for node in suspects:
                if _differs(graph, node, *before[node]):
                    found.setdefault(node, []).append(name)
    return found


def _spread(graph: Graph, node: Any) -> set[str]:
    """Matrices to which a node adds data that it repeats over them, where what follows carries the error by the sum."""
    names: set[str] = set()
    if kind(node) in JOINS:  # there the weight has places of its own (see ``mixed``)
        return names
    for index, (child, output) in enumerate(node.next_functions):
        shape = None if child is None or child in graph.depends else sizes(child, output)
        if shape is not None and sum(size > 1 for size in shape) > 1 and any(
                other in graph.depends and spread_over(node, place)
                for place, (other, _) in enumerate(node.next_functions) if place != index):
            names |= graph.weights_below(child)
    if names and not graph.carriers(node) and any(
            kept.tensor.grad_fn is node and _depends_on(graph, parent, kept.tensor)
            for parent in graph.parents.get(node, ()) for kept in graph.saved[parent] if kept.weight is None):
        return names
    return set()


def _depends_on(graph: Graph, node: Any, tensor: Tensor) -> bool:
    """Whether what a node sends to inputs that depend on the data changes with a tensor it saved."""
    asked = _answer(node)
    if asked is None:
        return True  # nothing is known of it
    with changed([tensor]):
        return _differs(graph, node, *asked)


def _answer(node: Any) -> tuple[list[Tensor | None], Sent] | None:
    """An error, the same each time, and what a node sends for it."""
    generator = torch.Generator().manual_seed(1)
    error = make_error(node, lambda like: torch.rand(like.shape, generator=generator).to(like) + 0.5)
    sent = None if error is None else ask(node, error)
    if error is None or sent is None:
        return None
    return error, tuple(part.clone() if isinstance(part, Tensor) else None for part in sent)


def _differs(graph: Graph, node: Any, error: list[Tensor | None], before: Sent) -> bool:
    after = ask(node, error)
    if after is None:
        return False
    for (child, _), one, two in zip(node.next_functions, before, after, strict=True):
        if child in graph.depends and one is not None and two is not None and not torch.equal(
                one.nan_to_num(), two.nan_to_num()):
            return True
    return False
