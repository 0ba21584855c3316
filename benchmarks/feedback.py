"""What a step of each feedback rule costs beside a step of backprop.

    OMP_NUM_THREADS=1 python benchmarks/feedback.py [--rounds 30] [--write]

Three tables: the forward pass and the rule's backward pass alone, and the whole step of a training loop, with AdamW
over all parameters (Kolen-Pollack's matrices among them), as PyTorch runs it unless told otherwise, tensor by tensor,
and fused. The rules take turns of a few steps in an order that rotates, counted in CPU time; the figure is the
shortest step of a rule over the shortest of backprop, which a busy machine disturbs least. Limit: 1.1. ``--write`` puts
the tables into docs/benchmarks/feedback.md.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from assay.environment import capture
from assay.models import ResMLP, SmallResNet, ViTMini
from assay.protocols import Rule
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


def perceptron(inputs: int, width: int) -> nn.Module:
    """Three layers: where every microsecond of bookkeeping shows."""
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


class TwoSets(Backprop):
    """Backprop whose optimiser also moves a second set of the same weights: what Kolen-Pollack asks of any program.

    The second set is as large as the feedback that is used, and gets copies of the same gradients.
    """

    def __init__(self, model: nn.Module, used: FeedbackAlignment) -> None:
        super().__init__()
        weights = dict(model.named_parameters())
        self.pairs = [(weights[name], nn.Parameter(matrix.detach().clone())) for name, matrix in
                      used.matrices.tensors.items()]

    def parameters(self) -> list[nn.Parameter]:
        return [twin for _, twin in self.pairs]

    def backward(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = super().backward(model, x, y)
        for weight, twin in self.pairs:
            twin.grad = None if weight.grad is None else weight.grad.clone()
        return loss


SUBJECTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "MLP 64-64-64-10": (lambda: perceptron(64, 64), (32, 64)),
    "MLP 784-128-128-10": (lambda: perceptron(784, 128), (64, 784)),
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
FLOOR = "two sets of weights"
"""Backprop that moves as many matrices as Kolen-Pollack has: beside its column."""
COLUMNS = (*RULES, FLOOR)
TURN = 4
"""Steps of a rule in a row, as in training: right after another rule its own matrices are not in the cache."""
TITLES = ("Forward and backward pass", "A whole step of training", "A whole step, fused AdamW")


def ratios(build: Callable[[], nn.Module], shape: tuple[int, ...], rounds: int) -> list[dict[str, float]]:
    """The cost of each rule in units of backprop's: of its gradient, and of the whole step by either optimiser."""
    model = build()
    x, y = torch.randn(shape), torch.randint(10, shape[:1])
    rules: dict[str, Rule] = {"backprop": Backprop()}
    aligned = {name: FeedbackAlignment(model, **options) for name, options in RULES.items()}
    aligned["kolen-pollack"].survey(model, x)  # then it asks for no matrix that it does not use
    list(aligned["kolen-pollack"].parameters())
    rules |= aligned | {FLOOR: TwoSets(model, aligned["kolen-pollack"])}
    optimisers = {}
    for name, rule in rules.items():
        own = rule.parameters() if isinstance(rule, FeedbackAlignment | TwoSets) else ()
        everything = [*model.parameters(), *own]
        # A learning rate of 0 does the work and leaves the weights the same for all.
        optimisers[name] = [torch.optim.AdamW(everything, lr=0.0, fused=fused) for fused in (False, True)]
        step(rule, optimisers[name], model, x, y)
    best = {name: [float("inf")] * len(TITLES) for name in rules}
    names = list(rules)
    gc.disable()
    for round_ in range(rounds):
        for name in names[round_ % len(names) :] + names[: round_ % len(names)]:
            for _ in range(TURN):
                spent = step(rules[name], optimisers[name], model, x, y)
                best[name] = [min(pair) for pair in zip(best[name], spent, strict=True)]
        if not round_ % 100:
            gc.collect()
    gc.enable()
    return [{name: best[name][table] / best["backprop"][table] for name in COLUMNS} for table in range(len(TITLES))]


def step(rule: Rule, optimisers: list[torch.optim.Optimizer], model: nn.Module, x: torch.Tensor, y: torch.Tensor
         ) -> list[float]:
    """CPU seconds of the gradient, and of the whole step by each optimiser."""
    began = time.process_time()
    rule.backward(model, x, y)
    spent = [time.process_time() - began]
    for optimiser in optimisers:
        between = time.process_time()
        optimiser.step()
        spent.append(spent[0] + time.process_time() - between)
    optimisers[0].zero_grad()
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    asked = parser.parse_args()
    tables = [[["model", *COLUMNS]] for _ in TITLES]
    for name, (build, shape) in SUBJECTS.items():
        rounds = asked.rounds * (50 if name.startswith("MLP") else 1)  # steps of microseconds need more of them
        for rows, found in zip(tables, ratios(build, shape, rounds), strict=True):
            cells = [f"{value:.2f}{' !' if value > LIMIT else ''}" for value in found.values()]
            rows.append([f"{name}, batch {shape[0]}", *cells])
            print("".join(f"{cell:30s}" if not i else f"{cell:>14s}" for i, cell in enumerate(rows[-1])), flush=True)
    note = (f"In units of backprop's, one thread of {capture().cpu}, torch {torch.__version__}; shortest of "
            f"{asked.rounds} interleaved rounds of {TURN} steps (fifty times as many for the MLPs) in processor time; "
            f"! is above {LIMIT}. The last column is backprop whose optimiser moves a second set of the same weights, "
            "as Kolen-Pollack's must: what its whole step costs beyond that is the rule's own.")
    print(f"columns: {', '.join(COLUMNS)}; lines: forward and backward, whole step, whole step fused\n{note}")
    if asked.write:
        command = f"`OMP_NUM_THREADS=1 python benchmarks/feedback.py --rounds {asked.rounds} --write`"
        lines = ["# Feedback rules: the cost of a step", "", f"Written by {command}. {note}", ""]
        for title, rows in zip(TITLES, tables, strict=True):
            table = ["| " + " | ".join(row) + " |" for row in rows]
            lines += [f"## {title}", "", table[0], "|---|" + "---:|" * len(COLUMNS), *table[1:], ""]
        PAGE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
