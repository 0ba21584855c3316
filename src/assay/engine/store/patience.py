"""Requests to a server that may fail for a moment: tried again, ever more slowly, then one line that says so."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from assay.errors import AssayError

Answer = TypeVar("Answer")

ATTEMPTS = 6
FIRST_SECONDS = 0.2
"""Doubled each time: about six seconds in all, give or take, so that many drivers do not come back in step."""
ANSWERS = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
"""Errors that are answers: asking again would be told the same."""


def patiently(
    ask: Callable[[], Answer], *, what: str, sleep: Callable[[float], object] = time.sleep
) -> Answer:
    """The answer, if need be of a later attempt; AssayError in one line when there is none."""
    for attempt in range(ATTEMPTS):
        try:
            return ask()
        except ANSWERS:
            raise
        except Exception as error:  # clients raise their own kinds for what goes wrong on the way
            if attempt == ATTEMPTS - 1:
                said = " ".join(str(error).split())[:200] or type(error).__name__
                raise AssayError(
                    f"cannot {what} after {ATTEMPTS} attempts: {said}; the same command continues the run"
                ) from None
            sleep(FIRST_SECONDS * 2**attempt * random.uniform(0.5, 1.5))
    raise AssertionError
