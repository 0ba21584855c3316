"""One root seed, many named and independent streams: same seed same result, other name other stream."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from assay.errors import InputError, expected, unknown
from assay.protocols import BUDGETS, SEEDS, Budget

if TYPE_CHECKING:
    import numpy as np
    import torch


MOST = 100_000
"""Seeds of one run; a misplaced digit should cost a line, not the machine's memory."""


def seeds_of(budget: Budget, *, count: int | None, first: int) -> tuple[int, ...]:
    """The seeds of a run, from ``first`` upwards: as many as the budget says, or ``count``.

    >>> seeds_of("quick", count=None, first=42)
    (42, 43, 44)
    """
    if budget not in BUDGETS:
        raise InputError(unknown("budget", budget, BUDGETS))
    number = SEEDS[budget] if count is None else count
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise expected("seeds >= 1", given=f"seeds={count!r}")
    if number > MOST:
        raise expected(f"at most {MOST:,} seeds", given=f"seeds={number}", do="no claim needs more: see assay plan")
    if isinstance(first, bool) or not isinstance(first, int) or first < 0:
        raise expected("seed >= 0", given=f"seed={first!r}")
    return tuple(range(first, first + number))


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream called ``names`` under root ``seed``; no two names collide in practice.

    >>> derive(0, "init") == derive(0, "init"), derive(0, "init") == derive(0, "order")
    (True, False)
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise expected("a seed that is an integer >= 0", given=repr(seed))
    text = "/".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def torch_generator(seed: int, *names: str | int) -> torch.Generator:
    """A CPU torch generator for the named stream; the global generator is never touched."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *names))


def numpy_generator(seed: int, *names: str | int) -> np.random.Generator:
    """A NumPy generator for the named stream."""
    import numpy as np

    return np.random.default_rng(derive(seed, *names))
