"""What a foreign model raised, in one line: audits go on and say why a part was not tested."""

from __future__ import annotations

LONGEST = 160


def told(error: BaseException) -> str:
    """The kind of an error and the first line of its message; a bare ``assert`` has none.

    >>> told(AssertionError()), told(ValueError("no such axis\\nmore"))
    ('AssertionError', 'ValueError: no such axis')
    """
    lines = str(error).strip().splitlines()
    kind = type(error).__name__
    return f"{kind}: {lines[0][:LONGEST]}" if lines else kind
