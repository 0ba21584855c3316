"""Crash containment: what a foreign model raised becomes one line; audits go on and say what was not tested."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

LONGEST = 160
T = TypeVar("T")


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """What came of trying something: a value, or the reason why there is none (``problem`` is then not empty)."""

    value: T | None
    problem: str = ""


def attempt(action: Callable[[], T]) -> Attempt[T]:
    """The value of ``action()``, or the exception it raised in one line. Ctrl-C and exits pass through.

    >>> attempt(lambda: 1 / 0).problem
    'ZeroDivisionError: division by zero'
    """
    try:
        return Attempt(action())
    except Exception as error:
        return Attempt(None, told(error))


def told(error: BaseException) -> str:
    """The kind of an error and the first line of its message; a bare ``assert`` has none.

    >>> told(AssertionError()), told(ValueError("no such axis\\nmore"))
    ('AssertionError', 'ValueError: no such axis')
    """
    lines = str(error).strip().splitlines()
    kind = type(error).__name__
    return f"{kind}: {lines[0][:LONGEST]}" if lines else kind
