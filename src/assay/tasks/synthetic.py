"""Generated tasks that need no file and whose difficulty is a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from assay.errors import expected
from assay.protocols import Split
from assay.seeding import torch_generator
from assay.tasks.base import ArrayTask, check_count, from_splits

if TYPE_CHECKING:
    from torch import Tensor


def stripes(
    seed: int = 0, *, classes: int = 4, size: int = 12, noise: float = 1.0, train: int = 4_000, validation: int = 500,
    test: int = 1_000, flat: bool = True,
) -> ArrayTask:
    """Noisy square pictures of stripes; the class is the direction, phase and wavelength are random.

    The random phase makes every class mean zero, so no linear map beats chance by much: pixels must be combined.
    """
    check_count("classes", classes, low=2, high=16)
    check_count("size", size, low=4)
    _check_positive("noise", noise, allow_zero=True)
    return _make("stripes", seed, classes, sizes=(train, validation, test),
                 draw=lambda y, part: _stripes(y, classes, size=size, noise=noise, seed=seed, part=part, flat=flat))


def blobs(
    seed: int = 0, *, classes: int = 4, width: int = 16, separation: float = 3.0, train: int = 2_000,
    validation: int = 500, test: int = 1_000,
) -> ArrayTask:
    """Unit Gaussian clouds around random class centres of norm ``separation``; a linear map is the best there is."""
    check_count("classes", classes, low=2)
    check_count("width", width, low=1)
    _check_positive("separation", separation, allow_zero=True)
    import torch

    centres = torch.randn(classes, width, generator=torch_generator(seed, "blobs", "centres"))
    centres = separation * centres / centres.norm(dim=1, keepdim=True)

    def draw(y: Tensor, part: str) -> Tensor:
        noise: Tensor = torch.randn(len(y), width, generator=torch_generator(seed, "blobs", part, "noise"))
        return noise.add_(centres[y])

    return _make("blobs", seed, classes, sizes=(train, validation, test), draw=draw)


def _make(
    name: str, seed: int, classes: int, *, sizes: tuple[int, int, int], draw: Callable[[Tensor, str], Tensor]
) -> ArrayTask:
    import torch

    splits = []
    for part, size in zip(("train", "validation", "test"), sizes, strict=True):
        check_count(part, size, low=1)
        y = torch.randint(classes, (size,), generator=torch_generator(seed, name, part, "labels"))
        splits.append(Split(draw(y, part), y))
    return from_splits(name, classes, splits, seed=seed)


def _stripes(y: Tensor, classes: int, *, size: int, noise: float, seed: int, part: str, flat: bool) -> Tensor:
    import torch

    generator = torch_generator(seed, "stripes", part, "pictures")
    angle = y * torch.pi / classes
    phase = 2 * torch.pi * torch.rand(len(y), generator=generator)
    frequency = 2 * torch.pi / (3 + 2 * torch.rand(len(y), generator=generator))
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    along = angle.cos()[:, None, None] * columns + angle.sin()[:, None, None] * rows
    clean = torch.sin(frequency[:, None, None] * along + phase[:, None, None])
    pictures = clean + noise * torch.randn(len(y), size, size, generator=generator)
    return pictures.flatten(1) if flat else pictures[:, None]


def _check_positive(name: str, value: float, *, allow_zero: bool) -> None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and (value > 0 or (allow_zero and value == 0))
    if not fits:
        raise expected(f"{name} to be a number {'>= 0' if allow_zero else '> 0'}", given=repr(value))
