"""Inputs and outputs of any shape (a tensor, a tuple, a dict, a record, a wrapper, nested) as a list of leaves."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor


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
    elif _is_record(value):
        items = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    elif _is_wrapper(value):
        items = iter([("tensor", value.tensor)])
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
    if _is_record(template):
        twin = copy.copy(template)
        for field in dataclasses.fields(template):
            object.__setattr__(twin, field.name, rebuild(getattr(template, field.name), new))
        return twin
    if _is_wrapper(template):
        twin = copy.copy(template)
        object.__setattr__(twin, "tensor", next(new))
        return twin
    return next(new)


def tensors(value: Any) -> list[Tensor]:
    """The tensor leaves of a value."""
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, Tensor)]


def map_tensors(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """The value with ``change`` applied to every tensor leaf."""
    return rebuild(value, (change(leaf) if isinstance(leaf, Tensor) else leaf for _, leaf in leaves(value)))


def said(output: str) -> str:
    """How an output is called in a sentence."""
    return "the output" if output == "output" else f"output {output}"


def _is_record(value: Any) -> bool:
    """An instance of a dataclass: how many models name their outputs."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _is_wrapper(value: Any) -> bool:
    """An object that carries one tensor and says of what type it is (the GeometricTensor of escnn)."""
    inside = getattr(value, "__dict__", None)
    return not isinstance(value, Tensor) and isinstance(inside, dict) and isinstance(inside.get("tensor"), Tensor)
