"""A network cut into units and links: the trace of any feed-forward module, split at its monotone activations.

Every activation is a layer of units. So is every value that goes two ways, as a linear unit: a residual stream that
feeds a branch and a join is a layer of its own, and no computation belongs to two links. What lies between units is a
link, with one parent or, at a join, several. A unit's level is the longest way to it from the input; layers of one
level may be parallel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from assay.errors import expected
from assay.networks.energy_net.links import SHAPES, Link
from assay.networks.energy_net.units import IDENTITY, unit_of
from assay.solving.activations import Activation

INPUT = -1
"""The parent of a link that reads the input."""


@dataclass(frozen=True)
class Unit:
    """A layer of units: what drives it, by which activation it answers, and how deep it lies."""

    name: str
    activation: Activation
    link: Link
    parents: tuple[int, ...]
    level: int

    @property
    def constant(self) -> bool:
        """Whether its drive from below depends on the input alone; a link of units that also reads it has no such
        parent."""
        return self.parents == (INPUT,)


@dataclass(frozen=True)
class OrderedUnits:
    """The units in an order in which every parent comes first, and the link that reads the output from them."""

    units: tuple[Unit, ...]
    readout: Link
    readers: tuple[int, ...]
    """The units the output is read from."""

    @property
    def levels(self) -> int:
        return max(unit.level for unit in self.units)

    def children(self, index: int) -> list[int]:
        """The units a unit drives."""
        return [i for i, unit in enumerate(self.units) if index in unit.parents]


def split(net: nn.Module) -> OrderedUnits:
    """``net`` as units and links; an InputError if it cannot be traced, has no units, or is recurrent."""
    graph = _trace(net)
    modules = dict(net.named_modules())
    for name, module in modules.items():
        if isinstance(module, nn.RNNBase):
            raise expected("a feed-forward network", given=f"{type(module).__name__} at '{name}', which is recurrent",
                           do="train it by Backprop()")
    nodes = list(graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder" and node.users]
    if len(inputs) != 1:
        raise expected("a network of one input", given=f"{len(inputs)} inputs", do="wrap it in a module that takes one")
    places: dict[fx.Node, int] = {inputs[0]: INPUT}
    units: list[Unit] = []
    for node in nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        kind = unit_of(node, modules)
        source = node.all_input_nodes[0] if kind is not None else node
        if kind is None and not _branches(node):
            continue
        link, parents = _link(source, places, modules)
        level = 1 + max((units[parent].level for parent in parents if parent != INPUT), default=0)
        units.append(Unit(str(node.target if node.op == "call_module" else node.name), kind or IDENTITY, link, parents,
                          level))
        places[node] = len(units) - 1
    if not any(unit.activation is not IDENTITY for unit in units):
        raise expected("a network with activations (Tanh, Sigmoid, ReLU, Hardtanh, LeakyReLU, Softplus, ELU)",
                       given=f"{type(net).__name__} with none",
                       do="GELU and SiLU are not monotone and stay inside links; without any unit use Backprop()")
    output = next(node for node in nodes if node.op == "output").args[0]
    if not isinstance(output, fx.Node):
        raise expected("a network with one output", given=type(output).__name__)
    readout, readers = _link(output, places, modules)
    if INPUT in readers or readout.clamped is not None:
        raise expected("an output read from units", given="an output that also reads the input directly",
                       do="let the input pass through a unit first")
    return OrderedUnits(tuple(units), readout, readers)


def outputs_of(net: nn.Module, parts: OrderedUnits) -> int:
    """The outputs of the last layer that says how many it has: of those computed last, or else defined last."""
    modules = [*net.modules(), *parts.readout.own_modules()]
    sizes = [getattr(m, "out_features", getattr(m, "out_channels", None)) for m in modules]
    known = [int(size) for size in sizes if size is not None]
    if not known:
        raise expected("classes=, the number of outputs", given="a network whose last layer does not tell")
    return known[-1]


def _branches(node: fx.Node) -> bool:
    """Whether a value goes more than one way; asking for its shape is none."""
    return node.target not in SHAPES and sum(user.target not in SHAPES for user in node.users) > 1


def _link(output: fx.Node, places: dict[fx.Node, int], modules: dict[str, nn.Module]) -> tuple[Link, tuple[int, ...]]:
    """Everything between ``output`` and the units, or else the input, it is computed from."""
    inside: set[fx.Node] = set()
    sources: list[fx.Node] = []
    waiting = [output]
    while waiting:
        node = waiting.pop()
        if node in places:
            sources += [] if node in sources else [node]
        elif node not in inside:
            inside.add(node)
            waiting += node.all_input_nodes
    sources.sort(key=lambda node: places[node])
    ordered = tuple(node for node in output.graph.nodes if node in inside)
    clamped = sources.pop(0) if len(sources) > 1 and places[sources[0]] == INPUT else None
    return Link(ordered, output, tuple(sources), modules, clamped), tuple(places[node] for node in sources)


class _Tracer(fx.Tracer):
    """Looks into containers and, unless that fails, into a user's own modules."""

    def __init__(self, *, open_all: bool) -> None:
        super().__init__()
        self.open_all = open_all

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        own = not m.__module__.startswith("torch.nn")
        return not isinstance(m, nn.Sequential) and not (own and self.open_all)


def _trace(net: nn.Module) -> Any:
    if not isinstance(net, nn.Module):
        raise expected("a torch.nn.Module", given=type(net).__name__)
    if not isinstance(net, nn.Sequential) and net.__module__.startswith("torch.nn"):
        raise expected("a network of layers and activations", given=f"a lone {type(net).__name__}")
    for open_all in (True, False):
        try:
            return _Tracer(open_all=open_all).trace(net)
        except (fx.proxy.TraceError, TypeError, RuntimeError, torch.fx.proxy.TraceError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    raise expected("a network that torch.fx can trace", given=f"{type(net).__name__}: {reason}",
                   do="put data-dependent control flow into a module of its own inside nn.Sequential")
