"""The user's own objects on the command line: ``pkg.module:name``, from the current folder or an installed package."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from assay.cli.common import see_this_folder
from assay.errors import AssayError, InputError, expected, unknown

if TYPE_CHECKING:
    from torch import nn

    from assay.protocols import Rule


def load(path: str) -> Any:
    """The object at ``pkg.module:name``; an InputError says which half is wrong."""
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise expected("pkg.module:name", given=repr(path), do="for instance my_project.models:build")
    see_this_folder()
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise expected(
            "an importable module", given=f"'{module_name}' ({error})", do="run from its folder or install it"
        ) from None
    except Exception as error:
        raise InputError(f"importing '{module_name}' failed: {type(error).__name__}: {error}") from error
    for step in name.split("."):
        if not hasattr(found, step):
            public = [known for known in dir(found) if not known.startswith("_")]
            raise InputError(f"{unknown(f'name in {module_name}', step, public)}")
        found = getattr(found, step)
    return found


def call(path: str, function: Any, *arguments: Any) -> Any:
    """What the user's ``function`` at ``path`` returns; an InputError says what it raised instead."""
    try:
        return function(*arguments)
    except AssayError:
        raise
    except Exception as error:
        shape = "without arguments" if not arguments else f"with {', '.join(type(a).__name__ for a in arguments)}"
        raise expected(
            f"'{path}' to be callable {shape}", given=f"{type(error).__name__}: {error}", do="call it in Python first"
        ) from error


def make(path: str, *kinds: type) -> Any:
    """The object at a path, called if it is a class or function rather than one of ``kinds`` already."""
    found = load(path)
    return call(path, found) if callable(found) and not isinstance(found, kinds) else found


def module(path: str) -> nn.Module:
    """The model at a path: an ``nn.Module``, or what a function or class there returns."""
    from torch import nn

    found = make(path, nn.Module)
    if not isinstance(found, nn.Module):
        raise expected("a torch.nn.Module, or a function that returns one", given=f"{path}: {type(found).__name__}")
    return found


def learning_rule(name: str, model: nn.Module, *, seed: int = 0, blocks: str | None = None) -> Rule:
    """The rule called ``name``, or one of your own at an import path: a rule, or what makes one."""
    from assay.studies.reproduce.arms import named_rule, rule_from

    if ":" not in name:
        return named_rule(name, model, seed, blocks)
    made: Rule = call(name, lambda subject: rule_from(name, load(name), subject), model)
    return made
