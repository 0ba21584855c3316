"""One row of marks on a horizontal axis: seeds as dots, the interval as a bar, the claim's region as a band.

Rows use percentages for x and pixels for y, so they stretch to any width without distorting a dot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from assay.reports import words
from assay.reports.charts.scale import AxisScale, fit
from assay.reports.charts.svg import join, percent, pretty, short, tag
from assay.results import Measurement, Region

FAR = 8.0
"""Two measurements share an axis only if it is at most this many spans of the narrower one."""
VERY_FAR = 20.0
"""A limit or floor farther away than this many spans of the data becomes an arrow at the edge; positive numbers whose
ratio to their limit is larger stand on a logarithmic axis, which shows both."""
_OVERVIEW = AxisScale(-2.4, 2.4)


def overview_row(measurement: Measurement, *, label: str) -> Markup:
    """Value and interval of the deciding measurement on a scale where the claim's own limits lie at -1 and 1."""
    height, middle = 26, 13
    region = measurement.region or Region()
    marks = [_band(_OVERVIEW, *(_normalised(bound, measurement) for bound in (region.low, region.high)), height=height)]
    ends = None
    if measurement.interval is not None:
        ends = tuple(_normalised(end, measurement) for end in (measurement.interval.low, measurement.interval.high))
        marks.append(_bar(_OVERVIEW, ends[0], ends[1], y=middle))
    position = _normalised(measurement.value, measurement)
    if position is not None:
        marks.append(_point(_OVERVIEW, position, y=middle))
    return tag("svg", tag("title", label), *marks, class_="row", height=height, role="img")


@dataclass(frozen=True)
class StripGroup:
    """Measurements on one axis, and the floors that belong on it."""

    members: tuple[int, ...]
    scale: AxisScale
    floors: tuple[int, ...] = ()


def groups(measurements: Sequence[Measurement]) -> list[StripGroup]:
    """Measurements that have something to draw, joined to one axis where that leaves each of them readable."""
    clusters: list[list[int]] = []
    for index, measurement in enumerate(measurements):
        if len(_data(measurement)) < 2 and not _has_limit(measurement):
            continue
        home = next((c for c in clusters if _fits_together([measurements[i] for i in c], measurement)), None)
        if home is None:
            clusters.append([index])
        else:
            home.append(index)
    return [_group(measurements, cluster) for cluster in clusters]


def strip(measurement: Measurement, group: StripGroup, floors: Sequence[Measurement]) -> Markup:
    """One measurement's seeds, interval and region on its group's axis."""
    height, middle = 34, 17
    scale = group.scale
    region = measurement.region or Region()
    marks = [_band(scale, region.low, region.high, height=height)]
    marks += [_floor(scale, floor, height=height) for floor in floors]
    if measurement.interval is not None:
        marks.append(_bar(scale, measurement.interval.low, measurement.interval.high, y=middle))
    drawn = [value for value in measurement.values if scale.draws(value)]
    marks.append(_dots(scale, drawn, y=middle))
    if measurement.value is not None and scale.draws(measurement.value) and not (drawn or measurement.interval):
        marks.append(_point(scale, measurement.value, y=middle))
    elif measurement.value is not None and scale.draws(measurement.value):
        marks.append(tag("rect", class_="mean", x=percent(scale(measurement.value)), y=middle - 9, width=2, height=18))
    title = f"{measurement.name}: {len(measurement.values)} values by seed" if measurement.values else measurement.name
    return tag("svg", tag("title", short(title, 200)), *marks, class_="strip", height=height, role="img")


def differences(values: Sequence[float], name: str) -> Markup:
    """Paired differences as dots around a line at zero."""
    height, middle = 26, 13
    scale = fit([0.0, *values], pad=0.08)
    zero = percent(scale(0.0))
    marks = [tag("line", class_="zero", x1=zero, x2=zero, y1=0, y2=height)]
    drawn = [value for value in values if scale.draws(value)]
    marks.append(_dots(scale, drawn, y=middle))
    title = f"{name}: {len(drawn)} differences by seed, zero marked"
    return tag("svg", tag("title", short(title, 200)), *marks, class_="strip", height=height, role="img")


def axis(group: StripGroup) -> Markup:
    """The ticks under a group of strips."""
    scale = group.scale
    marks = []
    for tick, label in scale.labelled(4):
        if not 0.03 <= scale(tick) <= 0.97:
            continue
        x = percent(scale(tick))
        marks.append(tag("line", x1=x, x2=x, y2=4))
        marks.append(tag("text", label, x=x, y=16))
    return tag("svg", *marks, class_="axis", height=20, aria_hidden="true")


def is_floor(measurement: Measurement) -> bool:
    """Whether a measurement is a floor to compare with: chance, a noise floor, a frozen or majority baseline."""
    name = measurement.name.lower()
    return measurement.value is not None and any(word in name for word in ("floor", "chance", "baseline"))


def _normalised(value: float | None, measurement: Measurement) -> float | None:
    # Two limits lie at -1 and 1. A single limit lies at its own side; the distance from it to zero is the unit, or the
    # reach of the evidence if the limit is zero.
    region = measurement.region or Region()
    if value is None or math.isnan(value):
        return None
    if region.low is not None and region.high is not None:
        half = (region.high - region.low) / 2
        return (
            (value - (region.low + region.high) / 2) / half if half > 0 else math.copysign(math.inf, value - region.low)
        )
    limit = region.high if region.high is not None else region.low
    reach = [abs(v) for v in (measurement.value, *_ends(measurement)) if v is not None and math.isfinite(v)]
    unit = abs(limit) if limit else max(reach, default=1.0) or 1.0
    if limit is None:
        return value / unit
    return (value - limit) / unit + (1 if region.high is not None else -1)


def _ends(measurement: Measurement) -> tuple[float, ...]:
    return (measurement.interval.low, measurement.interval.high) if measurement.interval else ()


def _data(measurement: Measurement) -> list[float]:
    own = () if measurement.value is None else (measurement.value,)
    return [value for value in (*measurement.values, *_ends(measurement), *own) if math.isfinite(value)]


def _has_limit(measurement: Measurement) -> bool:
    region = measurement.region
    return bool(_data(measurement)) and region is not None and (region.low is not None or region.high is not None)


def _span(values: Sequence[float]) -> float:
    return max(values) - min(values)


def _fits_together(cluster: Sequence[Measurement], other: Measurement) -> bool:
    if other.unit != cluster[0].unit:
        return False
    spans = [_span(_data(m)) for m in (*cluster, other)]
    union = [value for m in (*cluster, other) for value in _data(m)]
    return _span(union) <= FAR * max(min(spans), max(spans) / FAR)


def _group(measurements: Sequence[Measurement], cluster: Sequence[int]) -> StripGroup:
    members = [measurements[i] for i in cluster]
    data = [value for m in members for value in _data(m)]
    bounds = [b for m in members if m.region for b in (m.region.low, m.region.high) if b is not None]
    floors = tuple(
        i for i, m in enumerate(measurements) if i not in cluster and is_floor(m) and m.unit == members[0].unit
    )
    extra = [*bounds, *(value for i in floors if (value := measurements[i].value) is not None)]
    log = min([*data, *bounds]) > 0 and max([*data, *bounds]) / min([*data, *bounds]) > VERY_FAR
    near = [value for value in extra if log or _within_reach(value, data)]
    return StripGroup(tuple(cluster), fit([*data, *near], log=log, pad=0.08), floors)


def _within_reach(value: float, data: Sequence[float]) -> bool:
    reach = VERY_FAR * (_span(data) or abs(data[0]) or 1.0)
    return min(data) - reach <= value <= max(data) + reach


def _clip(scale: AxisScale, value: float) -> float:
    if math.isinf(value):
        return 0.0 if value < 0 else 1.0
    if scale.log and value <= 0:
        return 0.0
    return min(1.0, max(0.0, scale(value)))


def _band(scale: AxisScale, low: float | None, high: float | None, *, height: int) -> Markup:
    if low is None and high is None:
        return Markup("")
    start = 0.0 if low is None else _clip(scale, low)
    stop = 1.0 if high is None else _clip(scale, high)
    if start == stop:
        side = {"x": "0"} if stop == 0 else {"x": "100%", "text_anchor": "end"}
        text = "◂ allowed" if stop == 0 else "allowed ▸"
        return tag("text", text, class_="away", y=height - 4, **side)
    edges = [
        tag("line", class_="edge", x1=percent(at), x2=percent(at), y2="100%")
        for bound, at in ((low, start), (high, stop))
        if bound is not None and 0 < at < 1
    ]
    return join(
        tag("rect", class_="band", x=percent(start), width=percent(max(0.0, stop - start)), height="100%"),
        *edges,
    )


def _bar(scale: AxisScale, low: float | None, high: float | None, *, y: int) -> Markup:
    if low is None or high is None:
        return Markup("")
    line = tag("line", class_="bar", x1=percent(_clip(scale, low)), x2=percent(_clip(scale, high)), y1=y, y2=y)
    return join(line, *_arrows(scale, low, high, y=y))


def _point(scale: AxisScale, value: float, *, y: int) -> Markup:
    if _outside(scale, value):
        return join(*_arrows(scale, value, value, y=y))
    return tag("circle", class_="point", cx=percent(scale(value)), cy=y, r=5)


def _arrows(scale: AxisScale, low: float, high: float, *, y: int) -> list[Markup]:
    arrows = []
    if _outside(scale, low) and _clip(scale, low) == 0:
        arrows.append(tag("text", "◀", class_="beyond", x="0", y=y + 4))
    if _outside(scale, high) and _clip(scale, high) == 1:
        arrows.append(tag("text", "▶", class_="beyond", x="100%", y=y + 4, text_anchor="end"))
    return arrows


def _outside(scale: AxisScale, value: float) -> bool:
    return not scale.draws(value) or not 0 <= scale(value) <= 1


def _dots(scale: AxisScale, values: Sequence[float], *, y: int) -> Markup:
    # Radius and colour come from the style sheet: a large run has tens of thousands of these.
    return tag(
        "g",
        *(tag("circle", cx=percent(scale(v)), cy=y + _jitter(k)) for k, v in enumerate(values)),
        class_="dots-by-seed",
    )


def _floor(scale: AxisScale, floor: Measurement, *, height: int) -> Markup:
    assert floor.value is not None
    if _outside(scale, floor.value):
        return Markup("")
    x = percent(scale(floor.value))
    label = tag("title", short(f"{floor.name}: {pretty(words.number(floor.value))}", 200))
    return tag("line", label, class_="floor", x1=x, x2=x, y1=0, y2=height)


def _jitter(index: int) -> int:
    # A fixed small offset keeps equal values apart; it carries no meaning.
    return (0, -6, 6, -3, 3)[index % 5]
