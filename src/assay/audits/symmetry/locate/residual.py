"""What is left at the first inconsistent module of a grid group, h(gx) - rho(g) h(x), and what its pattern says."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.audits.symmetry.explain.candidates import candidates
from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.locate.localise import Location
from assay.errors import InputError
from assay.probe.rounding import VANISHES


def edge_map(location: Location, group: Group) -> Tensor | None:
    """Mean error per pixel, if the module returns images; that of a representation with a ring, if there is one."""
    maps = [
        gap.abs().reshape(-1, *gap.shape[-2:]).mean(dim=0)
        for gap in residuals(location, group)
        if gap.ndim >= 4 and min(gap.shape[-2:]) >= 3
    ]
    return next((one for one in maps if is_ring(one)), maps[0] if maps else None)


def residuals(location: Location, group: Group) -> Iterator[Tensor]:
    """h(gx) - rho(g) h(x), [elements, inputs, ...], for the representation that fits best and then for the others."""
    place = location.first
    if place is None or place.representation is None or not place.event.tensors:
        return
    position = next((i for i, event in enumerate(location.here.high) if event.key == place.event.key), None)
    here = place.event.tensors[0][1]
    if position is None or not {"grid", "shift", "crop"} & set(location.elements.parts):
        return
    there = torch.stack([traced.high[position].tensors[0][1] for traced in location.there])
    for rep in (place.representation, *candidates(tuple(here.shape), location.elements, group)):
        try:
            yield there - rep.act(location.elements, here.expand_as(there))
        except (InputError, RuntimeError, IndexError):  # a guess that does not fit the shape
            continue


def is_ring(edge: Tensor) -> bool:
    """Whether the error lives at the edge: the middle third is exact beside it."""
    height, width = edge.shape
    middle = edge[height // 3 : height - height // 3, width // 3 : width - width // 3]
    border = torch.cat([edge[0], edge[-1], edge[:, 0], edge[:, -1]])
    largest = float(border.max())
    return middle.numel() > 0 and largest > 0 and float(middle.max()) <= VANISHES * largest
