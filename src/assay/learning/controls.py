"""Learners whose answer is known beforehand: labels without meaning, a gradient uphill, a body that never learns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from assay.protocols import Rule, Split
from assay.seeding import torch_generator

if TYPE_CHECKING:
    from torch import Tensor, nn

AnyTask = TypeVar("AnyTask")


def shuffle_labels(task: AnyTask, *, seed: int) -> AnyTask:
    """The same task with its training targets in random order: nothing can be learned from it."""
    import torch

    given: Any = task
    order = torch.randperm(len(given.train), generator=torch_generator(seed, "shuffled labels"))
    shuffled: AnyTask = replace(given, train=Split(given.train.x, given.train.y[order]))
    return shuffled


@dataclass(frozen=True)
class Flipped:
    """A rule whose gradient points uphill, except that of the parameters ``spared(model)`` names."""

    rule: Rule
    spared: Callable[[nn.Module], Iterable[nn.Parameter]] | None = None

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The wrapped rule's loss; gradients reversed."""
        loss = self.rule.backward(model, x, y)
        spared = {id(parameter) for parameter in self.spared(model)} if self.spared else set()
        for parameter in model.parameters():
            if parameter.grad is not None and id(parameter) not in spared:
                parameter.grad.neg_()
        return loss
