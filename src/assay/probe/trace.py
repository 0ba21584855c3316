"""What goes into and comes out of every module during one pass."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from assay.probe import tree
from assay.probe.hooks import watching
from assay.probe.subject import Leaves, Probe
from assay.probe.values import exact, has_numbers, is_continuous


@dataclass(frozen=True)
class Event:
    """A module was entered with, or left with, these tensors; ``calls`` counts how often it was called before."""

    kind: Literal["enter", "exit"]
    module: str
    call: int
    parent: str
    tensors: tuple[tuple[str, Tensor], ...]

    @property
    def key(self) -> tuple[str, str, int]:
        """What it is matched by in another pass."""
        return self.kind, self.module, self.call

    @property
    def label(self) -> str:
        """The module's name, with the number of the call if it was called before."""
        name = self.module or "(model)"
        return name if self.call == 0 else f"{name} (call {self.call + 1})"


@dataclass(frozen=True)
class Call:
    """The arguments a module was called with, to call it again alone."""

    module: str
    call: int
    args: Any
    kwargs: Any


@dataclass
class Pass:
    """All events of a pass in order, the calls of modules, and the outputs of the model."""

    events: list[Event]
    calls: dict[tuple[str, int], Call]
    outputs: list[Tensor]


def record(probe: Probe, leaves: Leaves, model: nn.Module, dtype: torch.dtype, *, keep_calls: bool = False) -> Pass:
    """One pass with every module watched."""
    events: list[Event] = []
    calls: dict[tuple[str, int], Call] = {}
    counts: dict[str, int] = {}
    stack: list[tuple[str, int]] = []

    def enter(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            number = counts.get(name, 0)
            counts[name] = number + 1
            parent = stack[-1][0] if stack else ""
            stack.append((name, number))
            events.append(Event("enter", name, number, parent, keep((args, kwargs))))
            if keep_calls:
                calls[name, number] = Call(
                    name, number, *tree.map_tensors((args, kwargs), lambda t: t.detach().clone())
                )

        return hook

    def leave(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            while stack and stack[-1][0] != name:
                stack.pop()
            number = stack.pop()[1] if stack else 0
            parent = stack[-1][0] if stack else ""
            events.append(Event("exit", name, number, parent, keep(output)))

        return hook

    keep = _Keeper()
    with _written_out(), watching(model, enter, leave):
        outputs = probe.run(leaves, model, dtype)
    return Pass(events, calls, [exact(output) for output in outputs])


@contextlib.contextmanager
def _written_out() -> Iterator[None]:
    """Encoders without their fast path, which hands nested tensors from layer to layer: those show nothing."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class _Keeper:
    """Copies of floating tensors (later modules may write into them); the same tensor is not copied twice."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int, tuple[int, ...], tuple[int, ...]], tuple[Tensor, Tensor]] = {}

    def __call__(self, value: Any) -> tuple[tuple[str, Tensor], ...]:
        return tuple(
            (name, self._copy(leaf))
            for name, leaf in tree.leaves(value)
            if is_continuous(leaf) and has_numbers(leaf) and leaf.numel()
        )

    def _copy(self, leaf: Tensor) -> Tensor:
        if leaf.is_inference():  # such tensors do not say whether they were written to
            return exact(leaf).clone()
        key = (leaf.data_ptr(), leaf._version, tuple(leaf.shape), tuple(leaf.stride()))
        if key not in self._last:
            # The original is kept alive beside its copy, so that its address is not used for another tensor.
            self._last[key] = (leaf, exact(leaf).clone())
        return self._last[key][1]
