"""Inference over seeds and test items at once, both taken as samples: a verdict about data like the test set.

Seeds share the test items. An interval over seeds alone says nothing of other items: where correctness is mostly fixed
per item and the true gap lies at the margin, it declares false parity a third of the time. Here the gap is the mean of
D[seed, item] in {-1, 0, 1}, and the variance of the mean has two parts:

    over seeds  var(mean of a seed) / S               as in the paired t interval, with t of S - 1 degrees of freedom
    over items  covariance of two seeds on one item   what no number of seeds averages out

Each part enters with its own quantile, half^2 = t_seeds^2 V_seeds + t_items^2 V_items, which keeps its level at three
seeds where one number of degrees of freedom for the sum does not. Answers differ on few items, and few say little of
their own number; so neither part may fall below what the edge under test itself demands (a score test: to have a gap of
g at all, items must differ), with one item added on which every seed differs. The interval holds every gap that is not
rejected. ``benchmarks/evidence.py`` calibrates it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.errors import expected
from assay.results import Interval, Region
from assay.stats.answers import Answers
from assay.stats.decision import LEAST_LEVEL
from assay.stats.gap_evidence import GapEvidence
from assay.stats.power import Sides

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ADDED = 1.0
"""Items on which every seed differs, added before the structure of the answers is estimated."""
METHOD = "seeds x items crossed"


@dataclass(frozen=True)
class Crossed:
    """What crossed answers say, as few numbers: enough to test any gap.

    ``over_seeds`` and ``over_items`` are the two parts of the variance of the mean. ``discordant`` is the mean of D^2,
    ``shared`` the mean of D[s, i] D[t, i] over pairs of seeds, ``differing`` the number of items on which some seed
    differs. ``cells`` is the number of answers, ``weight`` what an item's own part weighs in the variance of the mean.
    """

    mean: float
    seeds: int
    items: int
    cells: int
    weight: float
    over_seeds: float
    over_items: float
    discordant: float
    shared: float
    differing: int

    def half(self, gap: float, level: float) -> float:
        """How far the mean may lie from a true ``gap`` before the gap is rejected at one-sided ``level``."""
        from scipy import special

        normal, of_seeds, of_items = (
            float(special.stdtrit(freedom, 1 - level)) for freedom in (1e9, self.seeds - 1, max(1, self.differing - 1))
        )
        discordant = (self.discordant * self.items + ADDED) / (self.items + ADDED)
        shared = (max(self.shared, 0.0) * self.items + ADDED) / (self.items + ADDED)
        fixed = min(1.0, shared / discordant)
        needed = max(0.0, abs(gap) - abs(self.mean))
        discordant, shared = discordant + needed, shared + fixed * needed
        least_seeds = max(0.0, discordant - shared) / self.cells
        least_items = max(0.0, shared - gap * gap) * self.weight
        seeds = max(of_seeds**2 * self.over_seeds, normal**2 * least_seeds)
        items = max(of_items**2 * self.over_items, normal**2 * least_items)
        return math.sqrt(seeds + items)

    def interval(self, level: float) -> Interval:
        """The gaps not rejected by either one-sided test at ``level``."""
        ends = (self._end(-1.0, level), self._end(1.0, level))
        method = f"{METHOD}, {self.seeds} x {self.items}"
        return Interval(low=ends[0], high=ends[1], confidence=1 - 2 * level, method=method)

    def p_value(self, edge: float, *, above: bool) -> float:
        """The smallest one-sided level at which ``edge`` is rejected in favour of a larger (or smaller) gap."""
        distance = (self.mean - edge) if above else (edge - self.mean)
        low, high = LEAST_LEVEL, 0.5
        if distance <= 0 or distance <= self.half(edge, high):
            return 1.0 if distance < 0 else 0.5
        for _ in range(60):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if distance > self.half(edge, middle) else (middle, high)
        return high

    def power(self, region: Region, level: float, *, gap: float = 0.0) -> float:
        """About how often a true ``gap`` would be confirmed by as many seeds and items that spread like these."""
        from scipy import special

        error = math.sqrt(self.over_seeds + self.over_items) or self.half(gap, 0.1587)
        low = -math.inf if region.low is None else region.low + self.half(region.low, level)
        high = math.inf if region.high is None else region.high - self.half(region.high, level)
        return max(0.0, float(special.ndtr((high - gap) / error) - special.ndtr((low - gap) / error)))

    def reach(self, level: float, *, target: float, sides: Sides) -> float:
        """The smallest margin that as many seeds and items that spread like these confirm with power ``target``."""
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            region = Region(low=-middle, high=middle if sides == "both" else None)
            low, high = (low, middle) if self.power(region, level) >= target else (middle, high)
        return high

    def _end(self, side: float, level: float) -> float:
        """The last gap on one side of the mean that is not rejected, found by halving; at most 1 away from 0."""
        near, far = self.mean, side
        if abs(self.mean - far) <= self.half(far, level):
            return far
        for _ in range(60):
            middle = (near + far) / 2
            kept = abs(self.mean - middle) <= self.half(middle, level)
            near, far = (middle, far) if kept else (near, middle)
        return far


def crossed(answers: Answers) -> Crossed:
    """The numbers behind an inference over seeds and items; InputError with fewer than two seeds.

    Seeds may have answered different items; then an item that several saw links them.

    >>> from assay.stats.answers import paired_answers
    >>> rows = {seed: [True] * 90 + [False] * 10 for seed in (1, 2, 3)}
    >>> crossed(paired_answers(rows, rows)).mean
    0.0
    """
    import numpy as np

    count = len(answers.seeds)
    if count < 2:
        raise expected("at least two seeds for an inference over seeds and items", given=f"{count}")
    first = answers.items[0]
    same = all(row is first or np.array_equal(row, first) for row in answers.items)
    sums = _same_items(answers) if same else _linked_items(answers)
    covariance = sums.centred / max(1.0, sums.pairs - count * (count - 1))
    return Crossed(
        mean=float(sums.means.mean()),
        seeds=count,
        items=sums.items,
        cells=sums.cells,
        weight=sums.weight,
        over_seeds=float(sums.means.var(ddof=1)) / count,
        over_items=max(0.0, covariance) * sums.overlap,
        discordant=sums.squares / sums.cells,
        shared=sums.raw / sums.pairs if sums.pairs else sums.squares / sums.cells,
        differing=sums.differing,
    )


def crossed_evidence(answers: Answers, region: Region, *, scale: float) -> tuple[GapEvidence, Crossed]:
    """The interval and p-value of a claim about the gap, over seeds and items, in units of ``scale``."""
    found = crossed(answers)

    def interval_at(level: float) -> Interval:
        inner = found.interval(level)
        return inner.model_copy(update={"low": inner.low * scale, "high": inner.high * scale})

    sides = [] if region.low is None else [found.p_value(region.low / scale, above=True)]
    sides += [] if region.high is None else [found.p_value(region.high / scale, above=False)]
    return GapEvidence(interval_at, lambda: max(sides)), found


@dataclass(frozen=True)
class _Sums:
    """Sums over a table of answers.

    ``pairs`` counts ordered pairs of answers of two seeds to one item; ``raw`` and ``centred`` are the sums of their
    products, as they are and less the mean of each seed. ``overlap`` is what the covariance of such a pair weighs in
    the covariance of two seeds' means, ``weight`` what an item's own part weighs in the variance of the grand mean.
    """

    means: NDArray[np.float64]
    items: int
    cells: int
    differing: int
    squares: float
    pairs: float
    raw: float
    centred: float
    overlap: float
    weight: float


def _same_items(answers: Answers) -> _Sums:
    """Every seed answered the same items: a full table."""
    import numpy as np

    table = np.stack(answers.differences)
    count, items = table.shape
    by_item = table.sum(0, dtype=np.int64)
    means = table.sum(1, dtype=np.int64) / items
    squares = float(np.count_nonzero(table))
    raw = float((by_item * by_item).sum()) - squares
    centred = raw - items * float(means.sum()) ** 2 + items * float((means * means).sum())
    differing = int(np.count_nonzero(table.any(0)))
    pairs = float(items * count * (count - 1))
    return _Sums(means, items, table.size, differing, squares, pairs, raw, centred, 1 / items, 1 / items)


def _linked_items(answers: Answers) -> _Sums:
    """Seeds answered items of their own; those that several saw link them."""
    import numpy as np

    _, where = np.unique(np.concatenate(answers.items), return_inverse=True)
    y = np.concatenate(answers.differences).astype(float)
    sizes = np.asarray([len(row) for row in answers.differences])
    count, items = len(sizes), int(where.max()) + 1
    of_seed = np.repeat(np.arange(count), sizes)
    means = np.bincount(of_seed, y, count) / sizes
    seen = np.bincount(where, minlength=items).astype(float)

    def products(values: NDArray[np.float64]) -> float:
        return float((np.bincount(where, values, items) ** 2).sum() - (values * values).sum())

    return _Sums(
        means=means,
        items=items,
        cells=len(y),
        differing=int(np.count_nonzero(np.bincount(where, np.abs(y), items))),
        squares=float((y * y).sum()),
        pairs=float((seen * (seen - 1)).sum()),
        raw=products(y),
        centred=products(y - means[of_seed]),
        overlap=products(1.0 / sizes[of_seed]) / (count * (count - 1)),
        weight=float((seen**2).sum()) / len(y) ** 2,
    )
