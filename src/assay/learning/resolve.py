"""What a user brings in place of a name: an import path, a class, a function or an object, for rules and models alike.

Everything that takes a rule takes ``"fa-block"``, ``"my_lab:MyRule"``, ``MyRule``, ``MyRule()`` and a function of
``(model, seed)``; everything that takes a model takes ``"my_lab:net"``, a class, a function of ``seed`` and a module.
No torch is imported before something is made.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, InputError, expected, unknown
from assay.learning.names import named_rule
from assay.protocols import Rule, Writing

if TYPE_CHECKING:
    from torch import nn

RULE = "a rule by name, pkg.module:name, an object with backward(model, x, y), or a class or function that makes one"
MODEL = "pkg.module:name, a torch.nn.Module, or a class or function of seed that makes one"


def imported(path: str) -> Any:
    """The object at ``pkg.module:name``; an InputError says which half is wrong."""
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise expected("pkg.module:name", given=repr(path), do="for instance my_project.models:build")
    if module_name.endswith(".py"):
        stem = module_name.removesuffix(".py").replace("/", ".")
        raise expected("a module, not a file", given=repr(path), do=f"write {stem}:{name} and run from its folder")
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
            public = getattr(found, "__all__", None) or [known for known in dir(found) if not known.startswith("_")]
            raise InputError(f"{unknown(f'name in {module_name}', step, public)}")
        found = getattr(found, step)
    return found


def is_path(given: object) -> bool:
    """Whether this is text that names a place to import from."""
    return isinstance(given, str) and ":" in given


def as_rule(given: Any, model: nn.Module, *, seed: int = 0, blocks: str | None = None, **options: Any) -> Rule:
    """The learning rule that was given, for this model; ``seed`` draws what is random in it.

    A rule that writes weights (``step(model, x, y)``) comes back with a ``backward`` that says what it would do.

    >>> as_rule("backprop", None)                                                           # doctest: +SKIP
    Backprop(loss=None)
    """
    if isinstance(given, str) and not is_path(given):
        return named_rule(given, model, seed=seed, blocks=blocks, **options)
    what = given if is_path(given) else shown(given)
    made = imported(given) if is_path(given) else given
    if hasattr(made, "requires_grad"):  # a tensor has a backward too
        raise expected(RULE, given=what)
    if isinstance(made, type) or not isinstance(made, Rule | Writing):
        if not callable(made):
            raise expected(RULE, given=what)
        made = called(made, what, model=model, seed=seed)
    if isinstance(made, Writing):
        from assay.learning.writing import AsGradient

        return made if isinstance(made, AsGradient) else AsGradient(made)
    if not isinstance(made, Rule):
        raise expected(RULE, given=f"{what}: {shown(made)}")
    return made


def as_model(given: Any, *, seed: int = 0, keep: bool = False) -> nn.Module:
    """A model ready to be trained at ``seed``: what a function or class makes, or a fresh copy of a module.

    A module is copied and re-initialised by the ``reset_parameters`` of its parts; one with parameters that have none
    is refused, for every seed would start from the same weights. With ``keep`` a module found by its path is itself.
    """
    from torch import nn

    made = imported(given) if is_path(given) else given
    what = given if is_path(given) else shown(given)
    if isinstance(made, nn.Module):
        if keep:
            return made
        from assay.learning.fresh import reinitialised

        return reinitialised(made, seed=seed)
    if not callable(made):
        raise expected(MODEL, given=what)
    from assay.learning.fresh import drawing_by

    with drawing_by(seed):  # a class that takes no seed draws from the global generator
        model = called(made, what, do="a function of the inputs needs a torch.nn.Module around it", seed=seed)
    if not isinstance(model, nn.Module):
        raise expected(MODEL, given=f"{what}: {shown(model)}")
    return model


def called(
    function: Callable[..., Any], what: str, *, do: str = "call it in Python first", **offered: Any
) -> Any:
    """What a user's class or function returns, given those of the ``offered`` arguments that it takes.

    Arguments are passed by name where it has that name; what it needs beyond those is filled in the order offered.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function()
    by_name = {name: value for name, value in offered.items() if _takes(signature, name)}
    needed = [p for p in signature.parameters.values() if p.default is p.empty and p.name not in by_name
              and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = [value for name, value in offered.items() if name not in by_name]
    try:
        return function(*rest[: len(needed)], **by_name)
    except AssayError:
        raise
    except Exception as error:
        raise expected(f"'{what}' to be callable with {', '.join(offered) or 'nothing'}",
                       given=f"{type(error).__name__}: {error}", do=do) from error


def shown(thing: object) -> str:
    """A name for any object, in a line: never its content.

    >>> shown(shown), shown(dict), shown([1, 2])
    ('assay.learning.resolve.shown', 'dict', 'a list')
    """
    if isinstance(thing, str):
        return repr(thing)
    if isinstance(thing, type) or inspect.isroutine(thing):
        home = getattr(thing, "__module__", "") or ""
        name = str(getattr(thing, "__qualname__", type(thing).__name__))
        return name if home in ("", "builtins") else f"{home}.{name}"
    kind = type(thing).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def _takes(signature: inspect.Signature, name: str) -> bool:
    parameter = signature.parameters.get(name)
    return parameter is not None and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def as_task(given: Any, *, seed: int | None = None) -> Any:
    """The task that was given: an object with train, validation and test, a name, an import path, or what makes one.

    ``seed`` draws its split; None leaves an object as it is. Three DataLoaders are not a task yet:
    ``assay.tasks.from_loaders`` makes one of them.
    """
    if isinstance(given, str) and not is_path(given):
        from assay import tasks

        return tasks.load(given, seed=seed or 0)
    what = given if is_path(given) else shown(given)
    made = imported(given) if is_path(given) else given
    if isinstance(made, type) or (callable(made) and not _is_task(made)):
        made = called(made, what, seed=seed or 0)
    if not _is_task(made):
        raise expected("a task by name, pkg.module:name, an object with train, validation and test, or a function of "
                       "seed that makes one", given=what,
                       do="assay.tasks.from_arrays, from_csv, from_loaders and from_huggingface make tasks")
    return made


def _is_task(thing: object) -> bool:
    # By name: asking a tuning view for its test part is an error on purpose.
    return all(hasattr(type(thing), part) or part in getattr(thing, "__dict__", {})
               for part in ("train", "validation", "test"))
