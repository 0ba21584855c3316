"""Compare what a page shows with what its code printed: the words are the same, the numbers nearly."""

from __future__ import annotations

import re

NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)", flags=re.I)
CLOSE = 0.1
"""Another processor sums in another order, and a training drifts apart from there: results agree to about a tenth."""
SMALL, LARGE = 1e-2, 1e3
"""Below and above these a number is an error, a p value or a ratio to rounding: its order of magnitude counts."""


DURATION = re.compile(r"\d+(?:\.\d+)? (?:h \d+ min|min \d+ s|min|s|ms)\b")
"""How long it took says something about the machine only."""


HASH = re.compile(r"\b(?:\d{8}-\d{6}-[0-9a-f]{6}|[0-9a-f]{12,})\b")
"""A fingerprint, or the name of a run, which holds the hour it began at."""


def differences(shown: str, printed: str) -> list[str]:
    """One line for each line that differs by more than another machine explains.

    >>> differences("PASS 0.971\\n", "PASS 0.968\\n")
    []
    >>> differences("PASS 0.971\\n", "FAIL 0.968\\n")
    ["shows 'PASS 0.971', printed 'FAIL 0.968'"]
    """
    left, right = _lines(shown), _lines(printed)
    if len(left) != len(right):
        return [f"shows {len(left)} lines, printed {len(right)}:\n{printed}"]
    return [f"shows {a!r}, printed {b!r}" for a, b in zip(left, right, strict=True) if not same(a, b)]


def same(shown: str, printed: str) -> bool:
    """Whether two lines say the same."""
    if _words(shown) != _words(printed):
        return False
    shown, printed = (HASH.sub("", DURATION.sub("", line)) for line in (shown, printed))
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    return all(near(float(a), float(b)) for a, b in pairs)


def near(a: float, b: float) -> bool:
    """Within a tenth, or both far from one and of one order of magnitude."""
    size, other = sorted((abs(a), abs(b)))
    if other < SMALL or size > LARGE:
        return size * 30 >= other or other < 1e-6
    return abs(a - b) <= CLOSE * max(other, 0.1)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def _words(line: str) -> str:
    line = HASH.sub("a hash", DURATION.sub("a time", line))
    return " ".join(NUMBER.sub("#", line).split())
