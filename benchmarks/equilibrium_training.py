"""The contract of a cheap schedule, kept for a whole training run: accuracy and the error of the gradient meanwhile.

    python benchmarks/equilibrium.py training --records FOLDER   one file per network, arm and seed; resumes
    python benchmarks/equilibrium.py training --records FOLDER --write    the table's numbers into docs/benchmarks/

Every arm sees MNIST once (Adam 1e-3 falling to nothing by a cosine, batch 128). Nothing is chosen on the test set:
``SETTINGS`` were fixed by the error of the gradient alone. That error is looked at at the start, after EARLY steps,
where it is largest, and LOOKS times more up to the end. Backprop trains the same network from the same weights, on the
same batches, without feedback and without a bound.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay import tasks
from assay.models import EnergyConv, EnergyMLP
from assay.rules import Backprop, EqProp, HealthWarning, keep_bounded
from assay.seeding import torch_generator
from assay.stats.intervals import mean_interval

RECORDS = Path(__file__).parent.parent / "docs" / "benchmarks" / "equilibrium-price.json"
BATCH, LOOKS, EARLY = 128, 4, 25
SEEDS = range(6)


@dataclass(frozen=True)
class Setting:
    """A network, its feedback, the bound of the weights that feed back, and the sweeps of the two phases."""

    name: str
    limit: float
    gamma: float
    bound: float | None
    sweeps: tuple[int, int]
    hidden: int = 0
    epochs: int = 1

    def model(self, seed: int) -> Any:
        """A fresh energy network."""
        if self.hidden:
            return EnergyMLP([784] + [512] * self.hidden + [10], gamma=self.gamma, solver="projected", seed=seed)
        return EnergyConv((1, 28, 28), [16, 32], pooling="max", gamma=self.gamma, seed=seed)

    def optimiser(self, model: Any) -> torch.optim.Optimizer:
        """Adam, with the bound where there is one."""
        adam = torch.optim.Adam(model.parameters(), lr=1e-3)
        if self.bound is None:
            return adam
        inner = list(model.layers)[1:-1] if self.hidden else list(model.layers)[1:]
        return keep_bounded(adam, [layer.weight for layer in inner], bound=self.bound)


SETTINGS = (
    Setting("784-512-10", 1.25, 0.1, None, (1, 1), hidden=1),
    Setting("784-512-512-10", 1.7, 0.1, 1.0, (1, 1), hidden=2),
    Setting("784-512x3-10", 1.9, 0.06, 1.0, (1, 1), hidden=3),
    Setting("784-512x5-10", 2.1, 0.02, 1.0, (1, 1), hidden=5),
    Setting("small convolution, max pooling", 2.3, 0.01, None, (1, 1)),
)


def main() -> None:
    """Run what is missing; ``python benchmarks/equilibrium.py training`` is the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--most", type=int, default=10**6, help="records to make before stopping")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", HealthWarning)
    options.records.mkdir(parents=True, exist_ok=True)
    if options.write:
        RECORDS.write_text(json.dumps(summary(options.records), indent=1) + "\n")
        return
    planned = [(options.records / f"{setting.name} {arm} {seed}.json", setting, arm, seed)
               for seed in SEEDS for setting in SETTINGS for arm in ("backprop", "ep")]
    missing = [each for each in planned if not each[0].exists()][: options.most]
    task = tasks.mnist(seed=0)
    for file, setting, arm, seed in missing:
        file.write_text(json.dumps(trained(setting, arm, seed, task)))
        print(file.name, file.read_text(), flush=True)


def trained(setting: Setting, arm: str, seed: int, task: Any) -> dict[str, float]:
    """Test accuracy after training and, of EP, the worst error and cosine of any layer's gradient on the way."""
    model = setting.model(seed)
    shape = (-1, 784) if setting.hidden else (-1, 1, 28, 28)
    x, y = task.train.x.view(shape), task.train.y
    net = model if arm == "ep" else model.feedforward()
    rule: Any = EqProp(sweeps=setting.sweeps) if arm == "ep" else Backprop()
    optimiser = setting.optimiser(model) if arm == "ep" else torch.optim.Adam(net.parameters(), lr=1e-3)
    batches = math.ceil(len(x) / BATCH)
    total, step, worst, least = setting.epochs * batches, 0, 0.0, 1.0
    rates = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda t: 0.5 * (1 + math.cos(math.pi * t / total)))
    looks = {0, EARLY} | {round(i * (total - 1) / LOOKS) for i in range(1, LOOKS + 1)}
    order = torch_generator(seed, "training", "order")
    for _ in range(setting.epochs):
        for rows in torch.split(torch.randperm(len(x), generator=order), BATCH):
            optimiser.zero_grad()
            rule.backward(net, x[rows], y[rows])
            if arm == "ep" and step in looks:
                error, cosine = agreement(model, x[rows], y[rows])
                worst, least = max(worst, error), min(least, cosine)
            optimiser.step()
            rates.step()
            step += 1
    return {"accuracy": accuracy(net, task.test.x.view(shape), task.test.y), "error": worst, "cosine": least}


def agreement(model: Any, x: Tensor, y: Tensor) -> tuple[float, float]:
    """The largest error and smallest cosine of any parameter's ``.grad`` beside the gradient at rest in float64."""
    found = [p.grad.double() for p in model.parameters()]
    twin = copy.deepcopy(model).double()
    twin.zero_grad()
    EqProp("tangent", sweeps=(300, 300), tolerance=1e-9, on_divergence="record").backward(twin, x.double(), y)
    true = [p.grad for p in twin.parameters()]
    errors = [float((a - b).norm() / b.norm()) for a, b in zip(found, true, strict=True)]
    cosines = [float((a * b).sum() / (a.norm() * b.norm())) for a, b in zip(found, true, strict=True)]
    return max(errors), min(cosines)


@torch.no_grad()
def accuracy(net: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> float:
    """The share of rows whose largest output is right; an energy network is read at its fixed point."""
    right = [net(part).argmax(-1) == true for part, true in zip(x.split(500), y.split(500), strict=True)]
    return float(torch.cat(right).double().mean())


def summary(folder: Path) -> dict[str, Any]:
    """By network: what was trained, both accuracies, the paired gap with its interval, and the worst of the errors."""
    found = {}
    for setting in SETTINGS:
        arms = {arm: [json.loads(file.read_text()) for seed in SEEDS
                      if (file := folder / f"{setting.name} {arm} {seed}.json").exists()] for arm in ("ep", "backprop")}
        pairs = list(zip(arms["ep"], arms["backprop"], strict=False))
        if len(pairs) < 3:
            continue
        gaps = [100 * (ours["accuracy"] - theirs["accuracy"]) for ours, theirs in pairs]
        interval = mean_interval(gaps)
        found[setting.name] = {
            "seeds": len(pairs), "ep": 100 * statistics.mean(p["accuracy"] for p, _ in pairs),
            "backprop": 100 * statistics.mean(p["accuracy"] for _, p in pairs), "gap": statistics.mean(gaps),
            "low": interval.low if interval else None, "high": interval.high if interval else None,
            "error": max(p["error"] for p, _ in pairs),
            "cosine": min(p["cosine"] for p, _ in pairs), "gamma": setting.gamma, "bound": setting.bound,
            "sweeps": list(setting.sweeps), "epochs": setting.epochs,
        }
    return found


if __name__ == "__main__":
    main()
