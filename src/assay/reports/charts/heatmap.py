"""Draws a grid of numbers: sequential shades, or two hues around zero when the numbers have both signs."""

from __future__ import annotations

import math
from collections.abc import Iterable

from markupsafe import Markup

from assay.reports import words
from assay.reports.charts.svg import distinct, join, pretty, short, tag
from assay.results import Figure

WIDTH, TOP, RIGHT = 460, 26, 10
STEPS = 9
MANY_ROWS = 40
"""Up to this many rows each is tall enough for its name; beyond, every second or third name is written."""
LETTER = 6.8
"""Width of a letter in a cell: numbers are written only if the longest of them fits; the table always holds them."""


def heatmap(figure: Figure) -> tuple[int, Markup]:
    """The height of the drawing and its marks."""
    rows, columns = len(figure.grid), max((len(row) for row in figure.grid), default=0)
    if rows == 0 or columns == 0:
        return 60, tag("text", "no cells", class_="tick", x=WIDTH / 2, y=34, text_anchor="middle")
    left = min(150, 14 + max((len(name) for name in figure.row_names), default=1) * 6.4)
    width = (WIDTH - left - RIGHT) / columns
    height = max(13.0 if rows <= MANY_ROWS else 6.0, min(38.0, (300 if figure.notes else 240) / rows))
    bottom = TOP + rows * height
    marks = [*_cells(figure, left, width, height), *_names(figure, left, width, height=height, bottom=bottom)]
    marks += _key(figure, left, bottom + 26)
    if figure.margin is not None:
        text = f"framed: beyond ±{pretty(words.number(figure.margin))}"
        marks.append(tag("text", text, class_="tick", x=WIDTH - RIGHT, y=13, text_anchor="end"))
    marks.append(tag("text", short(figure.y_label, 40), class_="axis-name", x=0, y=13))
    marks.append(
        tag("text", short(figure.x_label, 60), class_="axis-name", x=WIDTH - RIGHT, y=bottom + 34, text_anchor="end")
    )
    return round(bottom + 42), join(*marks)


def _cells(figure: Figure, left: float, width: float, height: float) -> Iterable[Markup]:
    finite = [value for row in figure.grid for value in row if math.isfinite(value)]
    low, high = _range(figure, finite)
    longest = max((len(words.number(value)) for value in finite), default=1)
    written = longest * LETTER + 4 <= width and height >= 16
    for r, row in enumerate(figure.grid):
        for c, value in enumerate(row):
            x, y = left + c * width, TOP + r * height
            shade = _shade(value, low, high)
            beyond = figure.margin is not None and math.isfinite(value) and abs(value) > figure.margin
            yield tag(
                "rect",
                class_=f"cell {shade}{' beyond-margin' if beyond else ''}",
                x=x + 0.75,
                y=y + 0.75,
                width=width - 1.5,
                height=height - 1.5,
                rx=2,
            )
            if not math.isfinite(value):
                yield tag("line", class_="missing", x1=x + 4, y1=y + height - 4, x2=x + width - 4, y2=y + 4)
            elif written:
                text = pretty(words.number(value))
                note = _note(figure, r, c) if height >= 30 else ""
                middle = y + height / 2 + (-2 if note else 4)
                yield tag("text", text, class_=f"in {shade}", x=x + width / 2, y=middle, text_anchor="middle")
                if note:
                    fitting = short(note, max(3, int(width / 5.6)))
                    yield tag(
                        "text",
                        fitting,
                        class_=f"in small {shade}",
                        x=x + width / 2,
                        y=middle + 12,
                        text_anchor="middle",
                    )


def _note(figure: Figure, row: int, column: int) -> str:
    notes = figure.notes[row] if row < len(figure.notes) else ()
    return notes[column] if column < len(notes) else ""


def _key(figure: Figure, left: float, top: float) -> Iterable[Markup]:
    """From the lowest to the highest value, the shades between them."""
    finite = [value for row in figure.grid for value in row if math.isfinite(value)]
    low, high = _range(figure, finite)
    if low == high:
        return
    first, last = pretty(words.number(low)), pretty(words.number(high))
    start = left + 6 + LETTER * len(first)
    yield tag("text", first, class_="tick", x=left, y=top + 9)
    for step in range(STEPS):
        shade = _shade(low + (high - low) * step / (STEPS - 1), low, high)
        yield tag("rect", class_=f"cell key {shade}", x=start + 12 * step, y=top, width=12, height=10)
    yield tag("text", last, class_="tick", x=start + 12 * STEPS + 6, y=top + 9)


def _names(figure: Figure, left: float, width: float, *, height: float, bottom: float) -> Iterable[Markup]:
    stride = max(1, math.ceil(12 / height))
    for r, name in enumerate(figure.row_names):
        if r % stride == 0:
            yield tag(
                "text", short(name, 20), class_="tick", x=left - 6, y=TOP + (r + 0.5) * height + 4, text_anchor="end"
            )
    stride = max(1, math.ceil(26 / width))
    letters = max(3, int(width * stride / 6.4))
    shown = distinct(figure.categories, letters)
    for c in range(len(figure.categories)):
        if c % stride == 0:
            x = left + (c + 0.5) * width
            yield tag("text", shown[c], class_="tick", x=x, y=bottom + 15, text_anchor="middle")


def _range(figure: Figure, finite: list[float]) -> tuple[float, float]:
    # With a margin the picture is about the distance from zero: both hues are used, equally far on both sides.
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    if figure.margin is not None:
        limit = max(-low, high, figure.margin)
        return -limit, limit
    return low, high


def _shade(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return "void"
    if low < 0 < high:
        limit = max(-low, high)
        return f"d{round((value / limit + 1) / 2 * (STEPS - 1))}"
    share = (value - low) / (high - low) if high > low else 0.5
    return f"q{round(share * (STEPS - 1))}"
