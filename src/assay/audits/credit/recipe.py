"""Train the baselines of the depth check in this process: the rule, backprop, frozen blocks and the depth ladder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from assay.audits.credit.depth import Baselines
from assay.audits.credit.equilibrium import layers_at_rest
from assay.errors import expected
from assay.learning.training import outputs_of, train
from assay.probe.blocks import discover_blocks, evaluating
from assay.protocols import EquilibriumModel, Rule, Task
from assay.rules.backprop import Backprop


@dataclass(frozen=True)
class Recipe:
    """How to train one arm: the same architecture, data and settings for every rule.

    ``build(seed)`` makes a fresh model and ``rule(model, seed)`` the rule under audit. ``ladder`` lists how many of the
    last blocks learn in further arms; ``shallow`` adds one whose blocks are taken out. ``options`` go to
    ``assay.train`` (learning_rate, batch_size, optimiser, ...).
    """

    build: Callable[[int], nn.Module]
    rule: Callable[[nn.Module, int], Rule]
    task: Task
    epochs: int
    seeds: Sequence[int] = (0, 1, 2)
    blocks: str | None = None
    ladder: Sequence[int] = ()
    shallow: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.seeds:
            raise expected("at least one seed", given="seeds=()")

    def run(self) -> Baselines:
        """Train every arm; minutes rather than seconds, so the command line runs arms as cells instead."""
        arms: dict[str, dict[int, list[bool]]] = {"rule": {}, "backprop": {}, "frozen": {}}
        ladder: dict[str, dict[int, dict[int, list[bool]]]] = {}
        for seed in self.seeds:
            arms["rule"][seed] = self.arm(seed, "rule")
            arms["backprop"][seed] = self.arm(seed, "backprop")
            arms["frozen"][seed] = self.arm(seed, "backprop", trainable=0)
            if self.shallow:
                arms.setdefault("shallow", {})[seed] = self.arm(seed, "backprop", shallow=True)
            for count in self.ladder:
                for arm in ("rule", "backprop"):
                    ladder.setdefault(arm, {}).setdefault(count, {})[seed] = self.arm(seed, arm, trainable=count)
        return Baselines(arms, ladder)

    def arm(self, seed: int, arm: str, *, trainable: int | None = None, shallow: bool = False) -> list[bool]:
        """Which test items one arm gets right after training; ``trainable`` counts the last blocks that learn."""
        model = self.build(seed)
        if shallow:
            remove_blocks(model, self.task.train.x[:2], glob=self.blocks)
        if trainable is not None:
            freeze_blocks(model, self.task.train.x[:2], trainable=trainable, glob=self.blocks)
        rule = self.rule(model, seed) if arm == "rule" else Backprop()
        train(model, self.task, rule, epochs=self.epochs, seed=seed, **self.options)
        return correct_items(model, self.task.test.x, self.task.test.y, rule=rule)


def freeze_blocks(model: nn.Module, x: Tensor, *, trainable: int, glob: str | None = None) -> tuple[str, ...]:
    """Stop all but the last ``trainable`` blocks from learning; the names of the frozen ones."""
    blocks = layers_at_rest(model) if isinstance(model, EquilibriumModel) else discover_blocks(model, x, glob=glob)
    if not 0 <= trainable <= len(blocks):
        raise expected(f"trainable from 0 to {len(blocks)}", given=trainable)
    frozen = blocks.names[: len(blocks) - trainable]
    for name in frozen:
        model.get_submodule(name).requires_grad_(False)
    return frozen


def remove_blocks(model: nn.Module, x: Tensor, *, glob: str | None = None) -> tuple[str, ...]:
    """Take the blocks out of a model, in place: the shallow baseline, embedding and head alone. Returns their names.

    Each block hands on what it is given, or nothing where the caller adds the skip connection. A block that changes the
    shape of the stream cannot be taken out: then the model is refused.
    """
    blocks = discover_blocks(model, x, glob=glob)
    if len(set(blocks.shapes)) > 1:
        raise expected("blocks that keep the shape of the stream", given=f"shapes {sorted(set(blocks.shapes))}",
                       do="build the shallow baseline by hand")
    for name in blocks.names:
        parent, _, last = name.rpartition(".")
        model.get_submodule(parent).register_module(last, nn.Identity() if blocks.link == "direct" else _Nothing())
    return blocks.names


class _Nothing(nn.Module):
    def forward(self, h: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return torch.zeros_like(h)


@torch.no_grad()
def correct_items(model: nn.Module, x: Tensor, y: Tensor, *, rows: int = 1000, rule: Any = None) -> list[bool]:
    """Which items the model gets right, by the inference of its rule if that has one of its own.

    For token tasks every position is an item.
    """
    with evaluating(model):
        answers = [outputs_of(model, x[i : i + rows], rule).argmax(-1) for i in range(0, len(y), rows)]
    return [bool(value) for value in (torch.cat(answers) == y).flatten()]
