"""Inputs and outputs of any shape (a tensor, a tuple, a dict, nested) seen as a list of named leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from assay.audits.symmetry.representations.base import Invariant, Representation
from assay.errors import expected

Declared = Any
"""A Representation, or a tuple or dict of them in the shape of what they describe."""


def leaves(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """All leaves with their names, in order; a tensor alone is a leaf called "".

    >>> [name for name, _ in leaves({"pos": 1, "pair": (2, 3)})]
    ['pos', 'pair.0', 'pair.1']
    """
    items: Iterator[tuple[Any, Any]]
    if isinstance(value, Mapping):
        items = iter(value.items())
    elif isinstance(value, (tuple, list)):
        items = enumerate(value)
    else:
        return [(name, value)]
    return [leaf for key, item in items for leaf in leaves(item, f"{name}.{key}" if name else str(key))]


def rebuild(template: Any, new: Iterator[Any]) -> Any:
    """A value shaped like ``template`` with its leaves taken from ``new``."""
    if isinstance(template, Mapping):
        return {key: rebuild(item, new) for key, item in template.items()}
    if isinstance(template, (tuple, list)):
        items = [rebuild(item, new) for item in template]
        return type(template)(*items) if hasattr(template, "_fields") else type(template)(items)
    return next(new)


def match(declared: Declared, value: Any, what: str, *, partial: bool = False) -> list[Representation | None]:
    """The representation of each leaf of ``value``; None where nothing was declared (only if ``partial``)."""
    if isinstance(declared, Representation):
        found = leaves(value)
        if len(found) > 1:
            raise expected(
                f"one representation per {what}: {', '.join(name for name, _ in found)}",
                given=repr(declared),
                do=f"give {what}s=... as a {'dict' if isinstance(value, Mapping) else 'tuple'} of the same shape",
            )
        return [declared]
    if declared is None:
        return [None if partial else Invariant() for _ in leaves(value)]
    if isinstance(declared, Mapping) and isinstance(value, Mapping):
        return _match_dicts(declared, value, what, partial)
    if _is_sequence(declared) and _is_sequence(value) and len(declared) == len(value):
        pairs = zip(declared, value, strict=True)
        return [rep for one, item in pairs for rep in match(one, item, what, partial=partial)]
    raise expected(f"{what}s declared in the shape of the {what}s", given=f"{declared!r} for {_shape(value)}")


def _match_dicts(
    declared: Mapping[str, Declared], value: Mapping[str, Any], what: str, partial: bool
) -> list[Representation | None]:
    extra = [key for key in declared if key not in value]
    missing = [key for key in value if key not in declared]
    if extra or (missing and not partial):
        raise expected(
            f"the {what}s {', '.join(map(str, value))}",
            given=f"{'unknown ' + ', '.join(extra) if extra else 'nothing for ' + ', '.join(map(str, missing))}",
            do="declare every one; sym.invariant() if the group leaves it alone",
        )
    return [rep for key, item in value.items() for rep in match(declared.get(key), item, what, partial=partial)]


def tensors(value: Any) -> list[Tensor]:
    """The tensor leaves of a value."""
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, Tensor)]


def map_tensors(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """The value with ``change`` applied to every tensor leaf."""
    return rebuild(value, (change(leaf) if isinstance(leaf, Tensor) else leaf for _, leaf in leaves(value)))


def said(output: str) -> str:
    """How an output is called in a sentence."""
    return "the output" if output == "output" else f"output {output}"


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _shape(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a dict with {', '.join(map(str, value))}"
    return f"{type(value).__name__} of {len(value)}" if _is_sequence(value) else type(value).__name__
