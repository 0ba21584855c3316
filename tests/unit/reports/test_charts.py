"""Pictures that can be read without colour, with every label telling something."""

from __future__ import annotations

import base64
import re
import zlib
from itertools import pairwise

import pytest

from assay.reports.charts import strips
from assay.reports.charts.figure import draw
from assay.reports.charts.scale import fit
from assay.reports.charts.svg import distinct
from assay.results import Figure, Measurement, Panel, Reference, Region, Series


def lines(*names: str) -> Figure:
    series = tuple(Series(name=name, x=(0, 1, 2), y=(1.0 + k, 2.0, 3.0 + k)) for k, name in enumerate(names))
    return Figure(key="k", question="q", series=series)


def test_lines_are_named_at_their_ends_and_differ_without_colour() -> None:
    drawn = draw(lines("eqprop", "backprop", "fa", "dfa"), identifier="x")
    assert re.findall(r'class="end s\d"[^>]*>([^<]*)', drawn) != []
    assert {"eqprop", "backprop", "fa", "dfa"} <= set(re.findall(r">([a-z]+)</text>", drawn))
    assert drawn.count("hollow") == 2, "the third and fourth line have hollow marks"


def test_names_at_the_ends_do_not_touch() -> None:
    figure = Figure(
        key="k",
        question="q",
        series=tuple(Series(name=f"seed {k}", x=(0, 1), y=(1.0, 2.0 + k / 1000)) for k in range(6)),
    )
    heights = sorted(
        float(y) for y in re.findall(r'class="end s\d" x="[\d.]+" y="([\d.]+)"', draw(figure, identifier="x"))
    )
    assert len(heights) == 6 and all(b - a >= 11.9 for a, b in pairwise(heights))


def test_cut_names_stay_different() -> None:
    names = [f"encoder.layers.{k}.attention" for k in range(12)]
    assert len(set(distinct(names, 5))) == 12
    assert distinct(["a", "b"], 5) == ["a", "b"]
    assert len(set(distinct(["x" * 30 + str(k) + "y" * 30 for k in range(3)], 4))) == 3


def test_an_exact_zero_on_a_logarithmic_axis_has_its_own_place_and_tick() -> None:
    scale = fit([0.0, 1e-7, 1e-3], log=True)
    assert scale.draws(0.0) and 0 < scale(0.0) < scale(1e-7) < scale(1e-3) < 1
    assert scale.labelled(5)[0] == (0.0, "0")
    assert not fit([1e-7, 1e-3], log=True).draws(0.0)
    figure = Figure(key="k", question="q", y_scale="log", series=(Series(name="s", x=(0, 1), y=(0.0, 1e-7)),))
    assert ">0</text>" in draw(figure, identifier="x")


def test_a_margin_makes_a_heat_map_diverge_around_zero_with_what_lies_beyond_framed() -> None:
    figure = Figure(
        key="k",
        question="q",
        kind="heatmap",
        grid=((0.2, -3.4),),
        categories=("a", "b"),
        row_names=("task",),
        margin=1.0,
        notes=(("PASS", "FAIL"),),
    )
    drawn = draw(figure, identifier="x")
    assert drawn.count("beyond-margin") == 1 and "beyond ±1" in drawn
    assert ">PASS</text>" in drawn and ">FAIL</text>" in drawn
    assert re.search(r'class="cell d4', drawn) and re.search(r'class="cell d0', drawn)


def test_the_diagonal_a_caption_speaks_of_is_drawn() -> None:
    figure = Figure(
        key="k",
        question="q",
        x_scale="log",
        y_scale="log",
        references=(Reference(value=1, label="equal", axis="diagonal"),),
        series=(Series(name="s", x=(1e-6, 1e-2), y=(1e-6, 1e-2), style="dots"),),
    )
    assert draw(figure, identifier="x").count('class="reference"') == 1


def test_pictures_side_by_side_are_real_png_files_on_one_scale() -> None:
    figure = Figure(
        key="k",
        question="q",
        kind="panels",
        panels=(
            Panel(name="input", grid=((1.0, -1.0), (0.0, 0.5))),
            Panel(name="difference", grid=((0.0, 0.0), (0.0, 0.0))),
        ),
    )
    pictures = re.findall(r"data:image/png;base64,([^\"]+)", draw(figure, identifier="x"))
    raw = [base64.b64decode(text) for text in pictures]
    assert len(raw) == 2 and all(data.startswith(b"\x89PNG") for data in raw)
    pixels = zlib.decompress(raw[1][raw[1].index(b"IDAT") + 4 : -16])
    assert len(set(pixels[1:7])) <= 2, "a difference of zero is blank, whatever the other pictures show"


@pytest.mark.parametrize("value", [0.9, 0.2, 0.0445, 1e-5])
def test_a_number_far_below_its_limit_is_drawn_with_the_limit(value: float) -> None:
    measurement = Measurement(name="error / allowed", value=value, region=Region(high=1.0))
    drawn = strips.strip(measurement, strips.groups([measurement])[0], [])
    assert drawn.count('class="edge"') == 1 and drawn.count('class="point"') == 1
