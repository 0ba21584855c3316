"""Models that remember: what a call leaves behind is put back before the next one, so that f(x) is one function."""

from __future__ import annotations

import copy
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from assay.probe.calling import default_call
from assay.probe.subject import Call

OWN = frozenset(vars(nn.Module()))
"""What every module has: parameters, hooks, mode."""


class Remembering:
    """Calls a model as it was when it was first called: its buffers and its plain attributes.

    A recurrent state kept from call to call, a running statistic or a power iteration (spectral_norm) would otherwise
    make f(x) and f(gx) values of two functions.
    """

    def __init__(self, call: Call | None, seed: int) -> None:
        self._call, self._seed = call, seed
        self._kept: WeakKeyDictionary[nn.Module, dict[str, _Before]] = WeakKeyDictionary()

    def __call__(self, model: nn.Module, value: Any) -> Any:
        # By name: some modules are equal while they are not the same (escnn), and equality changes with their buffers.
        if model not in self._kept:
            modules = model.named_modules(remove_duplicate=False)
            self._kept[model] = {name: _Before(module) for name, module in modules}
        self._restore(model)
        try:
            return self._call(model, value) if self._call else default_call(model, value, self._seed)
        finally:
            self._restore(model)  # copies are made of it

    def _restore(self, model: nn.Module) -> None:
        for name, module in model.named_modules(remove_duplicate=False):
            if name in self._kept[model]:
                self._kept[model][name].restore(module)


class _Before:
    def __init__(self, module: nn.Module) -> None:
        self.scripted = isinstance(module, torch.jit.ScriptModule)
        self.buffers = {name: buffer.clone() for name, buffer in module.named_buffers(recurse=False)}
        plain = {} if self.scripted else vars(module)
        self.attributes = {name: _kept(value) for name, value in plain.items() if name not in OWN}

    def restore(self, module: nn.Module) -> None:
        now = dict(module.named_buffers(recurse=False))
        if self.scripted:
            with torch.no_grad():
                for name, old in self.buffers.items():
                    now[name].copy_(old)
            return
        for name, old in self.buffers.items():
            module._buffers[name] = old.clone()  # not written into: a graph may keep what was there
        for name in now.keys() - self.buffers.keys():
            del module._buffers[name]
        inside = vars(module)
        for name in [name for name in inside if name not in OWN and name not in self.attributes]:
            del inside[name]
        inside.update({name: _kept(value) for name, value in self.attributes.items()})


def _kept(value: Any) -> Any:
    """What a call may write into is copied; everything else stays what it is."""
    if isinstance(value, Tensor):
        return value.detach().clone() if not isinstance(value, nn.Parameter) else value
    return copy.copy(value) if isinstance(value, (list, dict, set)) else value
