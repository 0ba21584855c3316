"""Pictures beside each other, as one small PNG each: a feature map of 64 by 64 would be 4,096 rectangles otherwise."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence

from markupsafe import Markup

from assay.reports.charts.svg import join, pretty, short, tag
from assay.reports.words import number
from assay.results import Figure, Panel

WIDTH, GAP, TOP, BELOW = 460, 14, 22, 24
LEAST_HEIGHT = 28
"""A vector is one row of pixels; thinner than this it is a line."""
BLUE, WHITE, ORANGE = (28, 90, 146), (247, 247, 245), (184, 92, 0)


def panels(figure: Figure) -> tuple[int, Markup]:
    """The height of the drawing and its marks: blue below zero, orange above; one row for the panels of one scale."""
    shown = [panel for panel in figure.panels if panel.grid and panel.grid[0]]
    if not shown:
        return 60, tag("text", "no pictures", class_="tick", x=WIDTH / 2, y=34, text_anchor="middle")
    rows = [[panel for panel in shown if panel.scale == scale] for scale in dict.fromkeys(p.scale for p in shown)]
    most = max(len(row) for row in rows)
    side = (WIDTH - GAP * (most - 1)) / most
    marks, top = [], 0.0
    for row in rows:
        limit = _limit(row)
        for k, panel in enumerate(row):
            marks.append(_panel(panel, limit, x=k * (side + GAP), top=top, side=side))
        top += TOP + max(_height(panel, side) for panel in row) + BELOW
    return round(top), join(*marks)


def _panel(panel: Panel, limit: float, *, x: float, top: float, side: float) -> Markup:
    picture = f"data:image/png;base64,{base64.b64encode(_png(panel.grid, limit)).decode()}"
    place = {"x": x, "y": top + TOP, "width": side, "height": _height(panel, side)}
    return join(
        tag("text", short(panel.name, max(4, int(side / 6))), class_="tick", x=x, y=top + 14),
        tag("image", href=picture, preserveAspectRatio="none", class_="panel", **place),
        tag("rect", class_="panel-edge", **place),
        tag("text", f"largest {_largest(panel)}", class_="tick", x=x, y=top + TOP + place["height"] + 15),
    )


def _height(panel: Panel, side: float) -> float:
    return min(1.5 * side, max(LEAST_HEIGHT, side * len(panel.grid) / len(panel.grid[0])))


def _limit(panels: Sequence[Panel]) -> float:
    values = [value for panel in panels for row in panel.grid for value in row if math.isfinite(value)]
    return max((abs(value) for value in values), default=1.0) or 1.0


def _largest(panel: Panel) -> str:
    return pretty(number(max((abs(v) for row in panel.grid for v in row if math.isfinite(v)), default=0.0)))


def _png(grid: Sequence[Sequence[float]], limit: float) -> bytes:
    width = max(len(row) for row in grid)
    rows = b"".join(
        b"\0" + b"".join(_colour(row[c] / limit if c < len(row) else math.nan) for c in range(width)) for row in grid
    )
    head = struct.pack(">IIBBBBB", width, len(grid), 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _colour(share: float) -> bytes:
    if not math.isfinite(share):
        return bytes((160, 160, 160))
    end = ORANGE if share > 0 else BLUE
    weight = min(1.0, abs(share))
    return bytes(round(a + (b - a) * weight) for a, b in zip(WHITE, end, strict=True))
