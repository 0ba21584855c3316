"""Which items of a test set a model gets right, as a record keeps it: for inference over seeds and items."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from assay.stats.answers import pack, pack_items

if TYPE_CHECKING:
    from torch import nn

    from assay.protocols import Split

NAMED = 2000
"""Test sets up to this size name their items, so that a seed may draw them; larger ones are taken to be one set."""


def answered(model: nn.Module, split: Split, *, rule: Any = None) -> dict[str, Any]:
    """What ``stats.recorded_answers`` reads: the answers, one bit an item, and which test set they answer.

    Nothing where an item has no single answer that is right or wrong (a regression, a sequence). An item is named by a
    digest of its input and target, so that the same item drawn by two seeds is known as one.
    A ``rule`` with an inference of its own answers in the model's place.
    """
    import torch

    if split.y.ndim != 1 or split.y.is_floating_point():
        return {}
    from assay.learning.device import on_device
    from assay.learning.training import EVALUATION_ROWS as ROWS
    from assay.learning.training import outputs_of
    from assay.probe.copies import device_of

    split = on_device(split, device_of(model))
    with torch.no_grad():
        # In the batches of ``evaluate``, so that the answers are those of the accuracy beside them.
        batches = zip(torch.split(split.x, ROWS), torch.split(split.y, ROWS), strict=True)
        right = [outputs_of(model, x, rule).argmax(-1).eq(y) for x, y in batches]
    whole = hashlib.sha256()
    names = []
    for x, y in zip(split.x.detach().cpu(), split.y.detach().cpu(), strict=True):
        item = hashlib.blake2b(x.contiguous().numpy().tobytes() + y.numpy().tobytes(), digest_size=8).digest()
        whole.update(item)
        names.append(int.from_bytes(item, "little"))
    correct = torch.cat(right).tolist()
    distinct = len(set(names)) == len(names)
    return {
        "correct": pack(correct),
        "items": len(correct),
        "test_set": whole.hexdigest()[:16],
        "test_items": pack_items(names) if distinct and len(names) <= NAMED else None,
    }
