"""Which weights used feedback, which needed none, and which could not be reached and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from assay.results import Table
from assay.rules.feedback.routes import Usage

PASSING = ("T", "Transpose", "Permute", "View", "Expand", "Unsqueeze", "Squeeze", "Reshape", "Slice", "Select",
           "ToCopy", "UnsafeView", "Alias", "Split", "Chunk", "Clone")
LOOKS_UP = ("Embedding", "IndexSelect", "Gather")
ADDS = ("Add", "Sub", "Cat", "Stack", "Copy")


@dataclass(frozen=True)
class WeightCoverage:
    """One weight: ``reached`` is False when its transpose may have carried the error, and ``reason`` says why."""

    name: str
    status: str
    reached: bool
    reason: str


@dataclass(frozen=True)
class Coverage:
    """Every parameter with two or more axes and what became of it in a backward pass."""

    weights: tuple[WeightCoverage, ...]

    @property
    def complete(self) -> bool:
        """True when no weight's transpose can have carried the error."""
        return all(weight.reached for weight in self.weights)

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the weights that sent an error through feedback."""
        return tuple(weight.name for weight in self.weights if weight.status == "feedback")

    def __str__(self) -> str:
        width = max((len(weight.name) for weight in self.weights), default=0)
        lines = [f"{w.name:<{width}}  {w.status}{': ' + w.reason if w.reason else ''}" for w in self.weights]
        return "\n".join([f"feedback on {len(self.used)} of {len(self.weights)} weights", *lines])

    def table(self) -> Table:
        """The same for a report."""
        rows = tuple((w.name, w.status, w.reason) for w in self.weights)
        return Table(title="Which weights used feedback", columns=("weight", "status", "reason"), rows=rows)


def describe(model: nn.Module, usage: Usage, loss: Tensor) -> Coverage:
    """The coverage of a backward pass whose graph still hangs on ``loss``."""
    consumers = consumers_of_parameters(loss)
    rows = []
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            continue
        if name in usage.sent:
            rows.append(WeightCoverage(name, "feedback", True, ""))
        elif name in usage.at_input:
            rows.append(WeightCoverage(name, "first layer", True, "nothing below it learns, so it sends no error"))
        elif name in usage.odd_layout:
            rows.append(WeightCoverage(name, "not reached", False, "samples are mixed in its input: no direct route"))
        elif not parameter.requires_grad:
            rows.append(WeightCoverage(name, "frozen", False, "used by an operation that has no feedback route"))
        else:
            rows.append(_other(name, consumers.get(id(parameter), set())))
    return Coverage(tuple(rows))


def _other(name: str, operations: set[str]) -> WeightCoverage:
    if not operations:
        return WeightCoverage(name, "not used", True, "the loss does not depend on it")
    listed = ", ".join(sorted(operations))
    if all(operation.startswith(LOOKS_UP) for operation in operations):
        return WeightCoverage(name, "look-up", True, f"{listed} sends no error below itself")
    if all(operation.startswith(ADDS) for operation in operations):
        return WeightCoverage(name, "additive", True, f"used by {listed}: no transpose is involved")
    return WeightCoverage(name, "not reached", False,
                          f"used by {listed}, which has no feedback route: its transpose carries the error")


def consumers_of_parameters(loss: Tensor) -> dict[int, set[str]]:
    """The operations that read each parameter, by the parameter's id; views are looked through."""
    found: dict[int, set[str]] = {}
    seen: set[Any] = set()
    stack: list[tuple[Any, str]] = [(loss.grad_fn, "")] if loss.grad_fn is not None else []
    while stack:
        node, consumer = stack.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.setdefault(id(variable), set()).add(consumer)
            continue
        own = type(node).__name__.removesuffix("Backward0").removesuffix("Backward1").removesuffix("Backward")
        reader = consumer if own in PASSING and consumer else own
        if (node, reader) in seen:
            continue
        seen.add((node, reader))
        stack.extend((below, reader) for below, _ in node.next_functions if below is not None)
    return found
