"""What a step of each feedback rule costs beside a step of backprop.

    OMP_NUM_THREADS=1 python benchmarks/feedback.py [--rounds 30] [--write]

A step is a forward pass and the rule's backward pass. Steps of all rules are interleaved in an order that rotates, and
counted in CPU time, so that a busy machine slows every rule alike; the figure is the median over rounds of the ratio to
backprop's step in the same round. Limit: 1.1. ``--write`` puts the table into docs/benchmarks/feedback.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from assay.environment import capture
from assay.models import ResMLP, SmallResNet, ViTMini
from assay.rules import Backprop, FeedbackAlignment

LIMIT = 1.1
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "feedback.md"


class Transformer(nn.Module):
    """Tokens through nn.TransformerEncoder."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
        self.embed = nn.Linear(32, 64)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.encoder(self.embed(x)).mean(1))
        return out


SUBJECTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "ResMLP": (ResMLP, (128, 3072)),
    "ViT-Mini": (ViTMini, (16, 3, 32, 32)),
    "SmallResNet": (SmallResNet, (16, 3, 32, 32)),
    "TransformerEncoder": (Transformer, (32, 32, 32)),
}
RULES: dict[str, dict[str, str]] = {
    "fa layer": {"kind": "fa", "level": "layer"},
    "dfa layer": {"kind": "dfa", "level": "layer"},
    "fa block": {"kind": "fa", "level": "block"},
    "dfa block": {"kind": "dfa", "level": "block"},
    "sign": {"feedback": "sign"},
    "kolen-pollack": {"feedback": "kolen-pollack"},
}


def ratios(build: Callable[[], nn.Module], shape: tuple[int, ...], rounds: int) -> dict[str, float]:
    """The median cost of each rule in units of backprop's."""
    model = build()
    x, y = torch.randn(shape), torch.randint(10, shape[:1])
    rules = {"backprop": Backprop(), **{name: FeedbackAlignment(model, **options) for name, options in RULES.items()}}
    for rule in rules.values():
        rule.backward(model, x, y)
    found: dict[str, list[float]] = {name: [] for name in rules}
    for round_ in range(rounds):
        names = list(rules)
        for name in names[round_ % len(names) :] + names[: round_ % len(names)]:
            model.zero_grad()
            if isinstance(rule := rules[name], FeedbackAlignment):
                for matrix in rule.parameters():
                    matrix.grad = None
            began = time.process_time()
            rule.backward(model, x, y)
            found[name].append(time.process_time() - began)
    base = found.pop("backprop")
    return {name: statistics.median(t / b for t, b in zip(times, base, strict=True)) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    asked = parser.parse_args()
    rows = [["model", *RULES]]
    for name, (build, shape) in SUBJECTS.items():
        found = ratios(build, shape, asked.rounds)
        rows.append([f"{name}, batch {shape[0]}", *(f"{v:.2f}{' !' if v > LIMIT else ''}" for v in found.values())])
        print("".join(f"{cell:24s}" if not i else f"{cell:>14s}" for i, cell in enumerate(rows[-1])), flush=True)
    note = (f"Forward and backward pass of a rule in units of backprop's, one thread of {capture().cpu}, torch "
            f"{torch.__version__}; median of {asked.rounds} interleaved rounds of processor time; ! is above {LIMIT}.")
    print(f"columns: {', '.join(RULES)}\n{note}")
    if asked.write:
        table = ["| " + " | ".join(row) + " |" for row in rows]
        table.insert(1, "|---|" + "---:|" * len(RULES))
        head = "# Feedback rules: the cost of a step"
        command = "`OMP_NUM_THREADS=1 python benchmarks/feedback.py --write`"
        PAGE.write_text("\n".join([head, "", f"Written by {command}. {note}", "", *table, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
