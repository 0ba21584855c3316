"""SVG and HTML elements from Python, with every attribute and every text escaped."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from markupsafe import Markup, escape

from assay.reports import words
from assay.results import Measurement

Attribute = str | float | int | None


def tag(name: str, *children: str, **attributes: Attribute) -> Markup:
    """One element. ``class_`` and ``stroke_width`` become ``class`` and ``stroke-width``; a None attribute is left out.

    >>> str(tag("text", "<b>", x=1.25, class_="tick"))
    '<text x="1.25" class="tick">&lt;b&gt;</text>'
    """
    parts = [name]
    for key, value in attributes.items():
        if value is not None:
            shown = coordinate(value) if isinstance(value, float) else escape(value)
            parts.append(f'{key.rstrip("_").replace("_", "-")}="{shown}"')
    inside = join(*children)
    start = Markup(" ".join(parts))
    return Markup(f"<{start}/>") if not children else Markup(f"<{start}>{inside}</{name}>")


def join(*children: str) -> Markup:
    """Children in sequence, each escaped unless it is already markup."""
    return Markup("").join(escape(child) for child in children)


def coordinate(value: float) -> str:
    """A position to a hundredth of a pixel, without trailing zeros.

    >>> coordinate(12.3456), coordinate(7.0)
    ('12.35', '7')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


def percent(share: float) -> str:
    """A share of the width as an SVG percentage, so that a chart without text inside stretches without distortion."""
    return coordinate(100 * share) + "%"


def number(value: float | int | None, at: str, *, unit: str = "", like: Measurement | None = None) -> Markup:
    """A number of the run, rounded for the eye, with its full value and its place in run.json for machines.

    ``at`` is the path in run.json with dots, below the ``data-in`` of the elements around it; a test walks every such
    element and compares it with the file. ``like`` is the measurement whose interval tells the digits.
    """
    if value is None:
        return tag("span", words.number(None), class_="none")
    shown = pretty(words.sized(value, like.interval, like.region) if like else words.number(value))
    return join(Markup('<data value="{}" data-at="{}">{}</data>').format(repr(value), at, shown), suffix(unit))


def suffix(unit: str) -> Markup:
    """The unit after a number, kept on its line; nothing for a pure number."""
    return Markup("") if unit in words.PURE else Markup('<span class="unit">&nbsp;{}</span>').format(unit)


def pretty(text: str) -> str:
    """A number's text with a true minus sign."""
    return text.replace("-", "\u2212")


def short(text: str, limit: int) -> str:
    """``text`` cut to ``limit`` characters, for places where the full text stands elsewhere."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def distinct(names: Sequence[str], letters: int) -> list[str]:
    """``names`` cut to ``letters`` with no two alike: a shared beginning goes first, numbers are the last resort.

    >>> distinct(["encoder.layer.10", "encoder.layer.11"], 6)
    ['10', '11']
    """
    cut = [short(name, letters) for name in names]
    if len(set(cut)) == len(set(names)):
        return cut
    alike = zip(*names, strict=False)
    start = next((k for k, letters_here in enumerate(alike) if len(set(letters_here)) > 1), min(map(len, names)))
    start = max((i + 1 for i in range(start) if not names[0][i].isalnum()), default=0)
    cut = [short(name[start:], letters) for name in names]
    if len(set(cut)) == len(set(names)):
        return cut
    order = {name: str(k + 1) for k, name in enumerate(dict.fromkeys(names))}
    return [order[name] for name in names]


def in_two_lines(names: Sequence[str], letters: int) -> list[str]:
    """``names`` broken between words into at most two lines of ``letters``, cut where that is not enough.

    >>> in_two_lines(["eqprop", "feedback alignment", "backprop for twice as long"], 9)
    ['eqprop', 'feedback\\nalignment', 'backprop\\nfor twic…']
    """
    broken = []
    for name in names:
        first, *rest = textwrap.wrap(name, letters, break_long_words=False) or [name]
        broken.append("\n".join(short(line, letters) for line in (first, " ".join(rest)) if line))
    return broken if len(set(broken)) == len(set(names)) else distinct(names, letters)
