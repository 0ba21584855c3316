"""Pictures of the results pages, drawn from the tables of the page while the site is built.

A picture is made from the numbers that stand below it, so it cannot be older than they are, and it takes its colours
from the page, so it is right in the dark. ``PLOTS`` says which columns of which table are drawn.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

NUMBER = r"[-+−]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?"
SPAN = re.compile(rf"[\[(]\s*({NUMBER})\s*%?\s*(?:,|to)\s*({NUMBER})\s*%?\s*[\])]|^({NUMBER}) to ({NUMBER})$")
WIDTH, ROW, TOP, BOTTOM, LETTER = 760, 17, 14, 34, 6.7
SERIES = 6


@dataclass(frozen=True)
class Column:
    """A column of numbers; ``interval`` names the column with its ends where they do not stand beside the number."""

    name: str
    label: str = ""
    interval: str = ""


@dataclass(frozen=True)
class Plot:
    """What is drawn above the first table of a section: one line per row, one colour per column."""

    section: str
    question: str
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    axis: str
    log: bool = False
    lines: Mapping[float, str] | None = None
    only: tuple[str, str] | None = None
    """A column and the entry that rows must have there to be drawn."""


@dataclass(frozen=True)
class Mark:
    """A number with its interval, if it has one."""

    value: float
    low: float | None = None
    high: float | None = None


PLOTS: dict[str, tuple[Plot, ...]] = {
    "results/fa-protocol.md": (Plot(
        "Does it reproduce?", "Accuracy, published and ours", ("arm", "epochs (ours / theirs)"),
        (Column("published"), Column("ours", interval="95 % interval")), "accuracy", only=("figure", "accuracy")),),
    "results/fa-readings.md": (Plot(
        "Closest readings", "How close does a reading of the recipe come?", ("changes", "reading"),
        (Column("distance"),), "distance from the source, in margins", lines={1.0: "within the margins"}),),
    "results/fa-frozen.md": (Plot(
        "One choice at a time", "Which choice lowers the frozen baseline?", ("reading",), (Column("accuracy"),),
        "accuracy", lines={0.349: "published"}),),
    "results/symmetry-suite.md": (Plot(
        "Beside other checkers", "What share does each checker find?", ("",),
        (Column("Assay"), Column("e3nn, float32"), Column("e3nn, float64"), Column("template")),
        "%, with 95 % intervals"),),
    "results/symmetry-crowds.md": (Plot(
        "", "How are models of known answer judged?", ("crowd",),
        tuple(map(Column, ("FAIL", "INCONCLUSIVE", "PARTIAL", "PASS"))), "models of 300"),),
    "results/symmetry-calibration.md": (Plot(
        "ESTIMATE_SAFETY = 8", "What do clean models need, and what is allowed?", ("family",),
        (Column("median"), Column("largest")), "error / estimate", lines={8.0: "allowed"}),),
    "results/ladder.md": (Plot(
        "", "How does accuracy fall as feedback grows?", ("task", "gamma", "seed"),
        (Column("validation (%)", "validation"), Column("test (%)", "test")), "accuracy, %"),),
    "results/leaderboard.md": tuple(Plot(
        task, "How far is each rule from backprop?", ("rule",), (Column("gap [pp]", interval="90 % interval"),),
        "gap in accuracy, pp", lines={-1.0: "", 1.0: "margin", 0.0: "backprop"})
        for task in ("digits", "mnist", "fashion-mnist")),
    "benchmarks/dependence.md": (Plot(
        "Every causal-LM type of transformers, tiny and random", "How large are leaks that were found?",
        ("version", "type"), (Column("moved"), Column("half", "by the usual test")),
        "movement of a logit that must not move", log=True,
        lines={1e-3: "allclose passes below"}),),
    "benchmarks/equilibrium.md": (Plot(
        "", "How much slower than ours?", ("width", "hidden layers", "batch"),
        (Column("autograd EP"), Column("same steps"), Column("BPTT"), Column("backprop")), "time / ours", log=True,
        lines={1.0: "ours"}),),
    "benchmarks/equilibrium-frontier.md": tuple(Plot(
        network, "How far from backprop is each schedule?", ("schedule",), (Column("gap"),), "gap, points",
        lines={-0.3: "allowed", 0.0: "backprop"})
        for network in ("digits, 64-128-128-10", "digits, 64-128-128-128-10")),
    "benchmarks/equilibrium-price.md": (Plot(
        "The contract: cheap schedules that stay good while they train", "What does a gradient cost, and what may it?",
        ("network",), (Column("time / backprop (minimum, median)", "time"), Column("limit")), "time / backprop",
        lines={1.0: "backprop"}),),
    "benchmarks/evidence.md": (Plot(
        "Seeds x items", "How often is a wrong claim passed?", ("margin", "items", "seeds"),
        (Column("seeds alone: false PASS", "seeds alone"), Column("crossed: false PASS", "seeds and items")),
        "false PASS, %", lines={5.0: "promised"}),),
    "benchmarks/feedback.md": (Plot(
        "Forward and backward pass", "What does a step of each rule cost?", ("model",),
        tuple(map(Column, ("fa layer", "dfa layer", "fa block", "dfa block", "sign", "kolen-pollack"))),
        "time / backprop", lines={1.0: "backprop", 1.1: "limit"}),),
    "benchmarks/rules.md": (Plot(
        "", "What does a gradient of each rule cost?", ("rule",),
        tuple(map(Column, ("64-64-64-64-10, batch 32", "784-128-128-128-10, batch 100", "784-512-512-10, batch 100"))),
        "time / backprop", log=True, lines={1.0: "backprop"}),),
    "benchmarks/same.md": (Plot(
        "", "Who finds the planted twins, and who accepts the healthy ones?", ("judge", "draw"),
        (Column("planted found"), Column("healthy accepted")), "%, with 95 % intervals"),),
    "benchmarks/symmetry.md": (Plot(
        "100 transformations, beside a loop", "How many times longer does the loop take?", ("model", "batch"),
        (Column("loop / auditor"), Column("cached loop / auditor")), "loop / auditor", log=True,
        lines={1.0: "as long"}),),
}  # fmt: skip


def with_plots(page: str, markdown: str, plots: Mapping[str, Sequence[Plot]] = PLOTS) -> str:
    """The page with its pictures under the headings they belong to; a page without any stays as it is."""
    for plot in plots.get(page, ()):
        start, rows = _table(markdown, plot)
        if plot.only:
            rows = [row for row in rows if row[plot.only[0]] == plot.only[1]]
        if rows:
            markdown = f"{markdown[:start]}{figure(plot, rows)}\n\n{markdown[start:]}"
    return markdown


def figure(plot: Plot, rows: Sequence[Mapping[str, str]]) -> str:
    """The picture as HTML without a blank line, which Markdown leaves alone."""
    names = [", ".join(filter(None, (_named(name, _plain(row[name])) for name in plot.names))) for row in rows]
    marks = [[mark(row[c.name], row[c.interval] if c.interval else "") for c in plot.columns] for row in rows]
    drawn = [(name, found) for name, found in zip(names, marks, strict=True) if any(found)]
    keys = [column.label or column.name for column in plot.columns]
    legend = "".join(f'<span class="s{i}">{html.escape(key)}</span>' for i, key in enumerate(keys))
    legend = legend if len(keys) > 1 else ""
    title = html.escape(plot.question)
    return (
        f'<figure class="plot"><figcaption>{title}</figcaption><p class="legend">{legend}</p>'
        f"{_svg(plot, drawn)}</figure>"
    )


def mark(cell: str, interval: str = "") -> Mark | None:
    """The number of a cell, and its interval from the same cell or from one of its own.

    >>> mark("233/233 = 100.0% [98.4%, 100.0%]")
    Mark(value=100.0, low=98.4, high=100.0)
    >>> mark("130/170 (69.4% to 82.6%)").value, mark("0.306 ± 0.008"), mark("not offered")
    (76.47058823529412, Mark(value=0.306, low=None, high=None), None)
    """
    span = SPAN.search(interval) if interval else SPAN.search(cell)
    ends = [_float(end) for end in span.groups() if end is not None] if span else [None, None]
    text = _plain(cell if interval or not span else cell[: span.start()]).rpartition("=")[2].strip()
    if ratio := re.fullmatch(r"(\d+)/(\d+)", text):
        return Mark(100 * int(ratio[1]) / int(ratio[2]), *ends) if int(ratio[2]) else None
    found = re.match(NUMBER, text)
    return Mark(_float(found[0]), *ends) if found else None


def _svg(plot: Plot, rows: Sequence[tuple[str, Sequence[Mark | None]]]) -> str:
    step = max(ROW, 7 * len(plot.columns) + 6)
    left = min(max(len(name) for name, _ in rows) * LETTER + 20, WIDTH / 2)
    height, bottom = TOP + step * len(rows) + BOTTOM, TOP + step * len(rows)
    numbers = [n for _, marks in rows for m in marks if m for n in (m.value, m.low, m.high) if n is not None]
    numbers = [n for n in [*numbers, *(plot.lines or ())] if not plot.log or n > 0]
    ticks = _ticks(min(numbers), max(numbers), log=plot.log)
    scale = math.log10 if plot.log else float
    low, high = scale(min(ticks[0], min(numbers))), scale(max(ticks[-1], max(numbers)))

    def across(value: float) -> float:
        place = scale(value) if not plot.log or value > 0 else low
        return left + (WIDTH - left - 24) * (place - low) / ((high - low) or 1)

    parts = [f'<line class="grid" x1="{across(t):.1f}" x2="{across(t):.1f}" y1="{TOP}" y2="{bottom}"/>'
             f'<text class="tick" x="{across(t):.1f}" y="{bottom + 14}" text-anchor="middle">{_shown(t)}</text>'
             for t in ticks]
    for value, label in (plot.lines or {}).items():
        at = across(value)
        parts.append(f'<line class="limit" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}"/>')
        side = ("end", at - 4) if at > WIDTH - 120 else ("start", at + 4)
        parts.append(f'<text class="tick" x="{side[1]:.1f}" y="{TOP - 3}" text-anchor="{side[0]}">'
                     f"{html.escape(label)}</text>")
    for index, (name, marks) in enumerate(rows):
        middle = TOP + step * (index + 0.5)
        parts.append(f'<text class="name" x="{left - 10}" y="{middle + 4}" text-anchor="end">'
                     f"{html.escape(_cut(name, int((left - 12) / LETTER)))}</text>")
        for series, found in enumerate(marks):
            if found is not None and (not plot.log or found.value > 0):  # a zero has no place on a logarithmic axis
                at = middle + 7 * (series - (len(marks) - 1) / 2)
                parts.append(_drawn(found, across, at, series))
    axis = html.escape(plot.axis)
    parts.append(f'<text class="axis" x="{WIDTH - 24}" y="{height - 4}" text-anchor="end">{axis}</text>')
    label = html.escape(f"{plot.question} The numbers are in the table below.")
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _drawn(found: Mark, across: Callable[[float], float], at: float, series: int) -> str:
    bar = ""
    if found.low is not None and found.high is not None:
        bar = f'<line class="bar" x1="{across(found.low):.1f}" x2="{across(found.high):.1f}" y1="{at}" y2="{at}"/>'
    return f'<g class="s{series % SERIES}">{bar}<circle cx="{across(found.value):.1f}" cy="{at}" r="3.2"/></g>'


def _table(markdown: str, plot: Plot) -> tuple[int, list[dict[str, str]]]:
    """Where the first table of the section with the wanted columns begins, and its rows; no rows if there is none."""
    heading = re.search(rf"^#+ {re.escape(plot.section)}\s*$", markdown, flags=re.M) if plot.section else None
    start = heading.end() if heading else 0
    end = re.search(r"^#+ ", markdown[start:], flags=re.M) if heading else None
    part = markdown[start : start + end.start()] if end else markdown[start:]
    wanted = {*plot.names, *(column.name for column in plot.columns)}
    for found in re.finditer(r"(?:^\|.*\n?)+", part, flags=re.M):
        head, _, *body = (_cells(line) for line in found[0].strip().splitlines())
        if wanted <= set(head) and (heading or not plot.section):
            return start + found.start(), [dict(zip(head, cells, strict=False)) for cells in body]
    return start, []


def _cells(line: str) -> list[str]:
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def _named(column: str, cell: str) -> str:
    """A number alone says nothing: ``batch 128``."""
    return f"{column} {cell}" if re.fullmatch(NUMBER, cell) else cell


def _plain(cell: str) -> str:
    return re.sub(r"[*`]", "", cell).strip()


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _float(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def _shown(value: float) -> str:
    return f"{value:g}".replace("-", "\N{MINUS SIGN}", 1) if abs(value) >= 1e-3 or value == 0 else f"{value:.0e}"


def _ticks(low: float, high: float, *, log: bool) -> list[float]:
    """Round numbers over the range, about six of them."""
    if log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        steps: Iterable[float] = (1, 2, 5) if last - first <= 2 else (1,)
        found = [s * 10.0**k for k in range(first, last + 1) for s in steps]
        inside = [t for t in found if low / 1.6 <= t <= high * 1.6]
        return inside if len(inside) <= 8 else inside[:: math.ceil(len(inside) / 7)]
    span = (high - low) or 1.0
    size = 10.0 ** math.floor(math.log10(span / 5))
    step = next(size * k for k in (1, 2, 5, 10) if span / (size * k) <= 7)
    return [round(k * step, 10) for k in range(math.floor(low / step), math.ceil(high / step) + 1)]
