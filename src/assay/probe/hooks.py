"""Hooks on every module of a model for the length of a block; compiled (TorchScript) insides cannot be watched."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

Hook = Callable[..., Any]


@contextlib.contextmanager
def watching(model: nn.Module, enter: Callable[[str], Hook] | None, leave: Callable[[str], Hook]) -> Iterator[None]:
    """Hooks before (``enter``) and after (``leave``) the forward pass of every module, made from its name."""
    handles: list[RemovableHandle] = []
    try:
        for name, module in watchable(model):
            before, after = None if enter is None else enter(name), leave(name)
            if isinstance(module, torch.jit.ScriptModule):
                handles += _watch_script(module, before, after)
                continue
            if before is not None:
                handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(module.register_forward_hook(after, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def watchable(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules that can be watched, each once: the outermost scripted module is one place, its insides are none."""
    scripted: list[str] = []
    for name, module in model.named_modules():
        if any(name.startswith(outer) for outer in scripted):
            continue
        if isinstance(module, torch.jit.ScriptModule):
            scripted.append(f"{name}." if name else "")
        yield name, module


def _watch_script(module: nn.Module, enter: Hook | None, leave: Hook) -> list[RemovableHandle]:
    """TorchScript takes no hooks of its own, but the outermost scripted module runs the global ones."""

    def before(called: nn.Module, args: Any) -> None:
        if called is module and enter is not None:
            enter(called, args, {})

    def after(called: nn.Module, args: Any, output: Any) -> Any:
        return leave(called, args, {}, output) if called is module else None

    return [register_module_forward_pre_hook(before), register_module_forward_hook(after)]
