"""The errors Assay raises on purpose. Each message says what was given, what was expected and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

FOREIGN = (Exception, SystemExit)
"""What code that is not ours may raise; a track that calls ``sys.exit`` must not end the command with a code of its
choice."""


class AssayError(Exception):
    """An error a user can act on: shown as one line, never as a traceback."""


class InputError(AssayError, ValueError):
    """A bad argument, shape, value or file. Also a ValueError, so ordinary callers can catch it."""


class ConfigError(AssayError):
    """A bad key or value in a configuration file, the environment or the command line."""


class SchemaError(AssayError):
    """A run or cell file that cannot be read: corrupt, tampered with, or written by a newer Assay."""


class MissingExtra(AssayError):
    """An optional dependency is not installed; the message carries the exact install command."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed; run: pip install 'assay-ml[{extra}]'")


class MissingData(AssayError):
    """A dataset is not on this machine; the message says how to get it."""


class NotPassed(AssayError):
    """Raised by ``Finding.raise_unless_passed``; carries the finding."""

    def __init__(self, message: str, finding: object) -> None:
        super().__init__(message)
        self.finding = finding


def expected(what: str, *, given: object, do: str | None = None) -> InputError:
    """An InputError in the house form: what was expected, what was given, what to do.

    >>> str(expected("beta != 0", given="beta=0.0", do="use 0.1 to 0.5 in float32"))
    'expected beta != 0; given beta=0.0; use 0.1 to 0.5 in float32'
    """
    message = f"expected {what}; given {given}"
    return InputError(f"{message}; {do}" if do else message)


def unknown(kind: str, given: object, known: Iterable[object]) -> str:
    """A sentence for an unknown name, with the nearest known one as a suggestion.

    >>> unknown("rule", "eqprp", ["backprop", "eqprop"])
    "unknown rule 'eqprp'; did you mean 'eqprop'? known: backprop, eqprop"
    """
    names = [str(name) for name in known]
    close = difflib.get_close_matches(str(given), names, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"unknown {kind} '{given}'; {hint}known: {', '.join(names) or 'none'}"


def printable(text: str) -> str:
    """Text that can be written as UTF-8: what cannot (half of a surrogate pair) is spelt out."""
    return text.encode("utf-8", errors="backslashreplace").decode()
