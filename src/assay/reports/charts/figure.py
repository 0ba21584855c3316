"""Draws one Figure of a finding: lines, dots, bars, bands, paired slopes; heat maps have their own file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from assay.reports.charts.heatmap import heatmap
from assay.reports.charts.scale import Scale, fit
from assay.reports.charts.svg import coordinate, join, short, tag
from assay.results import Figure, Reference, Series

WIDTH, HEIGHT = 460, 290
LEFT, RIGHT, TOP, BOTTOM = 54, 14, 26, 42
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
COLOURS = 8
MANY_POINTS = 60
"""Above this many points a line carries no markers; above four per pixel it is thinned to what a pixel can show."""


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
        places = [*range(len(figure.categories)), *xs] if figure.categories else xs
        low, high = min(places, default=0), max(places, default=0)
        room = 0.6 if bars else 0.35
        return Scale(low - room, high + room), y
    return fit(xs, log=figure.x_scale == "log", pad=0.03), y


def _plot(figure: Figure, x: Scale, y: Scale) -> Markup:
    marks: list[Markup] = []
    bar_count = sum(series.style == "bars" for series in figure.series)
    bar_index = 0
    for index, series in enumerate(figure.series):
        colour = f"s{index % COLOURS}" if figure.kind == "xy" else "s0 slope"
        if series.style == "bars" and figure.kind == "xy":
            marks.append(_bars(series, x, y, colour, bar_index, bar_count))
            bar_index += 1
        else:
            marks += _line(series, x, y, colour, dots_only=series.style == "dots")
    rules = [_reference_line(reference, x, y) for reference in figure.references]
    inner = tag(
        "svg",
        *rules,
        *marks,
        class_="plot",
        x=LEFT,
        y=TOP,
        width=PLOT_WIDTH,
        height=PLOT_HEIGHT,
        viewBox=f"0 0 {PLOT_WIDTH} {PLOT_HEIGHT}",
        preserveAspectRatio="none",
    )
    labels = [_reference_label(reference, x, y) for reference in figure.references]
    return join(
        tag("g", *_axes(figure, x, y), class_="axes"), inner, tag("g", *labels, class_="rules"), *_titles(figure)
    )


def _axes(figure: Figure, x: Scale, y: Scale) -> Iterable[Markup]:
    for tick in y.ticks(5):
        at = TOP + (1 - y(tick)) * PLOT_HEIGHT
        yield tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at)
        yield tag("text", y.label(tick), class_="tick", x=LEFT - 8, y=at + 3.5, text_anchor="end")
    bottom = TOP + PLOT_HEIGHT
    yield tag("line", class_="base", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom)
    for value, label in _x_ticks(figure, x):
        at = LEFT + x(value) * PLOT_WIDTH
        yield tag("text", label, class_="tick", x=at, y=bottom + 16, text_anchor="middle")


def _x_ticks(figure: Figure, x: Scale) -> list[tuple[float, str]]:
    if not figure.categories:
        return [(tick, x.label(tick)) for tick in x.ticks(6)]
    room = PLOT_WIDTH / max(1, len(figure.categories))
    stride = max(1, round(30 / room))
    letters = max(3, int(room * stride / 6.2))
    return [(k, short(name, letters)) for k, name in enumerate(figure.categories) if k % stride == 0]


def _titles(figure: Figure) -> list[Markup]:
    return [
        tag("text", short(figure.y_label, 48), class_="axis-name", x=LEFT - 46, y=13),
        tag("text", short(figure.x_label, 60), class_="axis-name", x=WIDTH - RIGHT, y=HEIGHT - 8, text_anchor="end"),
    ]


def _line(series: Series, x: Scale, y: Scale, colour: str, *, dots_only: bool) -> list[Markup]:
    marks = []
    if series.low and series.high:
        upper = _points(series.x, series.high, x, y)
        lower = _points(series.x, series.low, x, y)
        if upper and lower:
            marks.append(tag("path", class_=f"{colour} area", d=_path([*upper, *reversed(lower)]) + "Z"))
    points = _points(series.x, series.y, x, y)
    if not dots_only and len(points) > 1:
        marks.append(tag("path", class_=f"{colour} line", d=_path(_thinned(points))))
    if points and (dots_only or len(points) <= MANY_POINTS):
        # A line of no length with round caps is a dot that keeps its size when the plot is stretched.
        dots = "".join(f"M{coordinate(px)} {coordinate(py)}h0" for px, py in points)
        marks.append(tag("path", class_=f"{colour} dots", d=dots))
    return marks


def _bars(series: Series, x: Scale, y: Scale, colour: str, index: int, count: int) -> Markup:
    width = 0.76 / max(1, count)
    parts = []
    ground = PLOT_HEIGHT * (1 - (y(0.0) if not y.log else 0.0))
    for value, height in zip(series.x, series.y, strict=True):
        if not y.draws(height):
            continue
        left = x(value - 0.38 + index * width) * PLOT_WIDTH + 1
        right = x(value - 0.38 + (index + 1) * width) * PLOT_WIDTH - 1
        top = PLOT_HEIGHT * (1 - y(height))
        parts.append(
            f"M{coordinate(left)} {coordinate(ground)}V{coordinate(top)}H{coordinate(right)}V{coordinate(ground)}Z"
        )
    return tag("path", class_=f"{colour} bars", d="".join(parts))


def _points(xs: Sequence[float], ys: Sequence[float], x: Scale, y: Scale) -> list[tuple[float, float]]:
    pairs = zip(xs, ys, strict=True)
    return [(x(a) * PLOT_WIDTH, (1 - y(b)) * PLOT_HEIGHT) for a, b in pairs if x.draws(a) and y.draws(b)]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= 4 * PLOT_WIDTH:
        return points
    columns: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        columns.setdefault(int(point[0]), []).append(point)
    kept = []
    for column in columns.values():
        low, high = min(column, key=lambda p: p[1]), max(column, key=lambda p: p[1])
        kept += sorted({column[0], low, high, column[-1]})
    return kept


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{coordinate(px)} {coordinate(py)}" for px, py in points)


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
