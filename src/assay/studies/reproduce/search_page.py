"""The page of the search: which open choice matters, which reading comes closest, and how easily chance does as well.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.studies.reproduce.compare import by_arm, quantity
from assay.studies.reproduce.published import PublishedNumber
from assay.studies.reproduce.readings import CHOICES, OTHER, Reading, acts_on, effective
from assay.studies.reproduce.search_check import TABLES as HELD_OUT_TABLES
from assay.studies.reproduce.search_check import Foretelling, by_accuracy, one_by_one
from assay.studies.reproduce.search_effects import (
    ARMS,
    CHECKED,
    JUDGED,
    MOST_CHANGES,
    PENALTY,
    TABLES,
    arm_of,
    chance,
    effects,
    explanations,
    margin,
    screened,
    spurious,
    value,
    wanted,
)
from assay.studies.reproduce.sections import table

Record = Mapping[str, Any]
Ours = Mapping[PublishedNumber, float]
"""The judged figures of the main table."""


def read_records(folder: str | Path) -> list[dict[str, Any]]:
    """Every record in a folder, by name."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).glob("*.json"))]


def our_figures(folder: str | Path) -> dict[PublishedNumber, float]:
    """The figures that readings are judged by, from the records of the main table: mean over seeds, sizes as log10."""
    arms = by_arm(record for record in read_records(folder) if record["setting"]["arch"] == "resmlp")
    found = {}
    for figure in (*CHECKED, *PENALTY):
        runs = arms.get(figure.arm, {})
        values = [quantity(run, figure) for run in runs.values()]
        if values:
            found[figure] = sum(math.log10(v) if figure.logarithmic else v for v in values) / len(values)
    return found


def candidates(records: Sequence[Record], ours: Ours, count: int) -> list[Reading]:
    """The readings worth a full-length run: those the screening puts closest to the source, fewest changes first."""
    return [found.reading for found in explanations(records, ours)[1 : count + 1]]


def render(records: Sequence[Record], source: str, ours: Ours) -> str:
    """The whole page."""
    parts = [
        "# Which reading of the recipe explains the published figures?",
        _introduction(records, source),
        "## The open choices", _choices(),
        "## What each choice does",
        "Effect of the other level in the short runs: points of accuracy, decades of size. Only effects of at least "
        "half the margin that a figure is judged by (1 point, a quarter of a decade). In one design of sixteen runs an "
        "effect is mixed with interactions of pairs of other choices; the mirrored sixteen separate "
        "them. The last column tells how much: it is the largest apparent effect of a choice that cannot act on that "
        "arm (how frozen blocks get their signal, say).",
        _effects(records),
        "## Closest readings", _closest(records, ours),
        "## Does it foretell what it was not chosen by?", _foretold(records, ours),
        "## At full length", _full(records, ours),
        "## What did not finish", _missing(records, ours),
        "## How to run it again",
        f"```\npython -m assay.studies.reproduce.search screen --epochs 3 --records {source}\n"
        f"python -m assay.studies.reproduce.search full --top 3 --epochs 30 --records {source}\n"
        "python -m assay.studies.reproduce.search full --reading 'length: unit; frozen embedding: signal' --seeds 42 "
        f"--records {source}\n"
        f"python -m assay.studies.reproduce.search page --records {source} > docs/results/fa-readings.md\n```\n\n"
        "All but the last continue where they were stopped.",
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(records: Sequence[Record], source: str) -> str:
    hours = sum(float(r["cpu_seconds"]) for r in records) / 3600
    lengths = sorted({int(r["run"]["epochs"]) for r in records})
    return (
        "The source (arXiv 2606.21126) leaves parts of its recipe open, and many of its figures do not reproduce under "
        f"the reading of [the main table](fa-protocol.md). {len(CHOICES)} open choices with two levels each are "
        f"screened by a design (Plackett and Burman), then the closest readings are trained longer: {len(records)} "
        f"runs of {'/'.join(map(str, lengths))} epochs, {hours:.1f} CPU hours. The trainer is written out by hand, "
        f"apart from the feedback rules of the library. This page is generated from the records in `{source}`."
    )


def _choices() -> str:
    default = Reading()
    return table(("choice", "main table", "other level"),
                 [(name.replace("_", " "), getattr(default, name), OTHER[name]) for name in CHOICES])


def _effects(records: Sequence[Record]) -> str:
    rows = []
    for figure in JUDGED:
        found = effects(records, figure)
        if found is None:
            continue
        strong = sorted(((abs(e), name, e) for name, e in found.items() if abs(e) >= margin(figure) / 2), reverse=True)
        scale, unit = (1, "dec") if figure.logarithmic else (100, "pp")
        said = "; ".join(f"{name.replace('_', ' ')}: {OTHER[name]} {scale * e:+.1f} {unit}"
                         for _, name, e in strong[:5])
        blind = scale * (spurious(records, figure) or 0.0)
        rows.append((figure.arm, figure.quantity, said or "none", f"{blind:.1f} {unit}"))
    columns = ("arm", "figure", "strongest effects", "of a choice that cannot act")
    return table(columns, rows) if rows else "No design is whole yet."


def _closest(records: Sequence[Record], ours: Ours) -> str:
    found = explanations(records, ours)
    if len(found) < 2:
        return "No single change brings the figures closer."
    rows = [(len(f.reading.differences), str(f.reading), f"{f.distance:.2f}") for f in found]
    likely = chance(records, ours)
    return (
        "Figures at full length are predicted as ours plus the effects of the changes; the distance from the source is "
        "the root mean square over figures, in margins (2 points, half a decade). One change is added at a time.\n\n"
        + table(("changes", "reading", "distance"), rows)
        + f"\n\nSome reading of at most {MOST_CHANGES} changes comes as close to {100 * likely:.0f} % of {TABLES} "
        "made-up tables, whose figures are drawn one by one from the screened runs. "
        + ("So the closeness is no evidence that the source used this reading." if likely > 0.05 else
           "So the source's figures hang together as this reading says; it need not be what the source did.")
    )


def _foretold(records: Sequence[Record], ours: Ours) -> str:
    """Held-out figures: the one test of a reading that choosing among many cannot fake."""
    if len(explanations(records, ours)) < 2:
        return "No single change brings the figures closer, so none is chosen that could foretell others."
    parts = [
        "A reading chosen among many lies close to many tables. So it is chosen on some figures and asked for the "
        "others: if the source did anything like it, those come nearer too. What is left is their root mean square "
        "distance, as a share of what it is under the reading of the main table (below 1: nearer). Made-up tables, "
        "whose figures have nothing to do with each other, tell how often luck leaves as little."]
    tests = (("Each figure by the reading that all the others choose", one_by_one(records, ours)),
             ("Sizes, growth and cosines by the reading that the accuracies choose", by_accuracy(records, ours)))
    rows = [(name, len(found.figures), f"{found.left:.2f}", f"{100 * found.by_chance:.0f} %")
            for name, found in tests if found is not None]
    parts.append(table(("held out", "figures", "left", f"of {HELD_OUT_TABLES} made-up tables"), rows))
    for name, found in tests:
        if found is not None:
            parts.append(f"{name}:\n\n{_held_out(found)}")
    evident = [found for _, found in tests if found is not None and found.left < 1 and found.by_chance <= 0.05]
    parts.append("A chosen reading foretells held-out figures better than luck: there is something in it." if evident
                 else "Neither does better than luck: effects of the short runs, added up, do not foretell the "
                      "source's figures. What a reading does when it is trained stands below.")
    return "\n\n".join(parts)


def _held_out(found: Foretelling) -> str:
    rows = [(h.figure.arm, _named(h.figure), _shown(h.published, h.figure), _shown(h.ours, h.figure),
             _shown(h.foretold, h.figure), str(h.reading)) for h in found.figures]
    return table(("arm", "figure", "published", "main table", "foretold", "by the reading"), rows)


def _full(records: Sequence[Record], ours: Ours) -> str:
    longest = max((int(r["run"]["epochs"]) for r in records), default=0)
    shortest = min((int(r["run"]["epochs"]) for r in records), default=0)
    runs = [r for r in records if int(r["run"]["epochs"]) == longest]
    if longest == shortest or not runs:
        return "No full-length run of another reading has finished."
    told = [f"{longest} epochs; the source has 100, and 30 for its penalty sweep (lambda). Main table: ours at 30 "
            "epochs. \"The same\": the reading does not touch that arm."]
    for reading in dict.fromkeys(Reading(**r["run"]["reading"]) for r in runs):
        compared = []
        for figure in (*CHECKED, *PENALTY):
            if figure in ours:
                values = [value(r, figure) for r in _trained(runs, reading, figure)]
                if values or not acts_on(reading, arm_of(figure)):
                    compared.append((figure, sum(values) / len(values) if values else ours[figure], len(values)))
        rows = [(figure.arm, _named(figure), _shown(wanted(figure), figure), _shown(ours[figure], figure),
                 _shown(mean, figure) if seeds else "the same", seeds or "", _judged(figure, mean, ours[figure]))
                for figure, mean, seeds in compared]
        near = [sum(abs(number - wanted(f)) <= margin(f) for f, number in pairs) for pairs in (
            [(f, mean) for f, mean, _ in compared], [(f, ours[f]) for f, _, _ in compared])]
        told += [f"### {str(reading).capitalize()}",
                 f"{near[0]} of {len(compared)} figures within the margin; under the reading of the main table "
                 f"{near[1]} of the same.",
                 table(("arm", "figure", "published", "main table", "this reading", "seeds", ""), rows)]
    return "\n\n".join(told)


def _judged(figure: PublishedNumber, mean: float, main: float) -> str:
    if abs(mean - wanted(figure)) <= margin(figure):
        return "within the margin"
    return "" if mean == main else "closer" if abs(mean - wanted(figure)) < abs(main - wanted(figure)) else "not closer"


def _trained(runs: Sequence[Record], reading: Reading, figure: PublishedNumber) -> list[Record]:
    """The runs of a figure's arm under a reading, or under another that trains this arm the same way."""
    arm, penalty = arm_of(figure), float(figure.arm.partition("lambda")[2] or 0)
    return [r for r in runs if r["run"]["arm"] == arm and float(r["run"].get("penalty", 0.0)) == penalty
            and effective(Reading(**r["run"]["reading"]), arm) == effective(reading, arm)]


def _named(figure: PublishedNumber) -> str:
    return figure.quantity + (f" at h_{figure.depth}" if figure.depth else "")


def _shown(number: float, figure: PublishedNumber) -> str:
    return f"{10**number:.2g}" if figure.logarithmic else f"{number:.3f}"


def _missing(records: Sequence[Record], ours: Ours) -> str:
    told = []
    for mirrored, name in ((False, "the design"), (True, "the mirrored design")):
        lacking = [arm for arm in ("dfa", "frozen", "fa", "bp") if screened(records, arm, mirrored=mirrored) is None]
        if lacking:
            told.append(f"{name} for {', '.join(lacking)}")
    longest = max((int(r["run"]["epochs"]) for r in records), default=0)
    for reading in candidates(records, ours, 3):
        full = [r for r in records if int(r["run"]["epochs"]) == longest]
        lacking = [ARMS[arm] for arm in ("dfa-block", "frozen", "fa-block", "bp") if acts_on(reading, ARMS[arm])
                   and not _trained(full, reading, next(f for f in JUDGED if f.arm == arm))]
        if lacking:
            told.append(f"full-length runs of {', '.join(lacking)} with '{reading}'")
    told.append("any reading at 100 epochs; further seeds of full-length readings")
    return "Not run to the end: " + "; ".join(told) + "."
