"""Training mode without the noise of dropout, whether a layer draws it or a function called in ``forward``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

THROUGH = frozenset({
    functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d, functional.alpha_dropout,
    functional.feature_alpha_dropout, torch.dropout, torch.dropout_, torch.alpha_dropout, torch.feature_dropout,
})  # fmt: skip
"""Functions that hand their input through when they do not drop."""


def calm(model: nn.Module) -> None:
    """Dropout layers in evaluation mode and none inside attention and recurrent layers, everything else as it is."""
    for module in model.modules():
        # A scripted module has lost its class and kept its name.
        scripted = str(getattr(module, "original_name", ""))
        if isinstance(module, nn.modules.dropout._DropoutNd | nn.RReLU) or "Dropout" in scripted:
            module.eval()
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            module.dropout = 0.0


class WithoutDropout(TorchFunctionMode):
    """Inside, dropout called as a function drops nothing.

    >>> with WithoutDropout():
    ...     functional.dropout(torch.ones(3), 0.9)
    tensor([1., 1., 1.])
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func in THROUGH:
            return args[0] if args else named["input"]
        if func is functional.scaled_dot_product_attention:
            if len(args) > 4:
                args = (*args[:4], 0.0, *args[5:])
            else:
                named["dropout_p"] = 0.0
        elif func is functional.multi_head_attention_forward:
            given = inspect.signature(func).bind(*args, **named)
            given.arguments["dropout_p"] = 0.0
            args, named = given.args, given.kwargs
        return func(*args, **named)
