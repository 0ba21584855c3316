"""Pictures: digits (embedded), MNIST, Fashion-MNIST and CIFAR-10 (canonical files)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from assay.protocols import Split
from assay.seeding import derive, torch_generator
from assay.tasks.base import ArrayTask, check_count, digest, from_splits
from assay.tasks.files import DATASETS, Images, read_images

if TYPE_CHECKING:
    from torch import Tensor

VALIDATION_ITEMS = 5_000
"""Items the seed sets aside from an official training set; all the others are trained on."""


def digits(seed: int = 0, *, flat: bool = True) -> ArrayTask:
    """1,797 digits of 8 x 8 grey values in [0, 1]: 1,257 train, 180 validation, 360 test, stratified by class.

    There is no official split, so the seed draws all three parts: seeds measure the variance of the split too.
    """
    import torch
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16.0, dtype=torch.float32), torch.tensor(labels, dtype=torch.int64)
    x = x if flat else x.reshape(-1, 1, 8, 8)
    state = derive(seed, "digits", "split") % 2**32
    rest, test = train_test_split(range(len(y)), test_size=360, stratify=y, random_state=state)
    train, validation = train_test_split(rest, test_size=180, stratify=y[rest], random_state=state)
    splits = [Split(x[part], y[part]) for part in (train, validation, test)]
    return from_splits("digits", 10, splits, seed=seed, note="the seed draws train, validation and test")


def mnist(
    seed: int = 0, *, root: str | Path | None = None, flat: bool = True, validation: int = VALIDATION_ITEMS
) -> ArrayTask:
    """MNIST, grey values in [0, 1]: 55,000 train, 5,000 validation (drawn by the seed), the official 10,000 test."""
    return _official("mnist", seed=seed, root=root, flat=flat, validation=validation, standardise=False)


def fashion_mnist(
    seed: int = 0, *, root: str | Path | None = None, flat: bool = True, validation: int = VALIDATION_ITEMS
) -> ArrayTask:
    """Fashion-MNIST, grey values in [0, 1]: 55,000 train, 5,000 validation, the official 10,000 test."""
    return _official("fashion-mnist", seed=seed, root=root, flat=flat, validation=validation, standardise=False)


def cifar10(
    seed: int = 0, *, root: str | Path | None = None, flat: bool = False, validation: int = VALIDATION_ITEMS,
    standardise: bool = True,
) -> ArrayTask:
    """CIFAR-10, channels standardised over the training set: 45,000 train, 5,000 validation, official 10,000 test."""
    return _official("cifar10", seed=seed, root=root, flat=flat, validation=validation, standardise=standardise)


def _official(
    name: str, *, seed: int, root: str | Path | None, flat: bool, validation: int, standardise: bool
) -> ArrayTask:
    import torch

    images = read_images(name, root=root)
    check_count("validation", validation, low=1, high=len(images.train_labels) - 1)
    train_x, test_x = _as_floats(images, flat=flat, standardise=standardise)
    train_y, test_y = (torch.from_numpy(labels).long() for labels in (images.train_labels, images.test_labels))
    order = torch.randperm(len(train_y), generator=torch_generator(seed, name, "split"))
    held, kept = order[:validation], order[validation:]
    # The files are already known by their hashes; hashing hundreds of megabytes of floats again would tell no more.
    raw = [file.sha256 for file in DATASETS[name].files]
    recipe = f"seed={seed} validation={validation} flat={flat} standardise={standardise}"
    return ArrayTask(
        name, 10, Split(train_x[kept], train_y[kept]), Split(train_x[held], train_y[held]), Split(test_x, test_y),
        data_hash=digest(name, *raw, recipe), seed=seed,
        note="official test set; the seed draws the validation items from the official training set",
    )


@lru_cache(maxsize=2)
def _as_floats(images: Images, *, flat: bool, standardise: bool) -> tuple[Tensor, Tensor]:
    """Train and test pixels as float32 in [0, 1], or per channel with mean 0 and deviation 1 over the training set."""
    import torch

    train, test = (torch.from_numpy(pixels).float().div_(255) for pixels in (images.train_pixels, images.test_pixels))
    if standardise:
        mean, spread = train.mean((0, 2, 3), keepdim=True), train.std((0, 2, 3), keepdim=True)
        train, test = train.sub_(mean).div_(spread), test.sub_(mean).div_(spread)
    return (train.flatten(1), test.flatten(1)) if flat else (train, test)
