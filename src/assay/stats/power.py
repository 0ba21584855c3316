"""What a number of seeds can show: power, the smallest margin within reach, seeds needed, planned looks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from assay.errors import expected
from assay.stats.decision import MINIMUM_SEEDS, counted, finite, fraction

Sides = Literal["both", "one"]
"""``both`` for parity (the gap is bounded on both sides), ``one`` for non-inferior and better."""


def power(margin: float, sd: float, n: int, *, gap: float = 0.0, alpha: float = 0.05, sides: Sides = "both") -> float:
    """The chance that n pairs confirm a claim with this margin, if the true gap is ``gap``.

    ``sd`` is the standard deviation of the paired difference. For parity the claim is confirmed when the t interval of
    level 1 - 2 alpha lies inside (-margin, margin); the chance is exact: the normal probability of the mean averaged
    over the chi distribution of the spread. For one side it is the noncentral t distribution, at distance margin + gap.

    >>> round(power(3.0, 1.5, 5), 2)
    0.95
    """
    finite("margin", margin, above=0.0)
    finite("sd", sd, above=0.0)
    finite("gap", gap)
    fraction("alpha", alpha, below=0.5)
    return _power(margin / sd, counted("n", n, least=2), gap / sd, alpha=alpha, sides=_sides(sides))


def minimal_margin(sd: float, n: int, *, target: float = 0.8, alpha: float = 0.05, sides: Sides = "both") -> float:
    """The smallest margin that n pairs confirm with power ``target`` when the true gap is 0.

    >>> [round(minimal_margin(1.0, n), 2) for n in (3, 5, 10, 20)]
    [2.66, 1.6, 1.0, 0.68]
    """
    finite("sd", sd, above=0.0)
    fraction("target", target)
    fraction("alpha", alpha, below=0.5)
    return sd * _unit_margin(counted("n", n, least=2), target, alpha, _sides(sides))


def seeds_needed(
    margin: float,
    sd: float,
    *,
    target: float = 0.8,
    gap: float = 0.0,
    alpha: float = 0.05,
    sides: Sides = "both",
    limit: int = 100_000,
) -> int:
    """The fewest pairs, at least three, that confirm the claim with power ``target``.

    Raises InputError if the assumed gap lies outside the margin (no number of seeds helps) or beyond ``limit`` pairs.

    >>> seeds_needed(3.0, 1.5)
    4
    """
    fraction("target", target)
    power(margin, sd, MINIMUM_SEEDS, gap=gap, alpha=alpha, sides=sides)  # checks the arguments
    reach = margin - abs(gap) if sides == "both" else margin + gap
    if reach <= 0:
        raise expected(
            "a gap inside the margin", given=f"gap={gap:g}, margin={margin:g}", do="no number of seeds helps"
        )
    low, high = MINIMUM_SEEDS - 1, MINIMUM_SEEDS
    while power(margin, sd, high, gap=gap, alpha=alpha, sides=sides) < target:
        low, high = high, 2 * high
        if low >= limit:
            raise expected(
                f"a claim within reach of {limit} seeds",
                given=f"margin={margin:g}, sd={sd:g}, gap={gap:g}",
                do="widen the margin or reduce the spread",
            )
    while high - low > 1:
        middle = (low + high) // 2
        enough = power(margin, sd, middle, gap=gap, alpha=alpha, sides=sides) >= target
        low, high = (low, middle) if enough else (middle, high)
    return high


class LookPlan(NamedTuple):
    """When the data may be looked at, fixed before the first run; each look spends an equal share of alpha."""

    looks: tuple[int, ...]
    alpha: float

    @property
    def alpha_each(self) -> float:
        """The level of one look."""
        return self.alpha / len(self.looks)


def planned_looks(looks: Sequence[int] = (5, 10, 20), *, alpha: float = 0.05) -> LookPlan:
    """A plan to look at the data after these numbers of seeds and to stop at the first PASS.

    Looking after every seed from 3 to 20 declares false parity 19 % of the time; three planned looks at alpha / 3 each
    keep it below alpha. Pass the plan as ``looks=`` to a comparison: at any other n it is INCONCLUSIVE.

    >>> planned_looks((5, 10, 20)).alpha_each
    0.016666666666666666
    """
    fraction("alpha", alpha, below=0.5)
    plan = tuple(counted("look", n, least=MINIMUM_SEEDS) for n in looks)
    if not plan or list(plan) != sorted(set(plan)):
        raise expected("increasing numbers of seeds", given=f"looks={tuple(looks)}")
    return LookPlan(plan, alpha)


def unexcluded_collapse_rate(n: int, *, collapses: int = 0, confidence: float = 0.95) -> float:
    """The largest per-seed collapse rate that n seeds with this many collapses do not exclude (exact, one-sided).

    >>> [f"{unexcluded_collapse_rate(n):.0%}" for n in (5, 10, 20)]
    ['45%', '26%', '14%']
    """
    from assay.stats.intervals import binomial_interval

    fraction("confidence", confidence)
    return binomial_interval(collapses, n, confidence=2 * confidence - 1).high if confidence > 0.5 else 1.0


def _sides(sides: str) -> Sides:
    if sides not in ("both", "one"):
        raise expected("sides 'both' or 'one'", given=f"sides={sides!r}")
    return "both" if sides == "both" else "one"


def _power(margin: float, n: int, gap: float, *, alpha: float, sides: Sides) -> float:
    """``power`` in units of the standard deviation."""
    from scipy import integrate, special, stats

    freedom = n - 1
    critical = float(stats.t.ppf(1 - alpha, freedom))
    if sides == "one":
        return float(stats.nct.sf(critical, freedom, (margin + gap) * math.sqrt(n)))
    # The sample spread u, in units of sd, has the density of a chi variable with n - 1 degrees of freedom divided by
    # sqrt(n - 1); beyond the widest spread no mean can be confirmed.
    widest = margin * math.sqrt(n) / critical
    constant = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)

    def confirmed(u: float) -> float:
        if u <= 0.0:
            return 0.0
        reach = margin - critical * u / math.sqrt(n)
        chance = special.ndtr((reach - gap) * math.sqrt(n)) - special.ndtr((-reach - gap) * math.sqrt(n))
        density = math.exp(constant + (freedom - 1) * math.log(u) - freedom * u * u / 2)
        return float(chance * density)

    # Practically all of the chi density lies within 8 / sqrt(2 (n - 1)) of 1; a tighter range keeps the peak in view.
    spread = 8 / math.sqrt(2 * freedom)
    start, end = max(0.0, 1 - spread), min(widest, 1 + spread)
    if end <= start:
        return 0.0
    value, _ = integrate.quad(confirmed, start, end, limit=200, epsabs=1e-9, epsrel=1e-9)
    return min(1.0, max(0.0, float(value)))


@lru_cache(maxsize=256)
def _unit_margin(n: int, target: float, alpha: float, sides: Sides) -> float:
    from scipy import optimize

    high = 1.0
    while _power(high, n, 0.0, alpha=alpha, sides=sides) < target:
        high *= 2

    def missing(scaled: float) -> float:
        return _power(scaled, n, 0.0, alpha=alpha, sides=sides) - target

    return float(optimize.brentq(missing, high * 1e-6, high, xtol=1e-9))
