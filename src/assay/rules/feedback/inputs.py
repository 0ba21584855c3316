"""What a feedback rule refuses to work on: compiled models, empty batches, inputs that are not finite."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.errors import expected


def refuse_compiled(model: nn.Module) -> None:
    """Raises for a compiled or scripted model, whose products nobody can see from outside."""
    for name, module in model.named_modules():
        compiled = type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None)
        if compiled or isinstance(module, torch.jit.ScriptModule):
            what = f"'{name}' in {type(model).__name__}" if name else type(model).__name__
            raise expected("a model that runs operation by operation", given=f"{what}, compiled or scripted",
                           do="give the rule the model as it was before torch.compile (compiled._orig_mod)")


def check_batch(x: Tensor, y: Tensor) -> None:
    if not len(x) or len(x) != len(y):
        raise expected("a batch of at least one sample, with as many targets", given=f"{len(x)} samples, {len(y)} "
                                                                                      "targets")


def check_finite(x: Tensor) -> None:
    """Raises where the input is to blame for a loss that is not finite."""
    if x.is_floating_point() and not bool(x.isfinite().all()):
        raise expected("finite inputs", given=f"x with {int((~x.isfinite()).sum())} values that are not",
                       do="clean the batch before the step: no gradient was changed")
