"""Cells that do nothing or wait, in a module that imports nothing: what is measured is the engine.

A child imports the module of its cell anew, and whatever that module imports; that is the user's part of the price.
"""

import time


def nothing(payload: dict[str, int]) -> dict[str, int]:
    """A cell that does nothing."""
    return {"n": payload["n"]}


def one_second(payload: dict[str, int]) -> dict[str, int]:
    """A cell that computes for a second of wall time."""
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        sum(range(1000))
    return {"n": payload["n"]}
