"""The data of tables and pictures; renderers draw them, nothing here does."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from assay.frozen import Frozen, Scalar


class Table(Frozen):
    """Rows for a person to read. Columns are names; numbers stay numbers so that every renderer can sort them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...]
    note: str = ""

    @model_validator(mode="after")
    def _rows_fit_columns(self) -> Self:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: a row of {len(row)} cells under {len(self.columns)} columns")
        return self


class Series(Frozen):
    """One line, cloud, band or set of bars of a figure; ``low`` and ``high`` are its band, if it has one."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    style: Literal["line", "dots", "bars"] = "line"

    @model_validator(mode="after")
    def _same_lengths(self) -> Self:
        lengths = {len(self.x), len(self.y), *(len(band) for band in (self.low, self.high) if band)}
        if len(lengths) != 1:
            raise ValueError(f"series {self.name!r}: x, y, low and high have different lengths")
        return self


class Reference(Frozen):
    """A labelled line across a figure: a limit, chance level, noise floor; ``diagonal`` is y = value * x."""

    value: float
    label: str
    axis: Literal["x", "y", "diagonal"] = "y"


class Panel(Frozen):
    """One small picture of numbers among others: an image, a feature map, a difference.

    Panels that name the same ``scale`` are coloured alike.
    """

    name: str
    grid: tuple[tuple[float, ...], ...]
    scale: str = ""


class Figure(Frozen):
    """The data of a picture; ``question`` is its title and what it answers.

    ``xy`` draws ``series``; ``slopes`` draws one line per seed between the arms named in ``categories``; ``heatmap``
    draws ``grid`` (rows by ``row_names``, columns by ``categories``), with a word of ``notes`` in each cell and the
    values beyond ``margin`` on either side of 0 framed; ``panels`` shows pictures beside each other.
    ``categories`` name integer x positions. On a logarithmic axis an exact zero has a place of its own at the end.
    """

    key: str
    question: str
    kind: Literal["xy", "slopes", "heatmap", "panels"] = "xy"
    x_label: str = ""
    y_label: str = ""
    x_scale: Literal["linear", "log"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"
    series: tuple[Series, ...] = ()
    references: tuple[Reference, ...] = ()
    categories: tuple[str, ...] = ()
    row_names: tuple[str, ...] = ()
    grid: tuple[tuple[float, ...], ...] = ()
    notes: tuple[tuple[str, ...], ...] = ()
    margin: float | None = None
    panels: tuple[Panel, ...] = ()
    caption: str = ""
