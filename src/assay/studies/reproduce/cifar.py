"""CIFAR-10 as the protocol trains on it: bytes in memory, and crop and flip as one gather per batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.protocols import Split
from assay.tasks.files import read_images

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
PAD = 4


@dataclass(frozen=True)
class Cifar:
    """A task for ``assay.train``: training pictures are bytes with a border, (n, 3, 40, 40), for ``augmented`` to cut.

    There is no validation part: the protocol chooses nothing.
    """

    train: Split
    test: Split
    name: str = "cifar10"
    classes: int = 10
    data_hash: str = ""

    @property
    def validation(self) -> Split:
        return Split(self.test.x[:0], self.test.y[:0])


def load(folder: str | None = None) -> Cifar:
    """CIFAR-10 from the binary batches under ``folder`` (default: where ``assay data fetch`` puts it)."""
    images = read_images("cifar10", root=folder, checked=False)
    train, test = torch.from_numpy(images.train_pixels), torch.from_numpy(images.test_pixels)
    # Zero padding of the normalised picture is the mean colour, not black.
    mean = torch.tensor(MEAN).mul(255).round().to(torch.uint8)[None, :, None, None]
    padded = mean.expand(len(train), 3, 32 + 2 * PAD, 32 + 2 * PAD).contiguous()
    padded[:, :, PAD:-PAD, PAD:-PAD] = train
    labels = (torch.from_numpy(part).long() for part in (images.train_labels, images.test_labels))
    return Cifar(Split(padded, next(labels)), Split(normalised(test), next(labels)))


def augmented(padded: Tensor, generator: torch.Generator) -> Tensor:
    """Training pictures, each shifted by up to 4 pixels and mirrored with probability 1/2, normalised."""
    return normalised(cut(padded, generator))


def cut(padded: Tensor, generator: torch.Generator) -> Tensor:
    """The same as bytes."""
    count, side = len(padded), 32 + 2 * PAD
    shift = torch.randint(2 * PAD + 1, (2, count, 1), generator=generator)
    mirror = torch.randint(2, (count, 1), generator=generator).bool()
    along = torch.arange(32)
    rows = (along + shift[0]) * side
    columns = torch.where(mirror, 31 - along, along) + shift[1]
    corner = torch.arange(count)[:, None] * (3 * side * side) + torch.arange(3) * (side * side)
    flat = corner[:, :, None, None] + (rows[:, :, None] + columns[:, None, :])[:, None]
    return padded.reshape(-1).take(flat.to(padded.device))


def unit_range(pixels: Tensor) -> Tensor:
    """Normalised pictures back as floats from 0 to 1."""
    mean, std = (torch.tensor(v, dtype=pixels.dtype)[None, :, None, None] for v in (MEAN, STD))
    return pixels * std + mean


def normalised(pixels: Tensor) -> Tensor:
    """Bytes as floats with zero mean and unit variance per channel."""
    mean, std = (torch.tensor(v, device=pixels.device).mul(255)[None, :, None, None] for v in (MEAN, STD))
    return pixels.float().sub_(mean).div_(std)
