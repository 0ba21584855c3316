"""A meter of memory: what tensors were alive at the worst moment of a call, in bytes, counted at every operation.

Every tensor an operation returns is entered with the size of its storage, once, and struck off when that storage is
freed; nothing is computed from shapes of layers. Storage that existed before the call (parameters, inputs) is not
counted, and neither are buffers inside a single operation.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class Peak:
    """``bytes`` alive at the worst moment; ``kept`` still alive at the end; ``tensors`` counted at the worst moment."""

    bytes: int
    kept: int
    tensors: int


def measure_peak(call: Callable[[], Any]) -> Peak:
    """The peak of ``call``: storage made during it and alive at once."""
    gc.collect()
    meter = _Meter()
    with meter:
        result = call()
        del result
    return Peak(meter.peak, meter.alive, meter.peak_tensors)


class _Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation below autograd, forward and backward."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = self.peak = self.peak_tensors = 0
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: to be left out of torch.compile a mode loads all of it, which takes seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = {_address(tensor) for tensor in _tensors((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            # A view, or an operation in place, returns storage it was given: nothing new.
            address = _address(tensor)
            if address is not None and address not in given:
                self._enter(tensor)
        return result

    def _enter(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        size = storage.nbytes()
        if key in self._known or size == 0:
            return

        def freed(_: object, key: int = key, size: int = size) -> None:
            if self._known.pop(key, None) is not None:
                self.alive -= size

        self._known[key] = (weakref.ref(storage, freed), size)
        self.alive += size
        if self.alive > self.peak:
            self.peak, self.peak_tensors = self.alive, len(self._known)


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        if not tree._is_zerotensor():  # a tangent of forward mode that is known to be zero has no storage
            yield tree
    elif isinstance(tree, Mapping):
        for part in tree.values():
            yield from _tensors(part)
    elif isinstance(tree, tuple | list):
        for part in tree:
            yield from _tensors(part)


def _address(tensor: torch.Tensor) -> int | None:
    """Where the tensor's storage is; None for the wrappers of ``torch.func``, whose parts come by themselves."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return None
