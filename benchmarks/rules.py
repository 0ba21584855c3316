"""What a step of each rule of layers costs beside a step of backprop.

    OMP_NUM_THREADS=1 python benchmarks/rules.py [--rounds 30] [--write]

The rule's gradient alone, without the optimiser. Steps of all rules are interleaved in an order that rotates, and
counted in processor time, so that a busy machine slows every rule alike; the figure is the median over rounds of the
ratio to backprop's step in the same round. ``--write`` puts the table into docs/benchmarks/rules.md.
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
from assay.learning.names import RULES, named_rule
from assay.protocols import Rule
from assay.rules import Backprop

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "rules.md"
NAMES = [name for name, named in RULES.items() if named.made_by]


def perceptron(inputs: int, width: int, depth: int) -> nn.Sequential:
    """``depth`` hidden layers of tanh units and a readout of ten classes."""
    hidden = [module for _ in range(depth - 1) for module in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), *hidden, nn.Linear(width, 10))


SUBJECTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int]]] = {
    "64-64-64-64-10, batch 32": (lambda: perceptron(64, 64, 3), (32, 64)),
    "784-128-128-128-10, batch 100": (lambda: perceptron(784, 128, 3), (100, 784)),
    "784-512-512-10, batch 100": (lambda: perceptron(784, 512, 2), (100, 784)),
}


def ratios(build: Callable[[], nn.Module], shape: tuple[int, int], rounds: int) -> dict[str, float]:
    """The median cost of each rule's gradient in units of backprop's."""
    model = build()
    x, y = torch.rand(shape), torch.randint(10, shape[:1])
    rules: dict[str, Rule] = {"backprop": Backprop(), **{name: named_rule(name, model) for name in NAMES}}
    times: dict[str, list[float]] = {name: [] for name in rules}
    for name in rules:
        step(rules[name], model, x, y)
    names = list(rules)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            times[name].append(step(rules[name], model, x, y))
    return {n: statistics.median(t / b for t, b in zip(times[n], times["backprop"], strict=True)) for n in NAMES}


def step(rule: Rule, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Processor seconds of one gradient."""
    model.zero_grad(set_to_none=True)
    began = time.process_time()
    rule.backward(model, x, y)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    asked = parser.parse_args()
    found = {name: ratios(build, shape, asked.rounds) for name, (build, shape) in SUBJECTS.items()}
    rows = [[name, *(f"{found[subject][name]:.1f}" for subject in SUBJECTS)] for name in NAMES]
    for row in rows:
        print("".join(f"{cell:>32s}" for cell in row))
    if asked.write:
        note = (f"Processor time of one gradient in units of backprop's, one thread of {capture().cpu}, torch "
                f"{torch.__version__}; median of {asked.rounds} interleaved rounds. Settings are the defaults: `pc` "
                "takes 20 steps of inference, `pc-errors` 5, the perturbations one direction.")
        command = f"`OMP_NUM_THREADS=1 python benchmarks/rules.py --rounds {asked.rounds} --write`"
        lines = ["# Rules of layers: the cost of a step", "", f"Written by {command}. {note}", "",
                 f"| rule | {' | '.join(SUBJECTS)} |", "|---|" + "---:|" * len(SUBJECTS),
                 *(f"| {' | '.join(row)} |" for row in rows), ""]
        PAGE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
