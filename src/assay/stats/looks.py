"""Looks at a claim, and what each of them costs.

Whoever runs three seeds, then ten, then twenty, and stops at the first PASS, tests three times: at 5 % each that is
11.9 % false parities, and five root seeds give 23 %. So alpha is spent: after N distinct seeds of a claim have been
looked at, at most alpha * (N / 20) ** 0.58 is gone, one third of it after 3, two thirds after 10, all after 20. A look
that only adds seeds to the last one is correlated with it, and its level is found by simulating the t statistics of the
whole chain: 1.67 %, 1.87 % and 2.3 % instead of three times 1.67 %. A look at other seeds (another root seed) gets no
more than what it spends. Once a look has passed, later ones can only confirm it and are tested at the full alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from assay.results import Evidence, Verdict

HORIZON = 20
"""Seeds of the full budget, after which all of alpha is spent."""
EXPONENT = 0.58
DRAWS = 400_000


@dataclass(frozen=True)
class Look:
    """One look at a claim: which seeds, when, by which code and machine, and what it said (None: not finished)."""

    seeds: tuple[int, ...]
    at: str
    code: str = ""
    machine: str = ""
    verdict: Verdict | None = None
    evidence: Evidence | None = None
    asked: str = ""
    """What decided and what it was allowed to be, in words."""

    @property
    def root(self) -> int | None:
        """The first seed."""
        return min(self.seeds, default=None)


@dataclass(frozen=True)
class Spending:
    """What this look may spend: its one-sided level, and what to say of the looks before it.

    ``shopped`` lists the root seeds tried before, if any did not pass; ``earlier`` counts the looks before this one.
    """

    level: float
    alpha: float
    earlier: int = 0
    shopped: tuple[int, ...] = ()
    note: str = ""


def spending(seeds: Sequence[int], history: Sequence[Look], *, code: str = "", alpha: float = 0.05) -> Spending:
    """The level of a look at ``seeds`` after the looks in ``history`` (oldest first; those by other code do not count).

    The same seeds again are the same look.

    >>> [round(spending(range(n), [], alpha=0.05).level, 4) for n in (3, 10, 20)]
    [0.0166, 0.0334, 0.05]
    """
    now = frozenset(seeds)
    before = []
    for look in history:
        if look.code != code or look.verdict is None:
            continue
        if frozenset(look.seeds) == now:
            break
        before.append(look)
    apart = [look for look in before if not (now >= set(look.seeds) or now <= set(look.seeds))]
    if any(look.verdict is Verdict.PASS for look in before):
        return Spending(alpha, alpha, len(before), note="an earlier look passed: this one can only confirm it")
    seen: set[int] = set()
    for look in before:
        seen |= set(look.seeds)
    spent, total = _spent(len(seen), alpha), _spent(len(seen | now), alpha)
    chain = _chain([frozenset(look.seeds) for look in before] + [now])
    level = _levels(chain, alpha)[-1] if chain else max(0.0, total - spent)
    shopped = tuple(sorted({look.root for look in apart if look.root is not None}))
    note = _say(len(before), len(seen), shopped, level=level, alpha=alpha)
    return Spending(level, alpha, len(before), shopped, f"{note}{_by_other_code(history, code)}")


def _by_other_code(history: Sequence[Look], code: str) -> str:
    """Looks that cost nothing because the code has changed since are told all the same."""
    count = sum(look.code != code and look.verdict not in (None, Verdict.PASS) for look in history)
    return f"; other code looked {count} time{'s' if count > 1 else ''} before and did not pass" if count else ""


def _say(before: int, seen: int, shopped: tuple[int, ...], *, level: float, alpha: float) -> str:
    if shopped:
        roots = ", ".join(map(str, shopped))
        told = f"other root seeds were looked at before ({roots}) and did not pass"
    elif before:
        told = f"look {before + 1} at this claim, {seen} seeds were seen before"
    else:
        told = "first look at this claim"
    if level <= 0:
        return f"{told}: nothing of the {alpha:.0%} is left, a PASS of these seeds would be a choice among looks"
    return f"{told}: tested at {level:.2%} of the {alpha:.0%}"


def _spent(seen: int, alpha: float) -> float:
    """How much of alpha may be gone after so many distinct seeds."""
    return float(alpha * min(1.0, seen / HORIZON) ** EXPONENT)


def _chain(looks: Sequence[frozenset[int]]) -> tuple[int, ...]:
    """The numbers of seeds of looks that only ever add seeds; empty if one of them does not."""
    grows = all(earlier < later for earlier, later in pairwise(looks))
    sizes = tuple(len(look) for look in looks)
    return sizes if grows and all(size >= 2 for size in sizes[1:]) else ()


@lru_cache(maxsize=64)
def _levels(chain: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """The level of each look of a growing chain, such that no more than what it may spend is spent at each.

    The t statistics of the chain are drawn under a gap at the edge (mean 0): a block of k new values adds its mean and
    its sum of squares. The draws are seeded, so the levels are always the same.
    """
    import numpy as np
    from scipy import special

    if len(chain) == 1:
        return (_spent(chain[0], alpha),)
    generator = np.random.default_rng(20)
    mean, squares, count = np.zeros(DRAWS), np.zeros(DRAWS), 0
    passed = np.zeros(DRAWS, dtype=bool)
    levels: list[float] = []
    for n in chain:
        new = n - count
        block = generator.normal(0.0, 1 / np.sqrt(new), DRAWS)
        within = generator.chisquare(new - 1, DRAWS) if new > 1 else np.zeros(DRAWS)
        squares += within + (block - mean) ** 2 * (count * new / n)
        mean += (block - mean) * (new / n)
        count = n
        spend = _spent(n, alpha) - sum(_increments(chain[: len(levels)], alpha))
        if n < 2 or spend <= 0:
            levels.append(0.0)
            continue
        statistic = mean * np.sqrt(n) / np.sqrt(squares / (n - 1))
        p_values = special.stdtr(n - 1, -statistic)
        level = float(np.quantile(np.where(passed, 2.0, p_values), spend))
        passed |= p_values <= level
        levels.append(min(level, alpha))
    return tuple(levels)


def _increments(chain: tuple[int, ...], alpha: float) -> list[float]:
    """What each look of a chain spends."""
    totals = [_spent(n, alpha) for n in chain]
    return [total - before for total, before in zip(totals, [0.0, *totals], strict=False)]
