"""Tap the main stream of a model during a forward pass: h_0 enters the first block, h_L leaves the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from assay.rules.feedback_discovery import Blocks, first_tensor

Visit = Callable[[int, Tensor], Tensor | None]
"""Called with the depth l and h_l; a returned tensor takes the place of h_l in the forward pass."""


@contextmanager
def tapped(model: nn.Module, blocks: Blocks, visit: Visit, *, first: bool = False) -> Iterator[None]:
    """Inside, every forward pass of ``model`` shows h_0 ... h_L to ``visit``; the hooks are removed afterwards.

    h_l is the input of block l, and h_L the last block's output, or the input of the module behind it when the caller
    adds the skip connection. With ``first`` the visit runs before those of taps already in place: a rule uses it, so
    that an audit around the rule sees the gradient after the rule has changed it.
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

    try:
        for depth, name in enumerate(blocks.names):
            handles.append(model.get_submodule(name).register_forward_pre_hook(
                at_input(depth), with_kwargs=True, prepend=first))
        if blocks.after is not None:
            behind = model.get_submodule(blocks.after)
            handles.append(behind.register_forward_pre_hook(at_input(len(blocks)), with_kwargs=True, prepend=first))
        else:
            handles.append(model.get_submodule(blocks.names[-1]).register_forward_hook(
                at_output, prepend=first))
        yield
    finally:
        for handle in handles:
            handle.remove()


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
