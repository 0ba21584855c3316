"""How long cells take, learnt from those already done."""

from __future__ import annotations

import functools
import json
import math
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from assay.protocols import Cell

KEPT = 64
"""Recent times kept of each group."""


@dataclass(frozen=True)
class Forecast:
    """What cells will cost: ``core_seconds`` of those still to run whose cost is known or guessed, and who is which.

    ``guessed`` cells have no record of their own and are taken to cost what the known ones of the same plan do, or, if
    it has none, what the caller would guess; ``unknown`` ones have nothing to go by and cost nothing here.
    """

    cells: int
    stored: int
    core_seconds: float
    longest: float
    guessed: int
    unknown: int

    def seconds(self, places: int) -> float:
        """Time to the end on so many cores, if cells are given out longest first."""
        return max(self.core_seconds / max(places, 1), self.longest)


def forecast(
    cells: Sequence[Cell], stored: Container[str], costs: CostModel, *, otherwise: float | None = None
) -> Forecast:
    """The cost of the cells whose key is not among the stored ones; ``otherwise`` is a guess if none is known."""
    waiting = list({cell.key: cell for cell in cells if cell.key not in stored}.values())
    known = [costs.seconds(cell.group) for cell in waiting if costs.knows(cell.group)]
    known += [costs.seconds(cell.group) for cell in cells if cell.key in stored and costs.knows(cell.group)]
    typical = sum(known) / len(known) if known else otherwise
    strange = [cell for cell in waiting if not costs.knows(cell.group)]
    each = [(cell, costs.seconds(cell.group)) for cell in waiting if costs.knows(cell.group)]
    if typical is not None:
        each += [(cell, typical) for cell in strange]
    return Forecast(
        cells=len({cell.key for cell in cells}),
        stored=len({cell.key for cell in cells}) - len(waiting),
        core_seconds=sum(seconds * cell.cpus for cell, seconds in each),
        longest=max((seconds for _, seconds in each), default=0.0),
        guessed=len(strange) if typical is not None else 0,
        unknown=len(strange) if typical is None else 0,
    )


@functools.cache
def shipped() -> Mapping[str, float]:
    """Processor seconds of one cell by group, measured by ``benchmarks/priors.py`` when this version was made."""
    text = resources.files("assay.engine").joinpath("priors.json").read_text(encoding="utf-8")
    return {str(group): float(seconds) for group, seconds in json.loads(text)["seconds"].items()}


def prior(group: str) -> float | None:
    """The shipped time of a group ``track/budget/arm``, else of the same track and arm at the quick budget.

    Larger budgets mean more seeds; a smoke run is shortened, so its times say nothing about others.
    """
    track, _, rest = group.partition("/")
    budget, _, arm = rest.partition("/")
    names = [group] if budget == "smoke" else [group, f"{track}/quick/{arm}"]
    return next((shipped()[name] for name in names if name in shipped()), None)


@dataclass(frozen=True)
class Usual:
    """Seconds of a cell of any claim that ships: the middle one, and the range without a tenth on either side."""

    low: float
    middle: float
    high: float


def usual() -> Usual | None:
    """What to guess for a cell of a claim nobody has run; None if no times ship."""
    times = sorted(shipped().values())
    if not times:
        return None
    return Usual(*(times[int(share * (len(times) - 1))] for share in (0.1, 0.5, 0.9)))


class CostModel:
    """Typical seconds of a cell by its group; unknown groups cost what the known ones do.

    >>> costs = CostModel()
    >>> costs.learn("eqprop", 4.0)
    >>> costs.seconds("eqprop"), costs.seconds("never seen")
    (4.0, 4.0)
    """

    def __init__(self) -> None:
        self._times: dict[str, list[float]] = defaultdict(list)
        self._any = (0.0, 0)

    def learn(self, group: str, seconds: float) -> None:
        """Take one finished cell into account."""
        times = self._times[group]
        times.append(seconds)
        del times[:-KEPT]
        total, count = self._any
        self._any = (total + seconds, count + 1)

    def of(self, groups: Container[str]) -> CostModel:
        """What is known about these groups alone: the times of other work say nothing about a plan without them."""
        chosen = CostModel()
        for group, times in self._times.items():
            for seconds in times if group in groups else ():
                chosen.learn(group, seconds)
        return chosen

    def knows(self, group: str) -> bool:
        """Whether any cell of this group has finished."""
        return bool(self._times.get(group))

    def seconds(self, group: str) -> float:
        """Expected seconds of a cell of this group; 0 when nothing is known at all.

        The mean, not the median: what is asked of it are sums over many cells, and times are skewed.
        """
        if times := self._times.get(group):
            return sum(times) / len(times)
        total, count = self._any
        return total / count if count else 0.0

    def left(
        self, waiting: Mapping[str, int], running: Mapping[str, Sequence[float]], workers: int
    ) -> float | None:
        """Seconds until all is done: waiting cells by group, running cells by group with their elapsed times.

        With exact costs, cells given out longest first end between max(work / workers, longest cell) and twice that.
        The longest of n cells still to end is taken as the n / (n + 1) quantile of the recorded times.
        """
        if not any(self._times.values()):
            return None
        work = longest = 0.0
        for group in {**waiting, **running}:
            count, spents = waiting.get(group, 0), running.get(group, ())
            work += self.seconds(group) * count + sum(self._rest(group, spent) for spent in spents)
            if count or spents:
                long = self._longest(group, count + len(spents))
                longest = max(longest, long if count else long - min(spents))
        return max(work / max(workers, 1), longest)

    def with_priors(self, groups: Iterable[str]) -> tuple[CostModel, set[str]]:
        """What is known of these groups, with shipped times where nothing was recorded; and which those are.

        A group without a shipped time of its own takes that of the same work at another budget.
        """
        chosen, taken = self.of(set(groups)), set()
        for group in groups:
            if not chosen.knows(group) and (seconds := prior(group)) is not None:
                chosen.learn(group, seconds)
                taken.add(group)
        return chosen, taken

    def dumps(self) -> bytes:
        """The recorded times as JSON."""
        times = {group: self._times[group] for group in sorted(self._times)}
        return json.dumps({"format": 1, "seconds": times}).encode()

    @classmethod
    def loads(cls, raw: bytes) -> CostModel:
        """The model that ``dumps`` wrote; ValueError or TypeError if it is something else."""
        costs = cls()
        for group, times in json.loads(raw).get("seconds", {}).items():
            for seconds in times:
                costs.learn(str(group), float(seconds))
        return costs

    def _longest(self, group: str, cells: int) -> float:
        times = sorted(self._times.get(group, ())) or [self.seconds(group)]
        return times[math.ceil(len(times) * cells / (cells + 1)) - 1]

    def _rest(self, group: str, spent: float) -> float:
        """Expected seconds a cell still takes after ``spent``: the mean over recorded times that are longer."""
        longer = [time for time in self._times.get(group, ()) if time > spent]
        if longer:
            return sum(longer) / len(longer) - spent
        return max(self.seconds(group) - spent, 0.0)
