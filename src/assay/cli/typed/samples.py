"""Example inputs for an audit: those that were named, those of a shape, or ``sample`` beside the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.typed.paths import as_module_path
from assay.cli.typed.subjects import load
from assay.errors import InputError, expected

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SamplePath = Annotated[
    str | None,
    typer.Option(help="pkg.module:name or file.py:name of example inputs; by default `sample` beside the model."),
]
Shape = Annotated[
    str | None, typer.Option(help="Random inputs of this shape instead, batch axis first: 1,3,32,32.", metavar="N,N,..")
]


def sample_of(sample: str | None, shape: str | None, *neighbours: str) -> Any:
    """Example inputs: what ``sample`` names, numbers of a ``shape``, or ``sample`` in the module of a neighbour."""
    if sample is not None and shape is not None:
        raise expected("either --sample or --shape", given="both")
    if sample is not None:
        return load(sample)
    if shape is not None:
        return of_shape(shape)
    place = sample_place(*neighbours)
    if place is None:
        raise InputError(
            f"expected example inputs; {neighbours[0].rpartition(':')[0]} has no `sample`. Write `sample = "
            "torch.randn(16, 3, 32, 32)` beside the model, name some with --sample file.py:name, or give "
            "--shape 1,3,32,32"
        )
    return load(place)


def sample_place(*neighbours: str) -> str | None:
    """Where ``sample`` stands: the first of the modules of these paths that has one."""
    return beside("sample", *neighbours)


def beside(name: str, *neighbours: str) -> str | None:
    """``module:name`` for the first of the modules of these paths that holds ``name``."""
    from assay.learning.resolve import imported

    for path in neighbours:
        home, _, known = as_module_path(path).rpartition(":")
        imported(f"{home}:{known}")  # an error in the module itself is told as such
        try:
            imported(f"{home}:{name}")
        except InputError:
            continue
        return f"{home}:{name}"
    return None


def of_shape(text: str) -> Any:
    """A function that draws normal numbers of this shape, as many rows as an audit asks for.

    >>> import torch
    >>> of_shape("1,3,8,8")(4, torch.Generator()).shape
    torch.Size([4, 3, 8, 8])
    """
    try:
        sizes = [int(part) for part in text.replace("x", ",").split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise expected("--shape of positive whole numbers, batch axis first", given=repr(text), do="such as 1,3,32,32")

    def draw(count: int, generator: torch.Generator) -> Tensor:
        import torch

        return torch.randn(count, *sizes[1:], generator=generator)

    return draw
