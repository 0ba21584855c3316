"""CIFAR-10 in memory, and its crop and flip augmentation as one gather per batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from assay.tasks.files import data_root, missing

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
PAD = 4
RECORD = 1 + 3072


@dataclass(frozen=True)
class Cifar:
    """Pixels as bytes, (n, 3, 32, 32), and labels; ``padded`` holds the training pixels with a border of zeros."""

    padded: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor

    def batch(self, index: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Training images ``index``, each shifted by up to 4 pixels and mirrored with probability 1/2, normalised."""
        pixels, y = self.augmented(index, generator)
        return normalised(pixels), y

    def augmented(self, index: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The same images as bytes."""
        count, side = len(index), 32 + 2 * PAD
        shift = torch.randint(2 * PAD + 1, (2, count, 1), generator=generator)
        mirror = torch.randint(2, (count, 1), generator=generator).bool()
        along = torch.arange(32)
        rows = (along + shift[0]) * side
        columns = torch.where(mirror, 31 - along, along) + shift[1]
        corner = index[:, None] * (3 * side * side) + torch.arange(3) * (side * side)
        flat = corner[:, :, None, None] + (rows[:, :, None] + columns[:, None, :])[:, None]
        return self.padded.view(-1).take(flat), self.y[index]


def load(folder: str | None = None, *, classes: int = 10) -> Cifar:
    """CIFAR-10 from the binary batches under ``folder`` (default: where ``assay data fetch`` puts it)."""
    base = data_root(folder) / "cifar-10-batches-bin"
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    for name in names:
        if not (base / name).is_file():
            raise missing("cifar10", name, root=folder)
    parts = [np.fromfile(base / name, dtype=np.uint8).reshape(-1, RECORD) for name in names]
    train, test = torch.from_numpy(np.concatenate(parts[:-1])), torch.from_numpy(parts[-1])
    pixels = train[:, 1:].reshape(-1, 3, 32, 32)
    # Zero padding of the normalised picture is the mean colour, not black.
    mean = torch.tensor(MEAN).mul(255).round().to(torch.uint8)[None, :, None, None]
    padded = mean.expand(len(train), 3, 32 + 2 * PAD, 32 + 2 * PAD).contiguous()
    padded[:, :, PAD:-PAD, PAD:-PAD] = pixels
    return Cifar(padded, train[:, 0].long(), test[:, 1:].reshape(-1, 3, 32, 32).clone(), test[:, 0].long())


def normalised(pixels: Tensor) -> Tensor:
    """Bytes as floats with zero mean and unit variance per channel."""
    mean, std = (torch.tensor(v).mul(255)[None, :, None, None] for v in (MEAN, STD))
    return pixels.float().sub_(mean).div_(std)
