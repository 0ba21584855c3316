"""Our runs beside the published figures: for each one a mean, an interval, and whether it reproduces."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from assay import stats
from assay.results import Interval, Verdict
from assay.studies.reproduce.published import ACCURACY_MARGIN, COSINE_MARGIN, DECADE_MARGIN, FIGURES, PublishedNumber

Record = Mapping[str, Any]
TEST_ITEMS = 10_000
EXACT = 1e-6


@dataclass(frozen=True)
class Reproduced:
    """One published figure beside ours; ``verdict`` None means that the arm was not run."""

    figure: PublishedNumber
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    epochs: int | None
    verdict: Verdict | None
    reason: str

    @property
    def mean(self) -> float | None:
        """Our mean; geometric where agreement is judged in decades."""
        if not self.values:
            return None
        if self.figure.logarithmic:
            return 10 ** (sum(map(math.log10, self.values)) / len(self.values))
        return sum(self.values) / len(self.values)

    @property
    def better(self) -> bool:
        """Whether ours misses the published figure on the good side: not the same, yet not short of it."""
        high = self.figure.quantity in ("accuracy", "gain over frozen")
        return high and self.verdict is Verdict.FAIL and self.mean is not None and self.mean > self.figure.value

    @property
    def outcome(self) -> Verdict | None:
        """The verdict a reader is shown: more than was published holds in part, it is no failure."""
        return Verdict.PARTIAL if self.better else self.verdict

    @property
    def word(self) -> str:
        """Whether it reproduces, in one word."""
        words = {Verdict.PASS: "yes", Verdict.FAIL: "no", Verdict.INCONCLUSIVE: "undecided", None: "not run"}
        return "better than published" if self.better else words[self.verdict]

    @property
    def interval(self) -> Interval | None:
        """The 95 % t interval of our mean over seeds."""
        if len(self.values) < 2:
            return None
        if not self.figure.logarithmic:
            return stats.mean_interval(self.values)
        found = stats.mean_interval([math.log10(value) for value in self.values])
        if found is None:
            return None
        return Interval(
            low=10**found.low, high=10**found.high, confidence=found.confidence, method=f"{found.method}, log10"
        )


def by_arm(records: Iterable[Record]) -> dict[str, dict[int, Record]]:
    """Records by arm and seed; an arm is named without its epochs, and on the ResMLP without the architecture.

    Of an arm trained for several lengths, the one with most seeds counts; of those, the longest.
    """
    arms: dict[str, dict[int, Record]] = {}
    for (arm, _), runs in sorted(by_length(records).items(), key=lambda item: (len(item[1]), item[0][1])):
        arms[arm] = runs
    return arms


def by_length(records: Iterable[Record]) -> dict[tuple[str, int], dict[int, Record]]:
    """Records by arm and number of epochs, and by seed."""
    found: dict[tuple[str, int], dict[int, Record]] = {}
    for record in records:
        setting = record["setting"]
        arm = str(record["name"]).rpartition("-seed")[0].rpartition("-")[0]
        known = arm.removeprefix("resmlp-") if setting["arch"] == "resmlp" else arm
        found.setdefault((known, int(setting["epochs"])), {})[int(setting["seed"])] = record
    return found


def compare_all(records: Iterable[Record]) -> list[Reproduced]:
    """Every published figure beside the runs of its arm."""
    arms = by_arm(records)
    return [compare(figure, arms.get(figure.arm, {}), arms.get("frozen", {})) for figure in FIGURES]


def compare(
    figure: PublishedNumber, runs: Mapping[int, Record], frozen: Mapping[int, Record] | None = None
) -> Reproduced:
    """One figure beside its runs; a gain is paired with the frozen baseline of the same seed."""
    gain = figure.quantity == "gain over frozen"
    seeds = tuple(sorted(runs.keys() & (frozen or {}).keys() if gain else runs))
    if not seeds:
        return Reproduced(figure, (), (), None, None, "not run")
    values = tuple(quantity(runs[s], figure) - (float((frozen or {})[s]["accuracy"]) if gain else 0) for s in seeds)
    epochs = int(runs[seeds[0]]["setting"]["epochs"])
    note = "" if epochs == figure.epochs else f"; ours after {epochs} epochs, published after {figure.epochs}"
    if figure.below:
        holds = max(values) < figure.value
        return Reproduced(
            figure,
            values,
            seeds,
            epochs,
            Verdict.PASS if holds else Verdict.FAIL,
            f"largest {max(values):.3g}, published below {figure.value:g}{note}",
        )
    if figure.quantity == "cosine" and max(values) - min(values) < EXACT:
        # Exact by construction: there is no spread to build an interval from, and none is needed.
        holds = abs(values[0] - figure.value) < COSINE_MARGIN
        reason = f"{values[0]:.4f} at every seed, exact by construction{note}"
        return Reproduced(figure, values, seeds, epochs, Verdict.PASS if holds else Verdict.FAIL, reason)
    decision = _decide(figure, values, seeds)
    return Reproduced(figure, values, seeds, epochs, decision.verdict, f"{decision.reason}{note}")


def quantity(record: Record, figure: PublishedNumber) -> float:
    """The value of a record that a published figure speaks of."""
    found = record["diagnostics"]
    match figure.quantity:
        case "accuracy" | "gain over frozen":
            return float(record["accuracy"])
        case "mean cosine":
            return fmean(found["cosine"][1:])
        case "mean null cosine":
            return fmean(found["null_mean"][1:])
        case "|h_L|":
            return float(found["norms"][-1])
        case "|g_L|":
            return float(found["gradient"][-1])
        case "largest growth":
            return float(max(found["growth"]))
        case "cosine":
            return float(found["clamped_cosine"][figure.depth or 0])


def correct_rows(runs: Mapping[int, Record]) -> dict[int, list[bool]]:
    """Which test items each seed got right, for paired intervals."""
    import numpy as np

    def bits(text: str) -> list[bool]:
        packed = np.frombuffer(base64.b64decode(text), dtype=np.uint8)
        return [bool(bit) for bit in np.unpackbits(packed)[:TEST_ITEMS]]

    return {seed: bits(record["correct"]) for seed, record in runs.items()}


def _decide(figure: PublishedNumber, values: Sequence[float], seeds: Sequence[int]) -> stats.Decision:
    if figure.logarithmic:
        return stats.reproduces(
            [math.log10(v) for v in values], math.log10(figure.value), margin=DECADE_MARGIN, unit="decades", seeds=seeds
        )
    margin = COSINE_MARGIN if "cosine" in figure.quantity else ACCURACY_MARGIN
    count = None if figure.sd is None else 3
    return stats.reproduces(values, figure.value, margin=margin, reference_sd=figure.sd, reference_n=count, seeds=seeds)
