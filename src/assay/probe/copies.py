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
from assay.probe import tree


def duplicate(model: nn.Module, *, dtype: torch.dtype | None = None, training: bool = False) -> nn.Module:
    """A deep copy in evaluation (or training) mode, cast to ``dtype`` if given, gradients cleared."""
    # deepcopy refuses tensors with a graph: a cached activation, a buffer that was computed from a parameter.
    memo: dict[int, object] = {id(value): value.detach().clone() for value in _held(model) if not value.is_leaf}
    try:
        twin = copy.deepcopy(model, memo)
    except Exception as error:
        raise expected(
            "a model that copy.deepcopy can copy",
            given=f"{type(model).__name__}: {type(error).__name__}: {error}",
            do="drop what cannot be copied (locks, open files) from the module",
        ) from error
    for parameter in twin.parameters():  # zero_grad takes a scripted module for a replica and warns
        parameter.grad = None
    if dtype is not None:
        cast(twin, dtype)
    return twin.train(training)


def cast(model: nn.Module, dtype: torch.dtype) -> None:
    """Every floating tensor of the model in ``dtype`` and every complex one in the complex dtype of that precision.

    ``Module.to(float64)`` would drop the imaginary parts of complex parameters, and leaves plain attributes alone.
    """

    def moved(value: Tensor) -> Tensor:
        if value.is_complex():
            return value.to(_COMPLEX.get(dtype, torch.complex64))
        return value.to(dtype) if value.is_floating_point() else value

    for tensor in itertools.chain(model.parameters(), model.buffers()):
        tensor.data = moved(tensor.data)
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if name not in _TORCH_OWN and tree.tensors(value):
                setattr(module, name, tree.map_tensors(value, moved))


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


def _held(model: nn.Module) -> list[Tensor]:
    """Tensors a model holds: parameters, buffers and plain attributes, also in lists, tuples and dicts."""
    return [
        value
        for module in model.modules()
        for name, attribute in vars(module).items()
        if name == "_buffers" or name not in _TORCH_OWN
        for value in tree.tensors(attribute)
    ]


_COMPLEX = {torch.float64: torch.complex128, torch.float32: torch.complex64, torch.float16: torch.complex32}
_TORCH_OWN = frozenset(vars(nn.Module()))
"""Attributes every Module has: its dictionaries of parameters, buffers, submodules and hooks."""
