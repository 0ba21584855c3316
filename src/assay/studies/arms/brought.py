"""What a user brings to a study in place of a name, and how a cell finds it again.

A class or function of an importable module, and anything given as ``module:name``, is found by that path: it runs in
worker processes and on a cluster, and its code is part of the key of every result. Anything else (a lambda, an object
with state, something defined in the script itself) stays a live object: its cells run in this process, under a key of
its code and state. What cannot be told from its content gets a key of its own, and is computed again every time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.engine.workers.process import result_of
from assay.engine.workers.worker import run_cell
from assay.errors import expected
from assay.learning.resolve import imported, is_path
from assay.protocols import Cell, CellEvent, CellResult, Executor

LIVE: dict[str, Any] = {}
"""Live objects by reference, for the cells that run in this process."""
HERE_ALONE = "live "
"""How a reference to one of them begins; no path of a module has a space."""


@dataclass(frozen=True)
class Brought:
    """A thing of the user's: what to call it, where a cell finds it, and the modules its code lives in."""

    label: str
    reference: str
    modules: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        """Whether only this process has it."""
        return is_live(self.reference)


def is_live(reference: str) -> bool:
    """Whether a reference is to an object of this process, which no other can find."""
    return reference.startswith(HERE_ALONE)


def bring(given: Any, *, label: str | None = None) -> Brought:
    """A path, class, function or object as something cells can find.

    >>> bring("my_lab:MyRule").label
    'MyRule'
    """
    path = given if is_path(given) else _path_of(given)
    if path is not None:
        return Brought(label or path.rpartition(":")[2], path, (path.partition(":")[0],))
    reference = f"{HERE_ALONE}{digest(given)}"
    LIVE[reference] = given
    name = str(getattr(given, "__name__", type(given).__name__))
    home = str(getattr(given, "__module__", "") or "")
    return Brought(label or ("model" if name == "<lambda>" else name), reference, (home,) if home else ())


def typed(name: str, reference: str | None) -> str:
    """A thing as it is typed on the command line; one that lives in a script has no spelling but its name."""
    return name if reference is None or is_live(reference) else reference


def fetched(reference: str) -> Any:
    """What a reference stands for, in a worker or here."""
    if reference in LIVE:
        return LIVE[reference]
    if is_live(reference):
        raise expected("an object that a worker process can import", given="one that lives in the script alone",
                       do="define it in a module and give it as my_module:name")
    return imported(reference)


class Here:
    """An executor in this process: live objects cannot travel to another."""

    def places(self) -> int:
        return 1

    def run(self, cells: Iterable[Cell], *, notify: Callable[[CellEvent], None]) -> Iterator[Sequence[CellResult]]:
        for cell in cells:
            notify(CellEvent("started", cell))
            result = result_of(cell, run_cell(cell.target, dict(cell.payload)))
            notify(CellEvent("failed" if result.failure else "done", cell, result.seconds))
            yield [result]


def executor_for(things: Iterable[Brought], asked: Executor | None) -> tuple[Executor | None, str]:
    """The executor that can run these things, and a sentence if it had to be this process."""
    from assay.engine import LocalExecutor, RayExecutor

    live = sorted({thing.label for thing in things if thing.live})
    if not live:
        return asked, ""
    if isinstance(asked, LocalExecutor | RayExecutor):
        raise expected("things that worker processes can import", given=f"{', '.join(live)}, which live in this one",
                       do="put them in a module (my_lab.py) and give them as my_lab:name")
    return asked or Here(), (f"computed in this process: {', '.join(live)} cannot be imported by another; in a module, "
                             "as my_lab:name, they run on every core")


def digest(thing: Any) -> str:
    """A digest of code and state: the same for the same content, in any process."""
    try:
        return hashlib.sha256(repr(_content(thing, depth=0)).encode()).hexdigest()[:32]
    except _Untold:
        return f"unlike any other {os.urandom(12).hex()}"


class _Untold(Exception):
    """Content that cannot be told from outside."""


def _content(thing: Any, *, depth: int) -> Any:
    if depth > 8:
        raise _Untold
    if thing is None or isinstance(thing, bool | int | float | complex | str | bytes):
        return thing
    if isinstance(thing, tuple | list):
        return [type(thing).__name__, *(_content(each, depth=depth + 1) for each in thing)]
    if isinstance(thing, set | frozenset):
        return sorted(repr(_content(each, depth=depth + 1)) for each in thing)
    if isinstance(thing, Mapping):
        return sorted((repr(key), repr(_content(value, depth=depth + 1))) for key, value in thing.items())
    if hasattr(thing, "data_hash") and hasattr(thing, "train"):
        return ["task", thing.name, thing.data_hash, repr(getattr(thing, "shares", None))]
    if hasattr(thing, "detach") and hasattr(thing, "numpy"):
        value = thing.detach().cpu().contiguous()
        return ["tensor", str(value.dtype), tuple(value.shape), hashlib.sha256(value.numpy().tobytes()).hexdigest()]
    if inspect.ismodule(thing):
        return ["module", thing.__name__]
    if isinstance(thing, type):
        return ["class", thing.__module__, thing.__qualname__, _source(thing)]
    if inspect.isfunction(thing):
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        used = {name: thing.__globals__[name] for name in _names(thing.__code__) if name in thing.__globals__}
        return ["function", thing.__code__.co_code.hex(), repr(_constants(thing.__code__)),
                _content([cells, thing.__defaults__, thing.__kwdefaults__], depth=depth + 1),
                _content({name: value for name, value in used.items() if value is not thing}, depth=depth + 1)]
    if inspect.ismethod(thing):
        return ["method", thing.__func__.__qualname__, _content(thing.__self__, depth=depth + 1)]
    if hasattr(thing, "__dict__") and not hasattr(thing, "__next__"):
        return ["object", _content(type(thing), depth=depth + 1), _content(vars(thing), depth=depth + 1)]
    raise _Untold


def _names(code: Any) -> set[str]:
    nested = (each for each in code.co_consts if inspect.iscode(each))
    return set(code.co_names).union(*(_names(each) for each in nested))


def _constants(code: Any) -> list[Any]:
    return [[*_constants(each), each.co_code.hex()] if inspect.iscode(each) else each for each in code.co_consts]


def _source(kind: type) -> str:
    if not kind.__module__ or kind.__module__ in sys.stdlib_module_names or kind.__module__ == "builtins":
        return kind.__qualname__
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        raise _Untold from None


def _path_of(thing: Any) -> str | None:
    """``module:name`` of a class or function that another process can import; None for anything else."""
    if not isinstance(thing, type) and not inspect.isfunction(thing):
        return None
    module, name = thing.__module__, thing.__qualname__
    if module == "__main__" or "<" in name:
        return None
    try:
        if importlib.util.find_spec(module) is None:
            return None
        found: Any = sys.modules[module]
        for step in name.split("."):
            found = getattr(found, step)
    except (ImportError, ValueError, AttributeError, KeyError):
        return None
    return f"{module}:{name}" if found is thing else None
