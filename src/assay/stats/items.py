"""Two systems on the same test items: the paired gap with clusters, and McNemar's exact test.

Items of one cluster (questions on one passage, epochs of one question) are not independent; a cluster is then one
observation. Claims are those of ``comparisons``: better, parity, non-inferior.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from assay.errors import expected
from assay.results import Check, Region, Verdict
from assay.stats.decision import Decision, finite, floats, number
from assay.stats.gap_evidence import FEW_DISCORDANT, matched_evidence, matched_power
from assay.stats.gaps import GapClaim, decide_paired
from assay.stats.power import minimal_margin, power

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

ItemClaim = Literal["better", "parity", "non-inferior"]
FLIPS = 9999
"""Random flips where the exact distribution of the test is not a small table."""
LARGEST_TABLE = 50_000_000
"""Clusters times items up to which the exact distribution is computed: a second of work."""
FEW_MOVED = 10


@dataclass(frozen=True)
class ItemComparison:
    """What two systems' scores on the same items say: the decision, McNemar's test, and what ignoring pairs would say.

    ``only_first`` and ``only_second`` count items that one system alone got right; None for scores that are not 0 or 1.
    """

    decision: Decision
    p_value: float
    """Of "no difference", two-sided and paired: McNemar's exact test, over whole clusters where there are any."""
    unpaired_p_value: float
    """What a z test of two independent samples says of the same data: for comparison only, it is the wrong test."""
    items: int
    clusters: int
    only_first: int | None
    only_second: int | None


def compare_items(
    first: Sequence[float], second: Sequence[float], *, claim: ItemClaim = "better", margin: float = 0.0,
    clusters: Sequence[Hashable] | None = None, alpha: float = 0.05, scale: float = 1.0, unit: str = "1",
    name: str = "gap",
) -> ItemComparison:
    """The claim about the mean gap first - second over items, each answered by both systems.

    The interval is a t interval of the gap whose standard error is robust to clusters (Liang & Zeger; degrees of
    freedom: clusters - 1); without clusters it is the paired t interval, and for parity and non-inferiority of scores 0
    and 1 Tango's score interval, or exact where few items tell the systems apart. ``better`` by a margin of 0 must also
    convince McNemar's exact test, which asks whether the systems could be swapped, cluster by cluster. ``scale``
    multiplies scores and gaps, not the margin: 100 for percentage points.

    >>> compare_items([1, 1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0, 0, 1]).p_value
    0.03125
    """
    a, b = floats("first", first), floats("second", second)
    if len(a) != len(b):
        raise expected("the same items in both systems", given=f"{len(a)} and {len(b)} scores")
    if not a or not all(map(math.isfinite, [*a, *b])):
        raise expected("finite scores of at least one item", given=f"{len(a)} items, or a NaN among them")
    if clusters is not None and len(clusters) != len(a):
        raise expected("one cluster for every item", given=f"{len(clusters)} clusters for {len(a)} items")
    asked = _claimed(claim, margin, alpha=alpha, scale=scale, unit=unit, name=name)
    sums, observed = cluster_gaps([x - y for x, y in zip(a, b, strict=True)], clusters)
    whole = all(value in (0.0, 1.0) for value in (*a, *b))
    only_first = sum(x > y for x, y in zip(a, b, strict=True))
    only_second = sum(x < y for x, y in zip(a, b, strict=True))
    p_value, moved, known = swap_test(sums), sum(map(bool, sums)), None
    guards = []
    if claim == "better" and margin == 0:
        guards.append(_swapped(sums, p_value, alpha, whole=whole))
    elif whole and clusters is None:
        known = matched_evidence(only_first, only_second, asked.region, items=len(a), scale=scale)
    elif moved < FEW_MOVED:
        guards.append(Check(name="enough differences", verdict=Verdict.INCONCLUSIVE, reason=(
            f"the systems differ in {moved} of {len(sums)} {'items' if clusters is None else 'clusters'}: an interval "
            f"from fewer than {FEW_MOVED} is too narrow")))
    decision = decide_paired([scale * value for value in observed], [0.0] * len(observed), asked, seeds=(),
                             guards=guards, known=known)
    if known is not None:
        decision = decision.model_copy(update=_reach(asked, (only_first + only_second) / len(a), len(a)))
    return ItemComparison(decision, p_value, _unpaired(a, b), len(a), len(observed), only_first if whole else None,
                          only_second if whole else None)


def _claimed(claim: str, margin: float, *, alpha: float, scale: float, unit: str, name: str) -> GapClaim:
    """The region of the claim, as ``parity``, ``non_inferior`` and ``better`` have it."""
    finite("margin", margin, above=None if claim == "better" else 0.0)
    regions = {"better": Region(low=margin), "parity": Region(low=-margin, high=margin),
               "non-inferior": Region(low=-margin)}
    if claim not in regions or margin < 0:
        raise expected(f"a claim ({', '.join(regions)}) and a margin >= 0", given=f"claim={claim!r}, margin={margin:g}")
    texts = {"better": f"{name} above {number(margin, unit)}", "parity": f"{name} within ± {number(margin, unit)}",
             "non-inferior": f"{name} above {number(-margin, unit)}"}
    return GapClaim(text=texts[claim], region=regions[claim], margin=None if claim == "better" else margin,
                    sides="both" if claim == "parity" else "one", name=name, unit=unit, alpha=alpha, scale=scale)


def _reach(asked: GapClaim, rate: float, items: int) -> dict[str, float | None]:
    """Power if both systems are equally good and differ in this share of items, as their evidence is judged."""
    if asked.margin is None:
        return {}
    if rate * items < FEW_DISCORDANT:
        return {"power": matched_power(rate, asked.region, level=asked.alpha, items=items, scale=asked.scale)}
    spread = asked.scale * math.sqrt(rate)
    return {"power": power(asked.margin, spread, items, alpha=asked.alpha, sides=asked.sides),
            "minimal_margin": minimal_margin(spread, items, alpha=asked.alpha, sides=asked.sides)}


def _swapped(sums: Sequence[float], p_value: float, alpha: float, *, whole: bool) -> Check:
    one_sided = p_value / 2 if math.fsum(sums) > 0 else 1 - p_value / 2
    return Check(
        name="McNemar" if whole else "swap test",
        verdict=Verdict.PASS if one_sided <= alpha else Verdict.INCONCLUSIVE,
        reason=f"one-sided p = {one_sided:.3g} that swapping the systems explains the gap, which "
               f"{'is at most' if one_sided <= alpha else 'exceeds'} {alpha:g}")


def cluster_gaps(gaps: Sequence[float], clusters: Sequence[Hashable] | None) -> tuple[list[float], list[float]]:
    """The sum of gaps of every cluster, and one value per cluster whose t interval is the cluster-robust one.

    With sums S and sizes n of G clusters over N items and the mean gap d, the values are d + (G / N) (S - n d): their
    mean is d, and their squared standard error is G / (G - 1) * sum((S - n d)^2) / N^2.

    >>> cluster_gaps([1.0, 0.0, 0.0], ["p", "p", "q"])[0]
    [1.0, 0.0]
    """
    labels = list(range(len(gaps))) if clusters is None else list(clusters)
    members: dict[Hashable, list[float]] = {}
    for label, gap in zip(labels, gaps, strict=True):
        members.setdefault(label, []).append(gap)
    mean = math.fsum(gaps) / len(gaps)
    sums = [math.fsum(group) for group in members.values()]
    scale = len(sums) / len(gaps)
    return sums, [mean + scale * (total - len(group) * mean)
                  for total, group in zip(sums, members.values(), strict=True)]


def swap_test(sums: Sequence[float]) -> float:
    """The two-sided chance of a total gap this large if every cluster's systems were swapped by a coin.

    For single items with scores 0 and 1 this is McNemar's exact test. Exact for whole sums, by their distribution; for
    others by seeded random swaps.

    >>> swap_test([1.0] * 8 + [-1.0] + [0.0] * 20)
    0.0390625
    """
    import numpy as np

    moved = [abs(value) for value in sums if value]
    if not moved:
        return 1.0
    whole = all(value == round(value) for value in moved)
    observed = abs(math.fsum(sums))
    if whole and all(value == 1 for value in moved):
        from scipy import stats

        n = len(moved)
        return float(min(1.0, stats.binomtest(round((n + observed) / 2), n, 0.5).pvalue))
    if whole and sum(moved) * len(moved) <= LARGEST_TABLE:
        chances = np.ones(1)
        for size in map(int, moved):
            chances = 0.5 * (np.pad(chances, (0, 2 * size)) + np.pad(chances, (2 * size, 0)))
        totals = np.arange(len(chances)) - (len(chances) - 1) // 2
        return float(min(1.0, chances[np.abs(totals) >= observed].sum()))
    draw = np.random.default_rng(0)
    sizes = np.asarray(moved)
    larger = sum(abs(float(draw.choice((-1.0, 1.0), size=len(sizes)) @ sizes)) >= observed * (1 - 1e-12)
                 for _ in range(FLIPS))
    return (larger + 1) / (FLIPS + 1)


def _unpaired(a: Sequence[float], b: Sequence[float]) -> float:
    """The two-sided p-value of a z test that takes the two lists for independent samples."""
    from scipy import stats

    from assay.stats.intervals import deviation

    if len(a) < 2:
        return 1.0
    error = math.sqrt((deviation(a) ** 2 + deviation(b) ** 2) / len(a))
    gap = abs(math.fsum(a) - math.fsum(b)) / len(a)
    return 1.0 if gap == 0 else float(2 * stats.norm.sf(gap / error)) if error > 0 else 0.0
