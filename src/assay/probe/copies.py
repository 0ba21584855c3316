"""Copies of a model in another precision or mode. The original is never run, so it is left exactly as it was found."""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from assay.errors import expected


def duplicate(model: nn.Module, *, dtype: torch.dtype | None = None, training: bool = False) -> nn.Module:
    """A deep copy in evaluation (or training) mode, cast to ``dtype`` if given, gradients cleared."""
    memo = {id(value): value.detach().clone() for value in _derived_tensors(model)}
    try:
        twin = copy.deepcopy(model, memo)
    except Exception as error:
        raise expected(
            "a model that copy.deepcopy can copy",
            given=f"{type(model).__name__}: {type(error).__name__}: {error}",
            do="drop what cannot be copied (locks, open files) from the module",
        ) from error
    if dtype is not None:
        twin = twin.to(dtype)
        for module in twin.modules():
            for name, value in list(vars(module).items()):
                # Constants kept as plain attributes are not moved by Module.to.
                if isinstance(value, Tensor) and value.is_floating_point():
                    setattr(module, name, value.to(dtype))
    twin.zero_grad(set_to_none=True)
    return twin.train(training)


def native_dtype(model: nn.Module, tensors: list[Tensor]) -> torch.dtype:
    """The floating dtype of the first parameter or buffer, else of the first floating input, else float32."""
    for value in [*model.parameters(), *model.buffers(), *tensors]:
        if value.is_floating_point():
            return value.dtype
    return torch.float32


def device_of(model: nn.Module) -> torch.device:
    """Where the first parameter or buffer lives."""
    first = next(itertools.chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device


@contextlib.contextmanager
def untouched_random_state() -> Iterator[None]:
    """Puts the global generators of torch, NumPy and Python back as they were, and the default dtype too."""
    dtype, numpy_state, python_state = torch.get_default_dtype(), np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            np.random.set_state(numpy_state)
            random.setstate(python_state)


def _derived_tensors(model: nn.Module) -> list[Tensor]:
    """Tensors with a graph (a cached activation): deepcopy refuses them."""
    return [
        value
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    ]
