"""What was really run behind a finding: counted from records, never from what was asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.protocols import Outcomes
from assay.results import Control, Evidence, Verdict
from assay.stats.looks import Look, Spending

CLOCKS = frozenset((
    "second", "seconds", "sec", "secs", "ms", "milliseconds", "minutes", "hours", "time", "times", "runtime",
    "walltime", "cputime", "clock", "wall", "elapsed", "duration", "timestamp", "date", "started", "ended", "finished",
    "memory", "bytes", "rss", "mb", "gb", "pid", "host", "hostname", "uuid",
))  # fmt: skip
"""Words of keys whose values differ from run to run without being another observation."""


@dataclass(frozen=True)
class Ran:
    """What a finding rests on.

    ``records`` maps each seed that every arm of the claim finished to a digest of what they returned. ``controls`` are
    the control arms, judged by the decision of the claim. ``planned`` says that these seeds were written down before
    their first cell ran; ``look`` is what the verdict may spend, ``earlier`` the looks before it, ``code`` and
    ``machine`` where this one was made.
    """

    records: Mapping[int, str]
    controls: tuple[Control, ...] = ()
    planned: bool = False
    look: Spending | None = None
    earlier: tuple[Look, ...] = ()
    code: str = ""
    machine: str = ""
    inputs: int | None = None
    """How many inputs the records tell of (``inputs_told``); None where nobody has counted."""

    def distinct(self, seeds: Collection[int] = ()) -> int:
        """Different records among ``seeds`` (all by default): a track that ignores its seed has made one."""
        return len({digest for seed, digest in self.records.items() if not seeds or seed in seeds})

    def moved(self, asks: str) -> Look | None:
        """The first look at some of these seeds that asked something else and did not pass, if there is one."""
        return next(
            (look for look in self.earlier if asks and look.asked and look.asked != asks
             and look.verdict is not Verdict.PASS and set(look.seeds) & set(self.records)), None,
        )  # fmt: skip

    def replicates(self, verdict: Verdict, asks: str) -> bool:
        """Whether an earlier, confirmed look at the same question said the same of other seeds, on another machine or
        from other code."""
        return any(
            look.verdict is verdict
            and look.asked == asks
            and look.evidence in (Evidence.CONFIRMED, Evidence.REPLICATED)
            and (not set(look.seeds) & set(self.records) or look.code != self.code or look.machine != self.machine)
            for look in self.earlier
        )


def finished(outcomes: Outcomes, *, controls: Collection[str] = ()) -> dict[int, str]:
    """The seeds that every arm but the controls finished, each with a digest of its records, times and seed left out.

    >>> from assay.protocols import Outcome, Trial
    >>> ran = [Outcome(Trial("subject", seed), {"value": 1.0, "seconds": 0.1 * seed}) for seed in (1, 2, 3)]
    >>> len(finished(Outcomes(tuple(ran)))), len(set(finished(Outcomes(tuple(ran))).values()))
    (3, 1)
    """
    records = [outcomes.arm(arm) for arm in _arms(outcomes, controls)]
    seeds = set.intersection(*(set(found) for found in records)) if records else set()
    return {seed: digest([found[seed] for found in records]) for seed in sorted(seeds)}


def inputs_told(outcomes: Outcomes, *, controls: Collection[str] = ()) -> int:
    """How many inputs the records of a claim tell of: of each that differs from the others the numbers in it, or the
    largest whole number (a count of what was compared), whichever is more.

    >>> from assay.protocols import Outcome, Trial
    >>> inputs_told(Outcomes((Outcome(Trial("subject", 1), {"errors": [0.1, 0.2]}),)))
    2
    """
    each = {digest([r]): r for arm in _arms(outcomes, controls) for r in outcomes.arm(arm).values()}
    told = 0
    for record in each.values():
        numbers = list(_numbers(_stripped(record)))
        told += max([1, len(numbers), *(number for number in numbers if isinstance(number, int))])
    return told


def digest(records: Sequence[Mapping[str, Any]]) -> str:
    """A text that is equal where the records of two seeds are, clocks and the seed itself apart.

    Where nothing but clocks was recorded, they are what was observed.
    """
    import hashlib

    bare = [_stripped(record) for record in records]
    text = json.dumps(bare if any(bare) else list(map(dict, records)), sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _stripped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _stripped(v) for k, v in value.items() if not (is_clock(str(k)) or "seed" in _words(str(k)))}
    if isinstance(value, list | tuple):
        return [_stripped(item) for item in value]
    return value


def is_clock(key: str) -> bool:
    """Whether a key names a time, an amount of memory or a process: what no two runs share.

    >>> is_clock("wall-seconds"), is_clock("estimate")
    (True, False)
    """
    return not CLOCKS.isdisjoint(_words(key))


def _words(key: str) -> list[str]:
    return re.split(r"[^a-z]+", key.lower())


def _arms(outcomes: Outcomes, controls: Collection[str]) -> list[str]:
    every = {outcome.trial.arm for outcome in outcomes}
    return sorted(every - set(controls)) or sorted(every)  # a track about its controls has no other arms


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int | float):
        yield value
