"""Draws one Figure of a finding: lines, dots, bars, bands, paired slopes; heat maps have their own file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup

from assay.reports.charts.heatmap import heatmap
from assay.reports.charts.marks import COLOURS, PLOT_HEIGHT, PLOT_WIDTH, series_marks, slot
from assay.reports.charts.panels import panels
from assay.reports.charts.scale import AxisScale, fit
from assay.reports.charts.svg import distinct, in_two_lines, join, short, tag
from assay.results import Figure, Reference

WIDTH, HEIGHT = 460, 290
LETTER = 6.0
"""Width of a letter of the smallest text, for what must fit in a place."""
END_LETTERS = 22
"""Letters of the name beside the end of a line; the legend has all of them."""
MOST_LABELS = 12
"""Above this many lines their ends carry no names: they could not be read."""
LEFT, TOP = 54, 26
RIGHT = WIDTH - LEFT - PLOT_WIDTH


def draw(figure: Figure, *, identifier: str) -> Markup:
    """The figure as one accessible SVG; ``identifier`` makes the ids of its title and description unique."""
    head = [
        tag("title", short(figure.question, 300), id=f"{identifier}-t"),
        tag("desc", describe(figure), id=f"{identifier}-d"),
    ]
    room = 0.0
    zoom: dict[str, str] = {}
    if figure.kind == "heatmap":
        height, body = heatmap(figure)
    elif figure.kind == "panels":
        height, body = panels(figure)
    else:
        x, y = _scales(figure)
        names = end_labels(figure, x, y)
        room = max((len(text) for _, text, _ in names), default=0) * LETTER
        height, body = HEIGHT, _plot(figure, x, y, names)
        zoom = {"data-x": _domain(x), "data-y": _domain(y), "data-plot": f"{LEFT} {TOP} {PLOT_WIDTH} {PLOT_HEIGHT}"}
        if figure.categories:
            zoom["data-names"] = "yes"
    attributes = {"aria-labelledby": f"{identifier}-t", "aria-describedby": f"{identifier}-d", **zoom}
    return tag(
        "svg",
        *head,
        body,
        class_=f"chart {figure.kind}",
        viewBox=f"0 0 {WIDTH + round(room)} {height}",
        role="img",
        **attributes,
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
    if figure.kind in ("xy", "slopes"):
        entries += [("reference", r.label, index) for index, r in enumerate(figure.references)]
    return entries


def describe(figure: Figure) -> str:
    """A sentence for those who cannot see the picture; the numbers are in the table below it."""
    axes = f"{figure.y_label or 'value'} against {figure.x_label or 'position'}"
    scales = [name for name, scale in (("x", figure.x_scale), ("y", figure.y_scale)) if scale == "log"]
    log = f", logarithmic {' and '.join(scales)}" if scales else ""
    if figure.kind == "panels":
        return short(f"{len(figure.panels)} pictures: {', '.join(panel.name for panel in figure.panels)}.", 400)
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
    """How many points have no place on the axes: not finite, or negative on a logarithmic axis."""
    if figure.kind in ("heatmap", "panels"):
        return 0
    x, y = _scales(figure)
    return sum(not (x.draws(a) and y.draws(b)) for s in figure.series for a, b in zip(s.x, s.y, strict=True))


def _scales(figure: Figure) -> tuple[AxisScale, AxisScale]:
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
        return AxisScale(min(places, default=0) - room, max(places, default=0) + room), y
    return fit(xs, log=figure.x_scale == "log", pad=0.03), y


def end_labels(figure: Figure, x: AxisScale, y: AxisScale) -> list[tuple[float, str, str]]:
    """Height, text and class of a name beside the end of each line, moved apart where they would touch.

    Names are left out where there is one line only, where there are too many, and where lines end inside the plot.
    """
    lines = [
        (index, series) for index, series in enumerate(figure.series) if series.style == "line" and len(series.x) > 1
    ]
    if not 1 < len(lines) <= MOST_LABELS:
        return []
    names = distinct([series.name for _, series in lines], END_LETTERS)
    found = []
    for (index, series), name in zip(lines, names, strict=True):
        drawn = [(x(a), y(b)) for a, b in zip(series.x, series.y, strict=True) if x.draws(a) and y.draws(b)]
        if not drawn or max(drawn)[0] < 0.8:
            continue
        found.append((TOP + (1 - max(drawn)[1]) * PLOT_HEIGHT + 3.5, name, f"end s{index % COLOURS}"))
    found.sort()
    apart = [(height, name, kind) for height, name, kind in found]
    for k in range(1, len(apart)):
        apart[k] = (max(apart[k][0], apart[k - 1][0] + 12), *apart[k][1:])
    beyond = max(0.0, apart[-1][0] - (TOP + PLOT_HEIGHT + 4)) if apart else 0.0
    return [(height - beyond, name, kind) for height, name, kind in apart]


def _plot(figure: Figure, x: AxisScale, y: AxisScale, names: Sequence[tuple[float, str, str]]) -> Markup:
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
    labels = [tag("text", text, class_=kind, x=LEFT + PLOT_WIDTH + 7, y=height) for height, text, kind in names]
    return join(
        tag("g", *_axes(figure, x, y), class_="axes"), inner, tag("g", *labels, class_="rules"), *_titles(figure)
    )


def _axes(figure: Figure, x: AxisScale, y: AxisScale) -> Iterable[Markup]:
    for tick, label in y.labelled(5):
        at = TOP + (1 - y(tick)) * PLOT_HEIGHT
        yield tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at)
        yield tag("text", label, class_="tick", x=LEFT - 8, y=at + 3.5, text_anchor="end")
    bottom = TOP + PLOT_HEIGHT
    yield tag("line", class_="base", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom)
    for value, label in _x_ticks(figure, x):
        at = LEFT + x(value) * PLOT_WIDTH
        lines = [tag("tspan", line, x=at, dy=12 if k else None) for k, line in enumerate(label.split("\n"))]
        content = lines if len(lines) > 1 else [label]
        yield tag("text", *content, class_="tick", x=at, y=bottom + 16, text_anchor="middle")


def _x_ticks(figure: Figure, x: AxisScale) -> list[tuple[float, str]]:
    if not figure.categories:
        return x.labelled(6)
    room = PLOT_WIDTH / max(1, len(figure.categories))
    stride = max(1, round(30 / room))
    letters = max(3, int(room * stride / 6.2))
    # The name of the axis stands where a second line of labels would.
    shown = distinct(figure.categories, letters) if figure.x_label else in_two_lines(figure.categories, letters)
    return [(k, name) for k, name in enumerate(shown) if k % stride == 0]


def _titles(figure: Figure) -> list[Markup]:
    return [
        tag("text", short(figure.y_label, 48), class_="axis-name", x=0, y=13),
        tag("text", short(figure.x_label, 60), class_="axis-name", x=WIDTH - RIGHT, y=HEIGHT - 8, text_anchor="end"),
    ]


def _reference_line(reference: Reference, x: AxisScale, y: AxisScale) -> Markup:
    scale = x if reference.axis == "x" else y
    if not scale.draws(reference.value):
        return Markup("")
    if reference.axis == "x":
        at = x(reference.value) * PLOT_WIDTH
        return tag("line", class_="reference", x1=at, x2=at, y1=0, y2=PLOT_HEIGHT)
    if reference.axis == "diagonal":
        return _diagonal(reference.value, x, y)
    at = (1 - y(reference.value)) * PLOT_HEIGHT
    return tag("line", class_="reference", x1=0, x2=PLOT_WIDTH, y1=at, y2=at)


def _diagonal(slope: float, x: AxisScale, y: AxisScale) -> Markup:
    # Where y = slope * x crosses the plot: its ends at both sides, cut by the frame of the plot itself.
    ends = [(value, slope * value) for value in (x.low, x.high)]
    drawn = [(x(a) * PLOT_WIDTH, (1 - y(b)) * PLOT_HEIGHT) for a, b in ends if x.draws(a) and y.draws(b)]
    if len(drawn) < 2:
        return Markup("")
    (x1, y1), (x2, y2) = drawn
    return tag("line", class_="reference", x1=x1, x2=x2, y1=y1, y2=y2)


def _domain(scale: AxisScale) -> str:
    kind = ("log0" if scale.zero else "log") if scale.log else "linear"
    return f"{scale.low!r} {scale.high!r} {kind}"
