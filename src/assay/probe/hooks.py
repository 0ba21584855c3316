"""Hooks on every module of a model for the length of a block; compiled (TorchScript) insides cannot be watched."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

Hook = Callable[..., Any]


@contextlib.contextmanager
def watching(model: nn.Module, enter: Callable[[str], Hook] | None, leave: Callable[[str], Hook]) -> Iterator[None]:
    """Hooks before (``enter``) and after (``leave``) the forward pass of every module, made from its name."""
    handles = []
    try:
        for name, module in watchable(model):
            if enter is not None:
                handles.append(module.register_forward_pre_hook(enter(name), with_kwargs=True))
            handles.append(module.register_forward_hook(leave(name), with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def watchable(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules that can carry hooks, each once, with their first names."""
    scripted: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            scripted += (f"{name}." if name else "",)
        elif not name.startswith(scripted) if scripted else True:
            yield name, module
