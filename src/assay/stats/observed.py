"""What was really run behind a finding: counted from records, never from what was asked for."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.protocols import Outcomes
from assay.results import Control, Evidence, Verdict
from assay.stats.looks import Look, Spending

CLOCKS = ("seconds", "time", "elapsed", "duration", "timestamp", "date")
"""Words of keys whose numbers differ from run to run without being another observation."""


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

    def distinct(self, seeds: Collection[int] = ()) -> int:
        """Different records among ``seeds`` (all by default): a track that ignores its seed has made one."""
        return len({digest for seed, digest in self.records.items() if not seeds or seed in seeds})

    def replicates(self, verdict: Verdict) -> bool:
        """Whether an earlier, confirmed look said the same of other seeds, on another machine or from other code."""
        return any(
            look.verdict is verdict
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
    every = {outcome.trial.arm for outcome in outcomes}
    arms = sorted(every - set(controls)) or sorted(every)  # a track about its controls has no other arms
    records = [outcomes.arm(arm) for arm in arms]
    seeds = set.intersection(*(set(found) for found in records)) if records else set()
    return {seed: digest([found[seed] for found in records]) for seed in sorted(seeds)}


def digest(records: Sequence[Mapping[str, Any]]) -> str:
    """A text that is equal where the records of two seeds are, clocks and the seed itself apart."""
    import hashlib

    text = json.dumps([_stripped(record) for record in records], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _stripped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _stripped(v) for k, v in value.items() if not _is_clock(str(k).lower())}
    if isinstance(value, list | tuple):
        return [_stripped(item) for item in value]
    return value


def _is_clock(key: str) -> bool:
    return key == "seed" or any(word in key.replace("-", "_").split("_") for word in CLOCKS)
