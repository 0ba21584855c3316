"""Tap the main stream of a model during a forward pass: h_0 enters the first block, h_L leaves the last one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from assay.probe.blocks import Blocks, first_tensor

Visit = Callable[[int, Tensor], Tensor | None]
"""Called with the depth l and h_l; a returned tensor takes the place of h_l in the forward pass."""


Leave = Callable[[int, Tensor], None]
"""Called with the depth l and what block l returned."""


@contextmanager
def tapped(model: nn.Module, blocks: Blocks, visit: Visit, *, leave: Leave | None = None) -> Iterator[None]:
    """Inside, every forward pass of ``model`` shows h_0 ... h_L to ``visit``; the hooks are removed afterwards.

    h_l is the input of block l, and h_L the last block's output, or the input of the module behind it when the caller
    adds the skip connection. ``leave`` is shown what every block hands on. The taps of nested calls run in the order in
    which they were set.
    """
    handles = []

    def at_input(depth: int) -> Callable[..., Any]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            h = args[0] if args and isinstance(args[0], Tensor) else first_tensor((args, kwargs))
            new = visit(depth, h) if h is not None else None
            if h is None or new is None or new is h:
                return None
            return _replace(args, h, new), _replace(kwargs, h, new)

        return hook

    def at_output(module: nn.Module, args: Any, output: Any) -> Any:
        h = first_tensor(output)
        new = visit(len(blocks), h) if h is not None else None
        return None if h is None or new is None or new is h else _replace(output, h, new)

    def at_end(depth: int) -> Callable[..., Any]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            h = first_tensor(output)
            if leave is not None and h is not None:
                leave(depth, h)

        return hook

    try:
        for depth, name in enumerate(blocks.names):
            if leave is not None:
                handles.append(model.get_submodule(name).register_forward_hook(at_end(depth)))
            handles.append(model.get_submodule(name).register_forward_pre_hook(at_input(depth), with_kwargs=True))
        if blocks.after is not None:
            behind = model.get_submodule(blocks.after)
            handles.append(behind.register_forward_pre_hook(at_input(len(blocks)), with_kwargs=True))
        else:
            handles.append(model.get_submodule(blocks.names[-1]).register_forward_hook(at_output))
        yield
    finally:
        for handle in handles:
            handle.remove()


def can_cut(model: nn.Module, x: Tensor, blocks: Blocks) -> bool:
    """Whether every trainable parameter is still reached from the outputs of the blocks when their inputs are cut off.

    It is not where a block hides its parameters from autograd until an input asks for a gradient, as reentrant
    checkpointing does. Nor is a stream cut that passes through a frozen block, where nothing behind the block would ask
    for a signal, or between devices, where the order of its hooks is not known. One forward pass in the mode of the
    model; random state and buffers are put back.
    """
    stream: list[Tensor] = []
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}

    def visit(depth: int, h: Tensor) -> Tensor:
        stream.append(h)
        return h.detach() if depth < len(blocks) else h

    try:
        with torch.random.fork_rng(), torch.enable_grad(), warnings.catch_warnings(), tapped(model, blocks, visit):
            warnings.simplefilter("ignore")
            output = model(x)
    finally:
        for name, buffer in model.named_buffers():
            buffer.data.copy_(before[name])
    roots = [tensor for tensor in (*stream, first_tensor(output)) if tensor is not None]
    reached = _leaves(roots)
    one_place = len({tensor.device for tensor in roots}) == 1
    learning = [h.requires_grad for h in stream]
    unbroken = learning == sorted(learning)
    return one_place and unbroken and all(id(p) in reached for p in model.parameters() if p.requires_grad)


def _leaves(roots: list[Tensor]) -> set[int]:
    """The identities of the tensors that would receive a gradient from ``roots``."""
    found: set[int] = set()
    seen: set[Any] = set()
    waiting: list[Any] = [tensor.grad_fn for tensor in roots]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found.add(id(getattr(node, "variable", None)))
        waiting.extend(function for function, _ in node.next_functions)
    return found


def _replace(value: Any, old: Tensor, new: Tensor) -> Any:
    """``value`` with every occurrence of the tensor ``old`` replaced by ``new``."""
    if value is old:
        return new
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replace(item, old, new) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(_replace(item, old, new) for item in value)
    if isinstance(value, dict):
        return type(value)((key, _replace(item, old, new)) for key, item in value.items())
    return value
