"""The marks of a figure's series: lines, dots, bars, and their bands or whiskers, in the units of the plot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from markupsafe import Markup

from assay.reports.charts.scale import AxisScale
from assay.reports.charts.svg import coordinate, tag
from assay.results import Figure, Series

PLOT_WIDTH, PLOT_HEIGHT = 392, 222
COLOURS = 8
MANY_POINTS = 60
"""Above this many points a line carries no markers; above four per unit of width it is thinned to what can be seen."""

Point = tuple[float, float]


def series_marks(figure: Figure, x: AxisScale, y: AxisScale) -> Iterator[Markup]:
    """The marks of every series. The one that carries ``data-s`` holds the series' points, for the hover layer."""
    bars = [index for index, series in enumerate(figure.series) if series.style == "bars" and figure.kind == "xy"]
    for index, series in enumerate(figure.series):
        colour = f"s{index % COLOURS}" if figure.kind == "xy" else f"s{index % COLOURS} slope"
        if index in bars:
            share = slot(figure) * 0.76 / len(bars)
            shift = (bars.index(index) - len(bars) / 2) * share
            yield _bars(series, x, y=y, colour=colour, index=index, sides=(shift, shift + share))
            yield _whiskers(series, x, y, colour=colour, shift=shift + share / 2)
        else:
            yield from _line(series, x, y, colour=colour, index=index)


def slot(figure: Figure) -> float:
    """The distance between neighbouring bars, in units of x."""
    xs = sorted({value for series in figure.series if series.style == "bars" for value in series.x})
    return min((b - a for a, b in pairwise(xs)), default=1.0)


def _line(series: Series, x: AxisScale, y: AxisScale, *, colour: str, index: int) -> Iterator[Markup]:
    points = _points(series.x, series.y, x, y)
    dots_only = series.style == "dots"
    if dots_only:
        yield _whiskers(series, x, y, colour=colour, shift=0.0)
    elif series.low and series.high:
        upper, lower = _points(series.x, series.high, x, y), _points(series.x, series.low, x, y)
        if upper and lower:
            yield tag("path", class_=f"{colour} area", d=_path([*upper, *reversed(lower)]) + "Z")
    dotted = bool(points) and (dots_only or len(points) <= MANY_POINTS)
    if not dots_only and len(points) > 1:
        yield tag("path", class_=f"{colour} line", d=_path(_thinned(points)), data_s=None if dotted else index)
    if dotted:
        # A line of no length with round caps is a dot that keeps its size when the plot is stretched.
        dots = "".join(f"M{coordinate(px)} {coordinate(py)}h0" for px, py in points)
        yield tag("path", class_=f"{colour} dots", d=dots, data_s=index)
        if index % 4 >= 2:
            # Hollow marks tell a third and fourth series apart where there is no colour.
            yield tag("path", class_=f"{colour} hollow", d=dots)


def _bars(series: Series, x: AxisScale, *, y: AxisScale, colour: str, index: int, sides: tuple[float, float]) -> Markup:
    parts = []
    ground = coordinate(PLOT_HEIGHT * (1 - (0.0 if y.log else y(0.0))))
    for value, height in zip(series.x, series.y, strict=True):
        if x.draws(value) and y.draws(height):
            left, right = (x(value + side) * PLOT_WIDTH for side in sides)
            top = coordinate(PLOT_HEIGHT * (1 - y(height)))
            parts.append(f"M{coordinate(left + 1)} {ground}V{top}H{coordinate(right - 1)}V{ground}Z")
    return tag("path", class_=f"{colour} bars", d="".join(parts), data_s=index)


def _whiskers(series: Series, x: AxisScale, y: AxisScale, *, colour: str, shift: float) -> Markup:
    if not (series.low and series.high):
        return Markup("")
    parts = []
    for value, low, high in zip(series.x, series.low, series.high, strict=True):
        if x.draws(value) and y.draws(low) and y.draws(high):
            ends = [coordinate(PLOT_HEIGHT * (1 - y(end))) for end in (low, high)]
            parts.append(f"M{coordinate(x(value + shift) * PLOT_WIDTH)} {ends[0]}V{ends[1]}")
    return tag("path", class_=f"{colour} whisker", d="".join(parts))


def _points(xs: Sequence[float], ys: Sequence[float], x: AxisScale, y: AxisScale) -> list[Point]:
    pairs = zip(xs, ys, strict=True)
    return [(x(a) * PLOT_WIDTH, (1 - y(b)) * PLOT_HEIGHT) for a, b in pairs if x.draws(a) and y.draws(b)]


def _thinned(points: list[Point]) -> list[Point]:
    if len(points) <= 4 * PLOT_WIDTH:
        return points
    columns: dict[int, list[Point]] = {}
    for point in points:
        columns.setdefault(int(point[0]), []).append(point)
    kept = []
    for column in columns.values():
        low, high = min(column, key=lambda point: point[1]), max(column, key=lambda point: point[1])
        kept += sorted({column[0], low, high, column[-1]})
    return kept


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{coordinate(px)} {coordinate(py)}" for px, py in points)
