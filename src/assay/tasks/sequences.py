"""Sequence tasks: tokens in, tokens out, one target per position; the test set is 10,000 sequences never trained on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from assay.errors import expected
from assay.protocols import Split
from assay.seeding import torch_generator
from assay.tasks.base import ArrayTask, check_count, from_splits

if TYPE_CHECKING:
    from torch import Tensor


def reversal(
    seed: int = 0, *, length: int = 8, vocabulary: int = 10, train: int = 20_000, validation: int = 2_000,
    test: int = 10_000,
) -> ArrayTask:
    """Write the sequence backwards: ``y_i = x_{L-1-i}``. Pure routing: position alone decides what to look at.

    >>> task = reversal(train=10, validation=2, test=3)
    >>> bool((task.train.y == task.train.x.flip(1)).all())
    True
    """
    return _make(
        "reversal", lambda x: x.flip(1), seed=seed, length=length, vocabulary=vocabulary,
        train=train, validation=validation, test=test,
    )


def copy(
    seed: int = 0, *, length: int = 8, vocabulary: int = 10, train: int = 20_000, validation: int = 2_000,
    test: int = 10_000,
) -> ArrayTask:
    """Write the sequence again: ``y_i = x_i``. The easiest sequence task; a model that fails here is broken."""
    return _make(
        "copy", lambda x: x.clone(), seed=seed, length=length, vocabulary=vocabulary,
        train=train, validation=validation, test=test,
    )


def mirror_sum(
    seed: int = 0, *, length: int = 8, vocabulary: int = 10, train: int = 20_000, validation: int = 2_000,
    test: int = 10_000,
) -> ArrayTask:
    """``y_i = (x_i + x_{L-1-i}) mod vocabulary``: routing plus arithmetic on two tokens; no linear map solves it.

    >>> task = mirror_sum(train=10, validation=2, test=3)
    >>> bool((task.test.y == (task.test.x + task.test.x.flip(1)) % 10).all())
    True
    """
    def answer(x: Tensor) -> Tensor:
        return (x + x.flip(1)) % vocabulary

    return _make(
        "mirror-sum", answer, seed=seed, length=length, vocabulary=vocabulary,
        train=train, validation=validation, test=test,
    )


def _make(
    name: str, answer: Callable[[Tensor], Tensor], *, seed: int, length: int, vocabulary: int,
    train: int, validation: int, test: int,
) -> ArrayTask:
    import torch

    check_count("length", length, low=1)
    check_count("vocabulary", vocabulary, low=2)
    sizes = [check_count(part, size, low=1)
             for part, size in (("train", train), ("validation", validation), ("test", test))]
    if vocabulary**length < 2 * sum(sizes):
        raise expected(f"at least {2 * sum(sizes):,} different sequences, twice as many as are asked for",
                       given=f"{vocabulary} ** {length} = {vocabulary**length:,}",
                       do="make the sequences longer or ask for fewer")
    inputs = _distinct(name, seed, length, vocabulary=vocabulary, count=sum(sizes))
    splits = [Split(x.contiguous(), answer(x).contiguous()) for x in torch.split(inputs, sizes)]
    return from_splits(name, vocabulary, splits, seed=seed,
                       note="no sequence occurs twice, within or across train, validation and test")


def _distinct(name: str, seed: int, length: int, *, vocabulary: int, count: int) -> Tensor:
    """``count`` different random sequences, in random order: a repeated one would leak from train into test."""
    import torch

    generator = torch_generator(seed, name, "sequences")
    found = torch.empty(0, length, dtype=torch.int64)
    while len(found) < count:
        fresh = torch.randint(vocabulary, (count, length), generator=generator)
        found = torch.unique(torch.cat([found, fresh]), dim=0)
    return found[torch.randperm(len(found), generator=generator)[:count]]
