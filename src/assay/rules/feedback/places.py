"""Where a model may multiply by a weight: the functions replaced while a feedback rule runs a step.

Functions that a module looks up when it is called are replaced by name. One that was imported by name beforehand
(``from torch.nn.functional import linear``) is out of reach that way; a function mode sees it at some cost, so it is
used only where the survey finds that it is needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from assay.rules.feedback.layers import FindRoute, Operation
from assay.rules.feedback.recurrent import CELLS, unfused

_ONE_AT_A_TIME = threading.RLock()  # the functions are global: two rules in two threads take turns
_MISSING = object()
_BATCHED = torch._C._functorch.is_batchedtensor
Wrapper = Callable[..., Any]
Place = tuple[str, Any, str, Wrapper]
"""Name, owner, attribute, and what takes its place."""


class ShortRoute(Protocol):
    """A route whose matrix is at hand, for a linear layer that holds a whole weight."""

    def short(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
        """The layer by its short way, or None where that does not fit."""


class _State:
    """The rule whose step is running, and whether one of its routes is at work."""

    find: FindRoute | None = None
    busy = False
    hits: set[str] | None = None
    ready: Mapping[int, ShortRoute] = {}


class feedback_layers:  # noqa: N801 - used as a function; a class is entered in half the time of a generator
    """Inside, products with a weight send errors by ``find``'s routes.

    ``only`` are the places to replace (all if None), ``hits`` collects those where a route was found, ``imported``
    also sees functions that were imported by name. The backward pass belongs inside too: a checkpointed model runs
    parts of its forward pass again there.
    """

    def __init__(self, find: FindRoute, *, only: Sequence[Place] | None = None, hits: set[str] | None = None,
                 imported: bool = False) -> None:
        self.find, self.hits = find, hits
        self.ready: Mapping[int, ShortRoute] = getattr(find, "ready", {})
        self.places = PLACES if only is None else only
        self.mode = _Imported() if imported else None

    def __enter__(self) -> None:
        _ONE_AT_A_TIME.acquire()
        self.before = _State.find, _State.hits, _State.busy, _State.ready
        self.originals = [(owner, name, owner.__dict__.get(name, _MISSING)) for _, owner, name, _ in self.places]
        _State.find, _State.hits, _State.busy, _State.ready = self.find, self.hits, False, self.ready
        for _, owner, name, wrapper in self.places:
            setattr(owner, name, wrapper)
        if self.mode is not None:
            self.mode.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *problem: Any) -> None:
        if self.mode is not None:
            self.mode.__exit__(*problem)  # type: ignore[no-untyped-call]
        _State.find, _State.hits, _State.busy, _State.ready = self.before
        for owner, name, original in self.originals:
            if original is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        _ONE_AT_A_TIME.release()


def select(names: Collection[str]) -> list[Place]:
    """The places of these names."""
    return [place for place in PLACES if place[0] in names]


def _route(place: str, operation: Operation, x: Tensor, weight: Tensor) -> Tensor | None:
    """The product by its route, or None where there is none."""
    find = _State.find
    if find is None or _State.busy or _BATCHED(x):  # inside vmap one sample stands for all: nothing can be exchanged
        return None
    route = find(weight, x)
    if route is None:
        return None
    if _State.hits is not None:
        _State.hits.add(place)
    _State.busy = True
    try:
        return route.run(operation, x, weight)
    finally:
        _State.busy = False


def _either(place: str, product: Callable[[Tensor, Tensor], Tensor], a: Any, b: Any) -> Tensor | None:
    """A product in which either factor may be the weight."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return None
    if (result := _route(place, product, a, b)) is not None:
        return result
    return _route(place, lambda x, weight: product(weight, x), b, a)


def _of_two(place: str, original: Wrapper) -> Wrapper:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        given = _named(args, kwargs, ("input", "self", "other", "tensor2", "mat2", "vec"))
        result = _either(place, original, *given) if given is not None and len(given) == 2 else None
        return original(*args, **kwargs) if result is None else result

    return wrapper


def _named(args: tuple[Any, ...], kwargs: dict[str, Any], names: Sequence[str]) -> list[Any] | None:
    """All operands in order, given by place or by name; None if something else was given too."""
    rest = set(kwargs) - set(names)
    return None if rest else [*args, *(kwargs[name] for name in names if name in kwargs)]


def _reversed(place: str, original: Wrapper) -> Wrapper:
    def wrapper(self: Any, other: Any) -> Any:
        result = _either(place, lambda a, b: original(b, a), other, self)
        return original(self, other) if result is None else result

    return wrapper


def _added(place: str, original: Wrapper) -> Wrapper:
    """addmm and its relatives: (added, a, b)."""

    operands = ("input", "self", "mat1", "batch1", "mat", "mat2", "batch2", "vec")

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        scales = {name: value for name, value in kwargs.items() if name in ("beta", "alpha")}
        given = _named(args, {name: value for name, value in kwargs.items() if name not in scales}, operands)
        result = None
        if given is not None and len(given) == 3:
            result = _either(place, lambda one, two: original(given[0], one, two, **scales), *given[1:])
        return original(*args, **kwargs) if result is None else result

    return wrapper


def _layer(place: str, original: Wrapper) -> Wrapper:
    """linear and the convolutions: (input, weight, ...)."""

    def wrapper(input: Any, weight: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
        result = _route(place, _Filled(original, args, kwargs), input, weight)
        return original(input, weight, *args, **kwargs) if result is None else result

    return wrapper


def _linear(place: str, original: Wrapper) -> Wrapper:
    """The same for linear, with the short way first."""
    otherwise = _layer(place, original)

    def wrapper(input: Any, weight: Any, bias: Any = None) -> Any:  # noqa: A002
        ready = _State.ready.get(id(weight))
        if ready is not None and not _State.busy:
            _State.busy = True  # the function mode must not see the same layer twice
            result = ready.short(input, weight, bias)
            _State.busy = False
            if result is not None:
                return result
        return otherwise(input, weight, bias)

    return wrapper


class _Filled:
    """A layer's function with bias and settings filled in."""

    __slots__ = ("args", "kwargs", "original")

    def __init__(self, original: Wrapper, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.original, self.args, self.kwargs = original, args, kwargs

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:
        result: Tensor = self.original(x, weight, *self.args, **self.kwargs)
        return result


def _einsum(place: str, original: Wrapper) -> Wrapper:
    def wrapper(*args: Any) -> Any:
        operands = args[1] if len(args) == 2 and isinstance(args[1], list | tuple) else args[1:]
        result = None
        if isinstance(args[0], str) and len(operands) == 2:
            result = _either(place, lambda a, b: original(args[0], a, b), *operands)
        return original(*args) if result is None else result

    return wrapper


def _tensordot(place: str, original: Wrapper) -> Wrapper:
    def wrapper(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
        result = _either(place, lambda one, two: original(one, two, dims), a, b) if out is None else None
        return original(a, b, dims, out=out) if result is None else result

    return wrapper


class _Imported(TorchFunctionMode):
    """Sees calls of functions that were imported by name before they could be replaced."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wrapper = None if _State.busy else BY_FUNCTION.get(func)
        return (wrapper or func)(*args, **(kwargs or {}))


def _make_places() -> list[Place]:
    """Everything that is replaced."""
    layers = ("linear", *(f"conv{n}d" for n in (1, 2, 3)), *(f"conv_transpose{n}d" for n in (1, 2, 3)))
    kinds: list[tuple[Callable[[str, Wrapper], Wrapper], Any, tuple[str, ...]]] = [
        (_linear, F, layers[:1]),
        (_layer, F, layers[1:]),
        (_layer, torch, layers[1:]),
        (_of_two, torch, ("matmul", "mm", "bmm", "mv", "inner")),
        (_of_two, Tensor, ("matmul", "mm", "bmm", "mv", "inner", "__matmul__")),
        (_of_two, torch.linalg, ("matmul",)),
        (_reversed, Tensor, ("__rmatmul__",)),
        (_added, torch, ("addmm", "baddbmm", "addbmm", "addmv")),
        (_added, Tensor, ("addmm", "baddbmm", "addbmm", "addmv")),
        (_einsum, torch, ("einsum",)),
        (_tensordot, torch, ("tensordot",)),
    ]
    found = [(f"{owner.__name__}.{name}", owner, name, kind(f"{owner.__name__}.{name}", getattr(owner, name)))
             for kind, owner, names in kinds for name in names]
    fused: Any = torch._VF
    return [*found, *((f"torch._VF.{name}", fused, name, _written_out(f"torch._VF.{name}", name)) for name in CELLS)]


def _written_out(place: str, name: str) -> Wrapper:
    """A recurrent layer; the products with its weights happen inside, and only while it is written out."""
    run = unfused(name)

    def wrapper(*args: Any) -> Any:
        if _State.hits is not None:
            _State.hits.add(place)
        return run(*args)

    return wrapper


PLACES = _make_places()
BY_FUNCTION = {original: wrapper for _, owner, name, wrapper in PLACES
               if (original := getattr(owner, name)) is not wrapper}
