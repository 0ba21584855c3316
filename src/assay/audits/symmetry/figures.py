"""The pictures of an audit as data: error against angle, depth profile, two precisions, map of edge error."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.audits.symmetry.endtoend import Errors
from assay.audits.symmetry.facts import Facts
from assay.audits.symmetry.localise import Location
from assay.results import Figure, Reference, Series

DOTS = 400
"""Points drawn in a cloud; more say nothing more."""
SMALLEST = 1e-18
"""Where an error of exactly 0 is drawn on a log axis."""


def figures(facts: Facts) -> list[Figure]:
    """Every picture there is data for."""
    found = []
    if facts.angles is not None:
        found.append(_angles(*facts.angles))
    found += [_profile(location) for location in facts.locations.values() if location.places]
    if facts.tests and facts.tests[0].errors.high is not None:
        found.append(_precisions(facts))
    for location in facts.locations.values():
        edge = edge_map(location)
        if edge is not None and facts.broken:
            found.append(_edge_figure(location, edge))
    return found


def edge_map(location: Location) -> Tensor | None:
    """Mean error per pixel at the first inconsistent module, if its output is an image; None otherwise."""
    gap = residual(location)
    if gap is None or gap.ndim < 4 or min(gap.shape[-2:]) < 3:
        return None
    return gap.abs().reshape(-1, *gap.shape[-2:]).mean(dim=0)


def residual(location: Location) -> Tensor | None:
    """h(gx) - rho(g) h(x) at the first inconsistent module of a grid group, [elements, inputs, ...]; None otherwise."""
    place = location.first
    if place is None or place.representation is None or not place.event.tensors:
        return None
    position = next((i for i, event in enumerate(location.here.high) if event.key == place.event.key), None)
    here = place.event.tensors[0][1]
    if position is None or not {"grid", "shift", "crop"} & set(location.elements.parts):
        return None
    there = torch.stack([traced.high[position].tensors[0][1] for traced in location.there])
    try:
        return there - place.representation.act(location.elements, here.expand_as(there))
    except (RuntimeError, IndexError):
        return None


def is_constant(gap: Tensor) -> bool:
    """Whether the error is the same for every input: something was added that has nothing to do with the input."""
    varies = gap - gap.mean(dim=1, keepdim=True)
    limit = math.sqrt(torch.finfo(torch.float64).eps)
    return gap.shape[1] > 1 and float(varies.abs().max()) <= limit * float(gap.abs().max())


def is_ring(edge: Tensor) -> bool:
    """Whether the error lives at the edge: the middle third is exact beside it."""
    height, width = edge.shape
    middle = edge[height // 3 : height - height // 3, width // 3 : width - width // 3]
    border = torch.cat([edge[0], edge[-1], edge[:, 0], edge[:, -1]])
    largest = float(border.max())
    return (
        middle.numel() > 0
        and largest > 0
        and float(middle.max()) <= math.sqrt(torch.finfo(torch.float64).eps) * largest
    )


def _angles(angles: Tensor, errors: list[Errors]) -> Figure:
    degrees = [float(a) * 180 / math.pi for a in angles]
    series = []
    for one in errors:
        worst = torch.stack([one.relative[one.element == i].max() for i in range(len(angles))])
        series.append(Series(name=one.output, x=tuple(degrees), y=tuple(_visible(worst))))
    return Figure(
        key="error-against-angle",
        question="At which angles does it break?",
        x_label="rotation about one axis (degrees)",
        y_label="largest relative error",
        y_scale="log",
        series=tuple(series),
        caption="Dips at multiples of 90 degrees only: the model knows the axes of the grid or frame.",
    )


def _profile(location: Location) -> Figure:
    places = [place for place in location.places if place.event.kind == "exit"]
    steps = tuple(float(i) for i in range(len(places)))
    error = Series(name="error of the best representation", x=steps, y=tuple(max(p.relative, SMALLEST) for p in places))
    floor = Series(name="rounding", x=steps, y=tuple(max(p.floor, SMALLEST) for p in places))
    return Figure(
        key=f"depth-{location.generator.replace(' ', '-')}",
        question=f"Where along the depth does {location.generator} break?",
        x_label="module, in order of completion",
        y_label="relative error",
        y_scale="log",
        series=(error, floor),
        categories=tuple(place.event.label for place in places),
        caption="Float64 errors; what lies above the rounding of the low precision is a break.",
    )


def _precisions(facts: Facts) -> Figure:
    series = []
    for test in facts.tests:
        if test.errors.high is None:
            continue
        step = max(1, len(test.errors.low) // DOTS)
        scale = test.errors.spread or 1.0
        x, y = _visible(test.errors.low[::step] / scale), _visible(test.errors.high[::step] / scale)
        series.append(Series(name=f"{test.generator}, {test.errors.output}", x=tuple(x), y=tuple(y), style="dots"))
    eps = torch.finfo(facts.subject.low_dtype).eps
    return Figure(
        key="two-precisions",
        question="Does the error vanish in float64?",
        x_label="relative error in the low precision",
        y_label="relative error in float64",
        x_scale="log",
        y_scale="log",
        series=tuple(series),
        references=(Reference(value=eps, label="rounding of the low precision"),),
        caption="On the diagonal: a real break. Nine decades below it: rounding. Between: a step in low precision.",
    )


def _edge_figure(location: Location, edge: Tensor) -> Figure:
    return Figure(
        key=f"edge-map-{location.generator.replace(' ', '-')}",
        question=f"Is the error of {location.where} at the edges?",
        kind="heatmap",
        grid=tuple(tuple(float(v) for v in row) for row in edge),
        row_names=tuple(str(i) for i in range(edge.shape[0])),
        categories=tuple(str(i) for i in range(edge.shape[1])),
        caption="Mean absolute error per pixel. A ring points to padding, an even picture to the kernel itself.",
    )


def _visible(values: Tensor) -> list[float]:
    return [max(float(v), SMALLEST) for v in values]
