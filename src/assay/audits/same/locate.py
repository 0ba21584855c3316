"""The first module whose inputs agree and whose outputs do not; for gradients, the same walk backwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from assay.audits.same.judge import Truth, compare
from assay.audits.same.quantities import Inquiry, Kind, Quantities, Quantity
from assay.probe import tree
from assay.probe.hooks import Hook, watching
from assay.probe.values import exact, is_continuous

Key = tuple[str, str, int]
"""Entered or left, the module, and how often it was called before."""


@dataclass
class TracedPass:
    """What entered and left every module of a pass, and the gradients that came back there."""

    order: list[Key] = field(default_factory=list)
    parents: dict[Key, str] = field(default_factory=dict)
    values: dict[Key, list[Tensor]] = field(default_factory=dict)
    gradients: dict[Key, dict[int, Tensor]] = field(default_factory=dict)
    quantities: Quantities = field(default_factory=dict)


def traced(question: Inquiry, model: nn.Module, leaves: list[Any], dtype: torch.dtype | None) -> TracedPass:
    """One pass with every module watched, forwards and backwards."""
    found, counts, stack = TracedPass(), dict[str, int](), list[tuple[str, int]]()

    def keep(key: Key, value: Any) -> None:
        found.order.append(key)
        found.parents[key] = stack[-1][0] if stack else ""
        found.values[key], found.gradients[key] = [], {}
        for number, leaf in enumerate(x for x in tree.tensors(value) if is_continuous(x)):
            found.values[key].append(exact(leaf).clone())
            if leaf.requires_grad:
                leaf.register_hook(_keeper(found.gradients[key], number))  # type: ignore[no-untyped-call]

    def enter(name: str) -> Hook:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            number = counts.get(name, 0)
            counts[name] = number + 1
            keep(("enter", name, number), (args, kwargs))
            stack.append((name, number))

        return hook

    def leave(name: str) -> Hook:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            while stack and stack[-1][0] != name:
                stack.pop()
            number = stack.pop()[1] if stack else 0
            keep(("exit", name, number), output)

        return hook

    with watching(model, enter, leave):
        found.quantities = question.ask(model, leaves, dtype)
    return found


def _keeper(place: dict[int, Tensor], number: int) -> Callable[[Tensor], None]:
    def hook(gradient: Tensor) -> None:
        place.setdefault(number, exact(gradient).clone())

    return hook


def first_difference(exactly: TracedPass, rough: TracedPass, nudged: TracedPass, found: TracedPass) -> str | None:
    """The module to blame, "(model)" for the outermost code; None if the traces do not show one."""

    def differs(kind: Callable[[TracedPass], Quantities]) -> bool:
        truth = Truth(kind(exactly), kind(rough), kind(nudged))
        shared = truth.exact.keys() & truth.rough.keys()
        truth = Truth({k: v for k, v in truth.exact.items() if k in shared}, truth.rough, truth.nudged)
        return any(one.differs for one in compare("", truth, kind(found)) if one.quantity in shared)

    common = [key for key in exactly.order if key in found.values and key in rough.values and key in nudged.values]
    for key in common:
        if differs(lambda t, key=key: {_number(i): v for i, v in enumerate(t.values[key])}):  # type: ignore[misc]
            return (exactly.parents[key] if key[0] == "enter" else key[1]) or "(model)"
    guilty = []
    for key in reversed([key for key in common if key[0] == "exit"]):
        if differs(lambda t, key=key: _gradients(t, key)):  # type: ignore[misc]
            continue
        inner = ("enter", *key[1:])
        prefix = f"{key[1]}." if key[1] else ""
        below = differs(lambda t, inner=inner: _gradients(t, inner))  # type: ignore[misc]
        if below or differs(lambda t, prefix=prefix: {  # type: ignore[misc]
            Quantity(Kind.OUTPUT, n.of): v for n, v in t.quantities.items()
            if n.kind is Kind.GRADIENT and n.of.startswith(prefix)
        }):  # fmt: skip
            guilty.append(key[1])
    innermost = [m for m in guilty if not any(o != m and o.startswith(f"{m}." if m else "") for o in guilty)]
    return (innermost[0] or "(model)") if innermost else None


def _number(place: int) -> Quantity:
    return Quantity(Kind.OUTPUT, str(place))


def _gradients(trace: TracedPass, key: Key) -> Quantities:
    values = trace.values.get(key, [])
    back = trace.gradients.get(key, {})
    return {_number(i): back.get(i, torch.zeros_like(v)) for i, v in enumerate(values)}
