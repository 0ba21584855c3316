"""Draws one Figure of a finding: lines, dots, bars, bands, paired slopes; heat maps have their own file."""

from __future__ import annotations

import math
from collections.abc import Iterable

from markupsafe import Markup

from assay.reports.charts.heatmap import heatmap
from assay.reports.charts.marks import COLOURS, PLOT_HEIGHT, PLOT_WIDTH, series_marks, slot
from assay.reports.charts.scale import Scale, fit
from assay.reports.charts.svg import join, short, tag
from assay.results import Figure, Reference

WIDTH, HEIGHT = 460, 290
LEFT, TOP = 54, 26
RIGHT = WIDTH - LEFT - PLOT_WIDTH


def draw(figure: Figure, *, identifier: str) -> Markup:
    """The figure as one accessible SVG; ``identifier`` makes the ids of its title and description unique."""
    head = [
        tag("title", short(figure.question, 300), id=f"{identifier}-t"),
        tag("desc", describe(figure), id=f"{identifier}-d"),
    ]
    if figure.kind == "heatmap":
        height, body = heatmap(figure)
        zoom: dict[str, str] = {}
    else:
        x, y = _scales(figure)
        height, body = HEIGHT, _plot(figure, x, y)
        zoom = {"data-x": _domain(x), "data-y": _domain(y), "data-plot": f"{LEFT} {TOP} {PLOT_WIDTH} {PLOT_HEIGHT}"}
        if figure.categories:
            zoom["data-names"] = "yes"
    attributes = {"aria-labelledby": f"{identifier}-t", "aria-describedby": f"{identifier}-d", **zoom}
    return tag(
        "svg", *head, body, class_=f"chart {figure.kind}", viewBox=f"0 0 {WIDTH} {height}", role="img", **attributes
    )


def legend(figure: Figure) -> list[tuple[str, str, int | None]]:
    """Class, text and number of the reference (if it is one) of each legend entry.

    Series come first, unless there is only one without a band or each is just a seed; then the references.
    """
    entries: list[tuple[str, str, int | None]] = []
    if figure.kind == "xy" and (len(figure.series) > 1 or any(series.low for series in figure.series)):
        entries = [
            (f"s{index % COLOURS} {series.style}", series.name, None) for index, series in enumerate(figure.series)
        ]
    if figure.kind != "heatmap":
        entries += [("reference", r.label, index) for index, r in enumerate(figure.references)]
    return entries


def describe(figure: Figure) -> str:
    """A sentence for those who cannot see the picture; the numbers are in the table below it."""
    axes = f"{figure.y_label or 'value'} against {figure.x_label or 'position'}"
    scales = [name for name, scale in (("x", figure.x_scale), ("y", figure.y_scale)) if scale == "log"]
    log = f", logarithmic {' and '.join(scales)}" if scales else ""
    if figure.kind == "heatmap":
        return short(
            f"Heat map of {len(figure.grid)} rows by {len(figure.categories)} columns. The table holds every value.",
            400,
        )
    if figure.kind == "slopes":
        arms = " to ".join(figure.categories)
        return short(
            f"One line per seed, {len(figure.series)} in all, from {arms}: {axes}. The table holds every value.", 400
        )
    names = ", ".join(series.name for series in figure.series)
    return short(f"{axes}{log}; series: {names}. The table holds every value.", 400)


def undrawable(figure: Figure) -> int:
    """How many points have no place on the axes: not finite, or not positive on a logarithmic axis."""
    if figure.kind == "heatmap":
        return 0
    x, y = _scales(figure)
    return sum(not (x.draws(a) and y.draws(b)) for s in figure.series for a, b in zip(s.x, s.y, strict=True))


def _scales(figure: Figure) -> tuple[Scale, Scale]:
    bars = any(series.style == "bars" for series in figure.series) and figure.kind == "xy"
    xs = [value for series in figure.series for value in series.x]
    xs += [reference.value for reference in figure.references if reference.axis == "x"]
    ys = [value for series in figure.series for value in (*series.y, *series.low, *series.high)]
    ys += [reference.value for reference in figure.references if reference.axis == "y"]
    y_log = figure.y_scale == "log"
    y = fit([*ys, 0.0] if bars and not y_log else ys, log=y_log)
    if figure.categories or bars:
        places = [value for value in [*range(len(figure.categories)), *xs] if math.isfinite(value)]
        room = 0.6 * slot(figure) if bars else 0.35
        return Scale(min(places, default=0) - room, max(places, default=0) + room), y
    return fit(xs, log=figure.x_scale == "log", pad=0.03), y


def _plot(figure: Figure, x: Scale, y: Scale) -> Markup:
    has_bars = figure.kind == "xy" and any(series.style == "bars" for series in figure.series)
    marks = list(series_marks(figure, x, y))
    rules = [_reference_line(reference, x, y) for reference in figure.references]
    # A line behind bars would be hidden, and a label on them unreadable; the legend names it as well.
    ordered = [*marks, *rules] if has_bars else [*rules, *marks]
    inner = tag(
        "svg",
        *ordered,
        class_="plot",
        x=LEFT,
        y=TOP,
        width=PLOT_WIDTH,
        height=PLOT_HEIGHT,
        viewBox=f"0 0 {PLOT_WIDTH} {PLOT_HEIGHT}",
        preserveAspectRatio="none",
    )
    labels = [] if has_bars else [_reference_label(reference, x, y) for reference in figure.references]
    return join(
        tag("g", *_axes(figure, x, y), class_="axes"), inner, tag("g", *labels, class_="rules"), *_titles(figure)
    )


def _axes(figure: Figure, x: Scale, y: Scale) -> Iterable[Markup]:
    for tick, label in y.labelled(5):
        at = TOP + (1 - y(tick)) * PLOT_HEIGHT
        yield tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at)
        yield tag("text", label, class_="tick", x=LEFT - 8, y=at + 3.5, text_anchor="end")
    bottom = TOP + PLOT_HEIGHT
    yield tag("line", class_="base", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom)
    for value, label in _x_ticks(figure, x):
        at = LEFT + x(value) * PLOT_WIDTH
        yield tag("text", label, class_="tick", x=at, y=bottom + 16, text_anchor="middle")


def _x_ticks(figure: Figure, x: Scale) -> list[tuple[float, str]]:
    if not figure.categories:
        return x.labelled(6)
    room = PLOT_WIDTH / max(1, len(figure.categories))
    stride = max(1, round(30 / room))
    letters = max(3, int(room * stride / 6.2))
    return [(k, short(name, letters)) for k, name in enumerate(figure.categories) if k % stride == 0]


def _titles(figure: Figure) -> list[Markup]:
    return [
        tag("text", short(figure.y_label, 48), class_="axis-name", x=0, y=13),
        tag("text", short(figure.x_label, 60), class_="axis-name", x=WIDTH - RIGHT, y=HEIGHT - 8, text_anchor="end"),
    ]


def _reference_line(reference: Reference, x: Scale, y: Scale) -> Markup:
    scale = x if reference.axis == "x" else y
    if not scale.draws(reference.value):
        return Markup("")
    if reference.axis == "x":
        at = x(reference.value) * PLOT_WIDTH
        return tag("line", class_="reference", x1=at, x2=at, y1=0, y2=PLOT_HEIGHT)
    at = (1 - y(reference.value)) * PLOT_HEIGHT
    return tag("line", class_="reference", x1=0, x2=PLOT_WIDTH, y1=at, y2=at)


def _reference_label(reference: Reference, x: Scale, y: Scale) -> Markup:
    scale = x if reference.axis == "x" else y
    if not scale.draws(reference.value):
        return Markup("")
    if reference.axis == "x":
        share = x(reference.value)
        anchor, nudge = ("end", -5) if share > 0.6 else ("start", 5)
        return tag(
            "text",
            short(reference.label, 24),
            class_="rule",
            x=LEFT + share * PLOT_WIDTH + nudge,
            y=TOP + 11,
            text_anchor=anchor,
        )
    at = TOP + (1 - y(reference.value)) * PLOT_HEIGHT
    return tag(
        "text",
        short(reference.label, 40),
        class_="rule",
        x=WIDTH - RIGHT - 3,
        y=at - 5 if at > TOP + 14 else at + 13,
        text_anchor="end",
    )


def _domain(scale: Scale) -> str:
    return f"{scale.low!r} {scale.high!r} {'log' if scale.log else 'linear'}"
