"""What looking costs: the time of a training with and without ``assay.watching.Watch`` at its defaults.

    python benchmarks/watching.py
"""

from __future__ import annotations

import time

import torch
from torch import nn

from assay.models import ResMLP
from assay.watching import Watch

ROWS = 128
SIZES = ((64, 4, 6000), (256, 8, 1500))
"""Width, depth and steps: the first look is taken on credit, so two seconds of training say nothing about the rest."""


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int, watch: Watch | None) -> float:
    """Seconds of the steps, looks included."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    started = time.perf_counter()
    for step in range(1, steps + 1):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        if watch is not None:
            watch.step(model, step)
        optimiser.step()
    return time.perf_counter() - started


def main() -> None:
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    print("| model | probes | looks | waited | share of the time | seconds without, with |")
    print("|---|---|---|---|---|---|")
    for width, depth, steps in SIZES:
        x, y = torch.randn(ROWS, 64, generator=draw), torch.arange(ROWS) % 10
        for name, options in (("health", {}), ("health, credit", {"credit": (x[:16], y[:16])})):
            plain = train(ResMLP(64, width=width, depth=depth), x, y, steps, None)
            watch = Watch(**options)
            watched = train(ResMLP(64, width=width, depth=depth), x, y, steps, watch)
            print(f"| ResMLP {width} x {depth} | {name} | {len(watch.history)} | {watch.waited} | "
                  f"{100 * watch.spent / watched:.2f} % | {plain:.2f}, {watched:.2f} |")


if __name__ == "__main__":
    main()
