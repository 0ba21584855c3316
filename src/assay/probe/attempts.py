"""Crash containment: what a user's model raises becomes a recorded reason, and the audit goes on without that part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

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
        return Attempt(None, said_of(error))


def said_of(error: Exception) -> str:
    """An exception in one line of at most 160 characters: its type and the first line of its message."""
    first = next(iter(str(error).strip().splitlines()), "")[:160]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
