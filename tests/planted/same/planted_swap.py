"""One module of a model with another forward pass, under its old name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


def swap(module: nn.Module, forward: Callable[..., Any]) -> None:
    """Gives one module another forward pass and leaves its names as they are."""
    kind = type(module)
    module.__class__ = type(f"Other{kind.__name__}", (kind,), {"forward": forward, "_before": kind})


def before(module: nn.Module, *args: Any) -> Any:
    return type(module)._before.forward(module, *args)  # type: ignore[attr-defined]
