"""The pictures of an audit as data: by eye, error against angle, depth profile, two precisions, map of edge error."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from assay.audits.symmetry.facts import Facts
from assay.audits.symmetry.locate.localise import Location
from assay.audits.symmetry.locate.residual import edge_map
from assay.audits.symmetry.measure.endtoend import Errors
from assay.audits.symmetry.present.by_eye import by_eye
from assay.results import Figure, Reference, Series

DOTS = 400
"""Points drawn in a cloud; more say nothing more."""


def figures(facts: Facts) -> list[Figure]:
    """Every picture there is data for."""
    eye = by_eye(facts)
    found = [eye] if eye is not None else []
    if facts.forward.angles is not None:
        found.append(_angles(*facts.forward.angles))
    found += [_profile(location) for location in facts.places.locations.values() if location.places]
    if facts.tests and facts.tests[0].errors.high is not None:
        found.append(_precisions(facts))
    for location in facts.places.locations.values():
        edge = edge_map(location, location.group)
        if edge is not None and facts.broken:
            found.append(_edge_figure(location, edge))
    return found


def _angles(angles: Tensor, errors: list[Errors]) -> Figure:
    degrees = [float(a) * 180 / math.pi for a in angles]
    series = []
    for one in errors:
        worst = torch.stack([one.relative[one.element == i].max() for i in range(len(angles))])
        series.append(Series(name=one.output, x=tuple(degrees), y=tuple(worst.tolist())))
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
    error = Series(name="error", x=steps, y=tuple(p.relative for p in places))
    floor = Series(name="rounding", x=steps, y=tuple(p.floor for p in places))
    return Figure(
        key=f"depth-{location.generator.replace(' ', '-')}",
        question=f"Where along the depth does {location.generator} break?",
        x_label="module, in order of completion",
        y_label="relative error",
        y_scale="log",
        series=(error, floor),
        categories=tuple(place.event.label for place in places),
        caption="Float64 errors under the representation that fits best; what lies above the rounding of the low "
        "precision is a break.",
    )


def _precisions(facts: Facts) -> Figure:
    series = []
    for test in facts.tests:
        if test.errors.high is None:
            continue
        errors, step = test.errors, max(1, len(test.errors.low) // DOTS)
        x, y = (errors.scaled(one[::step]).tolist() for one in (errors.low, errors.best))
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
        references=(
            Reference(value=eps, label="rounding of the low precision"),
            Reference(value=1.0, label="equal in both", axis="diagonal"),
        ),
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
