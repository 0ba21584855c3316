"""Copies of a model in another precision or mode. The original is never run, so it is left exactly as it was found."""

from __future__ import annotations

import contextlib
import copy
import itertools
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.errors import expected


def duplicate(
    model: nn.Module, *, dtype: torch.dtype | None = None, training: bool | None = False
) -> nn.Module:
    """A deep copy in evaluation or training mode (None: as it is), cast to ``dtype`` if given, gradients cleared.

    What cannot be copied (locks, open files, loggers that hold them) is shared with the original.
    """
    twin = _copied(model)
    for old, new in zip(model.parameters(), twin.parameters(), strict=True):
        if new.is_leaf:
            new.requires_grad_(old.requires_grad)
    if dtype is not None:
        # Module.to(float64) would drop the imaginary part of complex weights: each tensor gets its own counterpart.
        twin = twin._apply(lambda value: cast(value, dtype))  # type: ignore[no-untyped-call]
        for module in twin.modules():
            if not isinstance(module, torch.jit.ScriptModule):
                _cast_attributes(module, dtype)
    twin.zero_grad(set_to_none=True)
    if training is None:
        return twin
    twin.train(training)
    refreshed(twin)
    return twin


def refreshed(model: nn.Module) -> None:
    """Makes again what a model in evaluation mode keeps of its weights (expanded kernels, merged adapters)."""
    if not model.training:
        model.train()
        model.eval()


def _copied(model: nn.Module) -> nn.Module:
    memo: dict[int, Any] = {id(value): value.detach().clone() for value in _derived_tensors(model)}
    with torch.no_grad():  # or weights of TorchScript become copies with a graph, which hold no gradient
        try:
            return copy.deepcopy(model, dict(memo))
        except Exception:  # of pickle, of __deepcopy__ or __reduce__: some attribute cannot be copied
            memo |= _not_copied(model)
        try:
            return copy.deepcopy(model, memo)
        except Exception as error:
            raise expected(
                "a model that copy.deepcopy can copy",
                given=f"{type(model).__name__}: {type(error).__name__}: {error}",
                do="drop what cannot be copied from the module",
            ) from error


def _not_copied(model: nn.Module) -> dict[int, Any]:
    """Attributes, alone or in lists and dicts, that deepcopy refuses, by their identity; never modules or tensors."""
    modules = {id(module): module for module in model.modules()}
    found: dict[int, Any] = {}

    def look(value: Any) -> None:
        if isinstance(value, (list, tuple, set)):
            for item in value:
                look(item)
        elif isinstance(value, dict):
            for item in value.values():
                look(item)
        elif not isinstance(value, (nn.Module, Tensor)):
            try:
                copy.deepcopy(value, dict(modules))
            except Exception:
                found[id(value)] = value

    for module in modules.values():
        if not isinstance(module, torch.jit.ScriptModule):
            look({name: value for name, value in vars(module).items() if name not in _REGISTERED})
    return found


def cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in a floating dtype, complex numbers in the complex dtype of that size; integers stay.

    >>> cast(torch.tensor([1 + 2j]), torch.float64).dtype
    torch.complex128
    """
    if value.is_complex():
        return value.to(torch.complex128 if dtype == torch.float64 else torch.complex64)
    return value.to(dtype) if value.is_floating_point() else value


def native_dtype(model: nn.Module, tensors: list[Tensor]) -> torch.dtype:
    """The floating dtype of the first parameter or buffer, else of the first floating input, else float32."""
    for value in [*model.parameters(), *model.buffers(), *tensors]:
        if value.is_floating_point():
            return value.dtype
        if value.is_complex():
            return torch.float64 if value.dtype == torch.complex128 else torch.float32
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


@contextlib.contextmanager
def own_autograd() -> Iterator[None]:
    """Autograd as an audit needs it, whatever the caller has switched off around it (no_grad, inference_mode)."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        yield


class as_it_was:  # noqa: N801 - used as a function
    """Random state is put back, and the model's buffers (running statistics) are copies inside.

    So what a graph keeps of them is not written over by a later pass. ``names`` knows the copies by their memory.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.names = model, dict[int, str]()
        self.random = torch.random.fork_rng()

    def __enter__(self) -> as_it_was:
        self.random.__enter__()
        self.places: list[tuple[nn.Module, str, Tensor, Tensor]] = []
        copies: dict[int, Tensor] = {}
        for prefix, module in self.model.named_modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    copy = copies.setdefault(id(buffer), buffer.detach().clone())
                    self.places.append((module, name, buffer, copy))
                    self.names.setdefault(copy.data_ptr(), f"{prefix}.{name}".lstrip("."))
                    module._buffers[name] = copy
        return self

    def written(self) -> set[str]:
        """The names of buffers that the pass has changed."""
        return {self.names[copy.data_ptr()] for module, name, before, copy in self.places
                if module._buffers.get(name) is not copy or not torch.equal(copy, before)}

    def __exit__(self, *problem: Any) -> None:
        for module, name, buffer, _ in self.places:
            module._buffers[name] = buffer
        self.random.__exit__(*problem)


@contextlib.contextmanager
def everything_learning(model: nn.Module) -> Iterator[None]:
    """Every parameter requires a gradient, frozen ones too, and is as it was afterwards."""
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        for parameter, _ in flags:
            parameter.requires_grad_(parameter.is_floating_point() or parameter.is_complex())
        yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Runs the original code of compiled models: the compiler neither follows hooks nor keeps to float64."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


@contextlib.contextmanager
def room_to_compile() -> Iterator[None]:
    """Lets a compiled model be compiled for every shape it is asked with.

    Past eight of them torch.compile runs the original code, and a compiled model would be judged by that.
    """
    compiler = sys.modules.get("torch._dynamo.config")
    if compiler is None:
        yield
        return
    with compiler.patch(recompile_limit=max(compiler.recompile_limit, SHAPES_TO_COMPILE)):
        yield


SHAPES_TO_COMPILE = 64


def _cast_attributes(module: nn.Module, dtype: torch.dtype) -> None:
    """Constants kept as plain attributes, alone or in lists and dicts, which Module.to does not move."""
    for name, value in list(vars(module).items()):
        if name in _REGISTERED:
            continue
        changed = _mapped(value, lambda tensor: cast(tensor, dtype))
        if changed is not value:
            setattr(module, name, changed)


_REGISTERED = frozenset({"_parameters", "_buffers", "_modules"})


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The value with ``change`` applied to tensors in it; the value itself where nothing changed."""
    if isinstance(value, nn.Parameter):
        return value
    if isinstance(value, Tensor):
        return change(value)
    if type(value) in (list, tuple):
        items = [_mapped(item, change) for item in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else type(value)(items)
    if type(value) is dict:
        found = {key: _mapped(item, change) for key, item in value.items()}
        return value if all(found[key] is item for key, item in value.items()) else found
    return value


def _derived_tensors(model: nn.Module) -> list[Tensor]:
    """Tensors with a graph (a cached activation, a buffer made from a weight): deepcopy refuses them."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        if not tensor.is_leaf:
            found.append(tensor)
        return tensor

    for module in model.modules():
        if not isinstance(module, torch.jit.ScriptModule):
            for value in [*vars(module).values(), *module._buffers.values(), *module._parameters.values()]:
                _mapped(value, keep)
    return found
