"""What the credit audit and the published protocol refuse to look at."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.errors import expected
from assay.rules.feedback.inputs import refuse_compiled


def check_arguments(model: nn.Module, x: Tensor, y: Tensor, *, least: int) -> None:
    """Raises unless this is a module, not compiled, with at least ``least`` finite inputs and as many targets."""
    if not isinstance(model, nn.Module):
        raise expected("a torch.nn.Module", given=type(model).__name__)
    refuse_compiled(model)
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        raise expected("tensors x and y", given=f"{type(x).__name__} and {type(y).__name__}")
    if y.dtype is torch.bool:
        raise expected("class indices, or floats to be predicted", given=f"y of dtype {y.dtype}", do="use y.long()")
    if x.is_floating_point() and not bool(x.isfinite().all()):
        raise expected("finite inputs", given=f"x with {int((~x.isfinite()).sum())} values that are not")
    if len(x) != len(y) or len(x) < least:
        raise expected(f"as many targets as inputs, at least {'two' if least == 2 else 'one'}",
                       given=f"{len(x)} inputs and {len(y)} targets")
