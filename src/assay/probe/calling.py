"""How a model is called: by the shape of its inputs and the arguments of ``forward``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from assay.seeding import torch_generator


def default_call(model: nn.Module, value: Any, seed: int) -> Any:
    """model(x), model(*tuple) or model(**dict); a ``generator`` argument gets the same seeded one at every call."""
    forward = arguments(model)
    extra: dict[str, Any] = {}
    if "generator" in forward:
        extra["generator"] = torch_generator(seed, "model")
    if isinstance(value, dict):
        open_ended = any(p.kind is p.VAR_KEYWORD for p in forward.values())
        if open_ended or all(key in forward for key in value):
            return model(**value, **extra)
        return model(value, **extra)
    return model(*value, **extra) if isinstance(value, tuple) else model(value, **extra)


def arguments(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """The arguments of ``forward``; those of TorchScript are in its schema."""
    if isinstance(model, torch.jit.ScriptModule):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [argument.name for argument in model.forward.schema.arguments]  # type: ignore[attr-defined]
        return {name: inspect.Parameter(name, kind) for name in names if name != "self"}
    return inspect.signature(model.forward).parameters
