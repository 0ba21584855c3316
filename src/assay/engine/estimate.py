"""How long cells take, learnt from those already done."""

from __future__ import annotations

from collections import defaultdict
from statistics import median


class CostModel:
    """Typical seconds of a cell by its group; unknown groups cost what the known ones do.

    >>> costs = CostModel()
    >>> costs.learn("eqprop", 4.0)
    >>> costs.seconds("eqprop"), costs.seconds("never seen")
    (4.0, 4.0)
    """

    def __init__(self) -> None:
        self._times: dict[str, list[float]] = defaultdict(list)

    def learn(self, group: str, seconds: float) -> None:
        """Take one finished cell into account."""
        self._times[group].append(seconds)

    def seconds(self, group: str) -> float:
        """Expected seconds of a cell of this group; 0 when nothing is known at all."""
        if times := self._times.get(group):
            return median(times)
        everything = [time for times in self._times.values() for time in times]
        return median(everything) if everything else 0.0

    def left(self, waiting: dict[str, int], running: dict[str, list[float]], workers: int) -> float | None:
        """Seconds until all is done: waiting cells by group, running cells by group with their elapsed times."""
        if not self._times:
            return None
        rest = sum(self.seconds(group) * count for group, count in waiting.items())
        rest += sum(max(self.seconds(group) - spent, 0.0) for group, spents in running.items() for spent in spents)
        return rest / max(workers, 1)
