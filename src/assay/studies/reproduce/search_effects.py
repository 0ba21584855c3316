"""What the screened readings say: the effect of every choice on every figure, and which changes explain the source.

Effects are those of a two-level design: the mean with the other level minus the mean with ours. A reading's figure at
full length is predicted as ours at full length plus the effects of its changes, which assumes that effects add up and
keep their size from the short runs to the long ones. It ranks readings for the full-length runs; it decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.seeding import numpy_generator
from assay.studies.reproduce.published import ACCURACY_MARGIN, COSINE_MARGIN, DECADE_MARGIN, FIGURES, PublishedNumber
from assay.studies.reproduce.readings import CHOICES, Reading, design, from_levels, levels_of

Record = Mapping[str, Any]
ARMS = {"bp": "bp", "frozen": "frozen", "fa-block": "fa", "dfa-block": "dfa"}
"""Published arms by the name they have in the search."""
JUDGED = tuple(
    f for f in FIGURES
    if f.arm in ARMS and f.epochs == 100 and f.quantity in ("accuracy", "|h_L|", "|g_L|", "largest growth")
    and not f.below
)
CHECKED = (*JUDGED, *(f for f in FIGURES if f.arm in ARMS and f.epochs == 100 and f.quantity == "cosine"
                      and not (f.arm == "fa-block" and f.depth == 4)))
"""Those, and the cosines where they are not 1 by construction: figures that a reading must foretell."""
PENALTY = tuple(f for f in FIGURES if f.arm.startswith("dfa-block-lambda") and f.quantity in (
    "accuracy", "|h_L|", "mean cosine"))
"""Figures of the penalty sweep, at 30 epochs: no part of choosing a reading."""
FEEDBACK = ("embedding", "frozen_embedding", "cut", "block_signal", "length", "size", "distribution")
INERT = {"bp": FEEDBACK, "frozen": ("cut", "block_signal"), "fa": ("frozen_embedding",), "dfa": ("frozen_embedding",)}
"""Choices that cannot act on an arm: backprop has no feedback, frozen blocks have no signal."""
MOST_CHANGES = 4
TABLES = 2000
ROUNDING = 1e-9
"""A distance that falls by less has not fallen."""


@dataclass(frozen=True)
class Explanation:
    """A reading and how far its predicted figures lie from the published ones, in margins (root mean square)."""

    reading: Reading
    distance: float


def arm_of(figure: PublishedNumber) -> str:
    """The arm of the search that a published figure belongs to."""
    return ARMS[figure.arm.partition("-lambda")[0]]


def value(record: Record, figure: PublishedNumber) -> float:
    """A record's figure; sizes as log10."""
    match figure.quantity:
        case "accuracy":
            return float(record["accuracy"])
        case "|h_L|":
            return _log(record["norms"][-1])
        case "|g_L|":
            return _log(record["gradient"])
        case "mean cosine":
            return float(np.mean(record["cosine"][1:]))
        case "cosine":
            return float(record["cosine"][figure.depth or 0])
        case _:
            return _log(max(record["growth"]))


def wanted(figure: PublishedNumber) -> float:
    """The published figure on the same scale."""
    return math.log10(figure.value) if figure.logarithmic else figure.value


def margin(figure: PublishedNumber) -> float:
    """What counts as agreement: two points, half a decade, a tenth of a cosine."""
    if "cosine" in figure.quantity:
        return COSINE_MARGIN
    return DECADE_MARGIN if figure.logarithmic else ACCURACY_MARGIN


def screened(records: Sequence[Record], arm: str, *, mirrored: bool = False) -> list[Record] | None:
    """The sixteen runs of one arm in the order of the design, or None while some are missing."""
    short = min((int(r["run"]["epochs"]) for r in records), default=0)
    found = {Reading(**run["reading"]): r for r in records if (run := r["run"])["arm"] == arm
             and not run.get("penalty") and int(run["epochs"]) == short and int(run["seed"]) == 42}
    rows = [found.get(reading) for reading in design(mirrored=mirrored)]
    return [row for row in rows if row is not None] if all(row is not None for row in rows) else None


def effects(records: Sequence[Record], figure: PublishedNumber) -> dict[str, float] | None:
    """The effect of each choice on one figure: the mean of the design, and of the mirrored one where it is whole.

    A choice that cannot act on the arm has none; what the design shows for it is ``spurious``.
    """
    found = _raw_effects(records, figure)
    return None if found is None else {name: 0.0 if name in INERT[ARMS[figure.arm]] else e for name, e in found.items()}


def spurious(records: Sequence[Record], figure: PublishedNumber) -> float | None:
    """The largest apparent effect of a choice that cannot act: how far the design can be trusted on this figure."""
    found = _raw_effects(records, figure)
    return None if found is None else max(abs(found[name]) for name in INERT[ARMS[figure.arm]])


def _raw_effects(records: Sequence[Record], figure: PublishedNumber) -> dict[str, float] | None:
    found = []
    for mirrored in (False, True):
        rows = screened(records, ARMS[figure.arm], mirrored=mirrored)
        if rows is not None:
            signs = np.array([levels_of(Reading(**r["run"]["reading"])) for r in rows], float) * 2 - 1
            found.append(signs.T @ np.array([value(r, figure) for r in rows]) / (len(rows) / 2))
    return dict(zip(CHOICES, np.mean(found, axis=0).tolist(), strict=True)) if found else None


def explanations(records: Sequence[Record], ours: Mapping[PublishedNumber, float]) -> list[Explanation]:
    """Ours, then the best single change, the best second one beside it, and so on, while the distance falls."""
    table, targets = figure_table(records, ours, JUDGED)
    if not table.figures:  # no design is whole yet
        return []
    path = greedy(table.start, table.slopes, table.scale, targets)
    return [Explanation(from_levels(levels), distance) for levels, distance in path]


def chance(records: Sequence[Record], ours: Mapping[PublishedNumber, float]) -> float:
    """The share of made-up tables that some reading explains as well as the published one.

    As many changes are tried on them as on the published table.
    """
    table, targets = figure_table(records, ours, JUDGED)
    best = greedy(table.start, table.slopes, table.scale, targets)[-1][1]
    made = made_up_tables(records, table, TABLES, numpy_generator(0, "made-up tables"))
    return sum(greedy(table.start, table.slopes, table.scale, one)[-1][1] <= best for one in made) / TABLES


@dataclass(frozen=True)
class ReadingTable:
    """Our figures, the effect of every choice on each, and the margins they are judged by."""

    start: np.ndarray[Any, Any]
    slopes: np.ndarray[Any, Any]
    scale: np.ndarray[Any, Any]
    figures: Sequence[PublishedNumber]


def figure_table(records: Sequence[Record], ours: Mapping[PublishedNumber, float], figures: Sequence[PublishedNumber]
                 ) -> tuple[ReadingTable, np.ndarray[Any, Any]]:
    """The table of those figures whose design is whole, and the published values."""
    known = [(f, e) for f in figures if f in ours and (e := effects(records, f)) is not None]
    found = [f for f, _ in known]
    slopes = np.array([[e[name] for name in CHOICES] for _, e in known])
    table = ReadingTable(np.array([ours[f] for f in found]), slopes, np.array([margin(f) for f in found]), found)
    return table, np.array([wanted(f) for f in found])


def made_up_tables(records: Sequence[Record], table: ReadingTable, count: int, generator: np.random.Generator
                   ) -> Iterator[np.ndarray[Any, Any]]:
    """Tables that take each figure from a screened run chosen at random.

    So their figures are as large as the readings make them and have nothing to do with each other.
    """
    pools = [np.array([value(r, f) for r in screened(records, ARMS[f.arm]) or ()]) for f in table.figures]
    # The first reading of a design is ours.
    pools = [start + pool - pool[0] for start, pool in zip(table.start, pools, strict=True)]
    for _ in range(count):
        yield np.array([generator.choice(pool) for pool in pools])


def greedy(start: np.ndarray[Any, Any], slopes: np.ndarray[Any, Any], scale: np.ndarray[Any, Any],
           targets: np.ndarray[Any, Any]) -> list[tuple[list[bool], float]]:
    """Changes added one at a time while the distance from the targets falls, with that distance."""
    gap, levels = (start - targets) / scale, [False] * len(CHOICES)
    path = [(list(levels), float(np.sqrt(np.mean(gap**2))))]
    while len(path) <= MOST_CHANGES:
        tried = np.sqrt(np.mean((gap[:, None] + slopes / scale[:, None]) ** 2, axis=0))
        tried[np.array(levels)] = np.inf
        chosen = int(tried.argmin())
        if not tried[chosen] < path[-1][1] - ROUNDING:
            break
        levels[chosen] = True
        gap = gap + slopes[:, chosen] / scale
        path.append((list(levels), float(tried[chosen])))
    return path


def _log(number: float) -> float:
    return math.log10(max(float(number), 1e-30)) if math.isfinite(number) else 30.0
