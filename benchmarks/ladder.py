"""Convolutional EP at rest on MNIST and CIFAR-10, up a ladder of gamma, in trainings that resume after every epoch.

    python benchmarks/ladder.py run OUT mnist   --gamma 0.25 --seed 42       one training; the same command continues
    python benchmarks/ladder.py run OUT cifar10 --gamma 0.01 0.1 0.25 1      the ladder, one after the other
    python benchmarks/ladder.py run OUT cifar10 --gamma 0 --seed 42 43 44    gamma 0 is backprop on the same network
    python benchmarks/ladder.py page OUT                                     docs/results/ladder.md from what is there

Each epoch appends a line to OUT/TASK-gammaG-seedS.jsonl: training loss, validation accuracy, the largest residual, and
the cosine with the true gradient of the settled network on a validation batch. The test set is looked at once, after
the last epoch. Weights, optimiser and the epoch lie beside it in a file that is replaced in one go.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from assay.learning import evaluate, train
from assay.models import EnergyConv
from assay.rules import Backprop
from assay.tasks import load
from assay.tracks.shared.recipe import batch_of, rest, resting

PAGE = Path(__file__).parents[1] / "docs" / "results" / "ladder.md"
CITED = (
    "Scellier & Bengio 2017; Laborieux et al. 2021 (centered EP, 88.3 % on CIFAR-10 with a deep convolutional net); "
    "Laborieux & Zenke 2022 (holomorphic EP); Scellier et al. 2023; FRE-RNN (arXiv 2508.11659: weak feedback)."
)


@dataclass(frozen=True)
class Recipe:
    """What is trained on a task, the same under every rule and gamma."""

    shape: tuple[int, int, int]
    channels: tuple[int, ...]
    kernel: int
    epochs: int
    batch: int
    rate: float
    most: int
    """Sweeps after which a relaxation that does not rest is left as it is, and recorded so."""
    flips: bool


RECIPES = {
    "digits": Recipe((1, 8, 8), (8, 16), 3, 2, 64, 1e-2, 60, flips=False),  # seconds: to see it work
    "mnist": Recipe((1, 28, 28), (16, 32), 5, 6, 64, 2e-3, 60, flips=False),
    "cifar10": Recipe((3, 32, 32), (64, 128, 256), 3, 30, 64, 2e-3, 60, flips=True),
}
ROWS = 16
"""Rows of the validation batch on which gradients are compared, in float64."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("out", type=Path)
    running.add_argument("task", choices=list(RECIPES))
    running.add_argument("--gamma", type=float, nargs="+", default=[0.25])
    running.add_argument("--seed", type=int, nargs="+", default=[42])
    page = commands.add_parser("page")
    page.add_argument("out", type=Path)
    given = parser.parse_args()
    if given.command == "page":
        write_page(given.out)
        return
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in given.seed:
        for gamma in given.gamma:
            climb(given.out, given.task, gamma=gamma, seed=seed)


def climb(out: Path, name: str, *, gamma: float, seed: int) -> None:
    """One training from where it stands to its end; nothing is done twice."""
    recipe, stem = RECIPES[name], f"{name}-gamma{gamma:g}-seed{seed}"
    lines, weights = out / f"{stem}.jsonl", out / f"{stem}.pt"
    task = load(name, seed=seed, flat=False)
    energy = EnergyConv(recipe.shape, recipe.channels, kernel=recipe.kernel, pooling="max", activation="clipped",
                        gamma=gamma or 0.1, sweeps=recipe.most, tolerance=1e-4, seed=seed)
    model: Any = energy if gamma else energy.feedforward()
    rule: Any = resting(sweeps=(recipe.most, recipe.most)) if gamma else Backprop()
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.rate)
    done = 0
    if weights.exists():
        kept = torch.load(weights, weights_only=True)
        model.load_state_dict(kept["model"])
        optimiser.load_state_dict(kept["optimiser"])
        done = kept["epoch"]
    batch = batch_of(task, ROWS)
    for epoch in range(done, recipe.epochs):
        began = time.process_time()
        for group in optimiser.param_groups:
            group["lr"] = 0.5 * recipe.rate * (1 + math.cos(math.pi * epoch / recipe.epochs))
            group.pop("initial_lr", None)
        result = train(
            model, task, rule, epochs=1, seed=seed * 1000 + epoch, batch_size=recipe.batch, schedule="constant",
            optimiser=lambda _: optimiser, augment=_flipped if recipe.flips else None, test=False,
        )
        ended = rest(model, rule, *batch) if gamma else None
        last = epoch + 1 == recipe.epochs
        row = {
            "task": name, "gamma": gamma, "seed": seed, "epoch": epoch + 1, "of": recipe.epochs,
            "loss": result.final_loss, "validation": 100 * result.validation_accuracy,
            "residual": result.history[-1].residual, "rest": ended.stored() if ended else None,
            "diverged": result.diverged, "cpu_seconds": time.process_time() - began, "recipe": asdict(recipe),
            "test": 100 * evaluate(model, task.test).accuracy if last else None,
        }  # fmt: skip
        with lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        fresh = weights.with_suffix(".new")
        torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict(), "epoch": epoch + 1}, fresh)
        os.replace(fresh, weights)
        told = f"validation {row['validation']:.2f} %, residual {row['residual']}"
        print(f"{stem} epoch {epoch + 1}: {told}", flush=True)


def _flipped(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Half of the pictures mirrored, all shifted by up to four pixels."""
    mirrored = torch.rand(len(x), generator=generator) < 0.5
    x = torch.where(mirrored[:, None, None, None], x.flip(-1), x)
    down, right = (int(v) for v in torch.randint(0, 9, (2,), generator=generator))
    padded = torch.nn.functional.pad(x, (4, 4, 4, 4))
    return padded[..., down : down + x.shape[-2], right : right + x.shape[-1]]


def write_page(out: Path) -> None:
    """What the trainings came to, finished or not; every number is read from their lines."""
    lines = [
        "# Convolutional EP up a ladder of gamma", "",
        "Written by `python benchmarks/ladder.py page`; do not edit. Weak feedback approaches backprop: parity at "
        "gamma 0.01 shows little about equilibria. The ladder shows how far gamma can grow, at rest, before accuracy "
        "falls. "
        f"gamma 0 is backprop on the feed-forward limit. {CITED}", "",
        "| task | gamma | seed | epochs | validation (%) | test (%) | largest residual | smallest cosine | at rest "
        "throughout? | core-hours |", "|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for path in sorted(out.glob("*.jsonl")):
        # A training killed between its line and its weights does that epoch again: the later line counts.
        every = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        rows = list({row["epoch"]: row for row in every}.values())
        last, rests = rows[-1], [row["rest"] for row in rows if row["rest"]]
        residuals = [row["residual"] for row in rows if row["residual"] is not None]
        at_rest = bool(rests) and max(residuals) < 1e-3 and min(r["cosine"] for r in rests) >= 0.99
        test = "" if last["test"] is None else f"{last['test']:.2f}"
        lines.append(
            f"| {last['task']} | {last['gamma']:g} | {last['seed']} | {last['epoch']} of {last['of']} | "
            f"{last['validation']:.2f} | {test} | " + (f"{max(residuals):.2g}" if residuals else "") + " | "
            + (f"{min(r['cosine'] for r in rests):.4f}" if rests else "") + " | "
            + (("yes" if at_rest else "no") if rests else "") + f" | {sum(r['cpu_seconds'] for r in rows) / 3600:.2f} |"
        )
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
