"""The user's own objects on the command line, from a file, the current folder or an installed package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from assay.cli.typed.paths import as_module_path
from assay.errors import expected
from assay.learning.resolve import as_rule, called, imported

if TYPE_CHECKING:
    from torch import nn

    from assay.protocols import Rule


def load(path: str) -> Any:
    """The object at ``pkg.module:name`` or ``file.py:name``; an InputError says which half is wrong."""
    return imported(as_module_path(path))


def call(path: str, function: Any) -> Any:
    """What the user's ``function`` at ``path`` returns; an InputError says what it raised instead."""
    return called(function, path)


def make(path: str, *kinds: type) -> Any:
    """The object at a path, called if it is a class or function rather than one of ``kinds`` already."""
    found = load(path)
    return call(path, found) if callable(found) and not isinstance(found, kinds) else found


def module(path: str) -> nn.Module:
    """The model at a path, on the device asked for: an ``nn.Module``, or what a function or class there returns.

    It moves before a rule is made for it, whose matrices have to be where the model is.
    """
    from torch import nn

    from assay.learning.device import chosen_device

    found = make(path, nn.Module)
    if not isinstance(found, nn.Module):
        raise expected("a torch.nn.Module, or a function that returns one", given=f"{path}: {type(found).__name__}")
    return found.to(chosen_device(None, found))


@contextmanager
def on(device: str | None) -> Iterator[None]:
    """What a command does within it happens on this device; one that is not there is refused first."""
    if device is None:
        yield
        return
    from assay.learning.device import chosen_device, computing_on

    with computing_on(str(chosen_device(device))):
        yield


def learning_rule(name: str, model: nn.Module, *, seed: int = 0, blocks: str | None = None) -> Rule:
    """The rule called ``name``, or one of your own at an import path: a rule, or what makes one."""
    return as_rule(as_module_path(name), model, seed=seed, blocks=blocks)
