"""How fast equilibrium propagation is here, against backprop and against the usual ways to compute it.

    python benchmarks/equilibrium.py speed       gradient for gradient, interleaved, one thread
    python benchmarks/equilibrium.py population  many seeds stacked against one by one
    python benchmarks/equilibrium.py price       what a gradient costs beside backprop, and how good it is in training
    python benchmarks/equilibrium.py training    accuracy and gradient of the cheap schedules, for price's first table

Times are CPU seconds of this process: of every method the minimum over interleaved rounds, so that whatever else the
machine does hits all methods alike. ``--write`` puts the table into docs/benchmarks/.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from assay.models import EnergyMLP
from assay.networks.energy_mlp.population import population_gradient, stack
from assay.rules import Backprop, EqProp
from assay.seeding import torch_generator

DOCS = Path(__file__).parent.parent / "docs" / "benchmarks"
INPUTS, CLASSES = 784, 10


def main() -> None:
    if sys.argv[1:2] in (["price"], ["training"]):
        from importlib import import_module  # the benchmarks beside this one: scripts run from their own folder

        import_module(f"equilibrium_{sys.argv.pop(1)}").main()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("speed", "population"), default="speed")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds; the minimum of each method counts")
    parser.add_argument("--full", action="store_true", help="every width x depth x batch instead of one at a time")
    parser.add_argument("--write", action="store_true", help="write the table to docs/benchmarks/")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = {"speed": speed, "population": population}[options.what](options)
    text = "\n".join(lines) + "\n"
    print(text)
    if options.write:
        DOCS.mkdir(parents=True, exist_ok=True)
        name = "equilibrium.md" if options.what == "speed" else f"equilibrium-{options.what}.md"
        command = "python benchmarks/equilibrium.py " + " ".join(sys.argv[1:])
        load = os.getloadavg()[0]
        note = f"Made by `{command}` with torch {torch.__version__}, one thread; the machine's load was {load:.1f}."
        (DOCS / name).write_text(f"# Equilibrium propagation: {options.what}\n\n{note}\n\n{text}")


# --- speed --------------------------------------------------------------------------------------------------------


def speed(options: argparse.Namespace) -> list[str]:
    """One table: time of ours, and every other method as a multiple of it."""
    centre, widths, depths, batches = (512, 1, 128), (128, 256, 512, 1024), (1, 2, 3, 4), (32, 64, 128, 256)
    if options.full:
        shapes = [(w, d, b) for w in widths for d in depths for b in batches]
    else:
        shapes = sorted({(w, *centre[1:]) for w in widths} | {(centre[0], d, centre[2]) for d in depths}
                        | {(*centre[:2], b) for b in batches}, key=lambda s: (s[1], s[0], s[2]))
    peak = sgemm_peak(options.rounds)
    lines = [
        f"Single-precision matrix products reach {peak / 1e9:.0f} GFLOP/s here. Each method computes the gradient of a",
        f"batch of a {INPUTS}-width-...-{CLASSES} tanh network; EP is centered, beta 0.1, gamma 0.25, 30 free and 10",
        "nudged sweeps. Columns after `ours` are times relative to it. `difference` is the largest relative difference",
        "between our gradient and that of autograd-of-energy EP and BPTT (converged, so EP's own bias is part of it).",
        "A single hidden layer is at rest after one free sweep and stops when its nudge does: see `steps`. In deeper",
        "nets autograd EP updates all layers at once and needs more than 10 nudged steps to reach the same rest, which",
        "is most of its difference there. `same steps` is autograd EP given only the steps ours took: what is left of",
        "the ratio once knowing when to stop is taken out.",
        "",
        "| width | hidden layers | batch | ours, ms | steps | of peak | autograd EP | same steps | BPTT | BPTT cached "
        "| backprop | ours / backprop | tangent 2/1 / backprop | difference EP, BPTT |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for width, depth, batch in shapes:
        lines.append(speed_row(width, depth, batch, peak=peak, rounds=options.rounds))
        print(lines[-1], flush=True)
    return lines


def speed_row(width: int, depth: int, batch: int, *, peak: float, rounds: int) -> str:
    widths = [INPUTS] + [width] * depth + [CLASSES]
    model = EnergyMLP(widths, gamma=0.25, seed=0)
    generator = torch_generator(0, "benchmark")
    x, y = torch.randn(batch, INPUTS, generator=generator), torch.randint(0, CLASSES, (batch,), generator=generator)
    ours = EqProp(beta=0.1, sweeps=(30, 10))
    plain = model.feedforward()
    methods: dict[str, Callable[[], object]] = {
        "ours": lambda: ours.backward(model, x, y),
        "tangent": lambda: EqProp(nudge="tangent", sweeps=(2, 1)).backward(model, x, y),
        "backprop": lambda: Backprop().backward(plain, x, y),
        "autograd": lambda: autograd_of_energy(model, x, y, beta=0.1, sweeps=(30, 10)),
        "bptt": lambda: uncached_bptt(model, x, y, sweeps=30),
        "cached": lambda: EqProp(nudge="bptt", sweeps=(30, 1)).backward(model, x, y),
    }
    gradients = {name: gradient_of(model, run) for name, run in methods.items()}
    steps = (ours.last.free.steps, ours.last.nudged.steps) if ours.last and ours.last.nudged else (0, 0)
    methods["same"] = lambda: autograd_of_energy(model, x, y, beta=0.1, sweeps=steps)
    best = interleaved({name: cleared(model, run) for name, run in methods.items()}, rounds=rounds)
    fraction = flops(widths, batch, steps) / best["ours"] / peak
    away = [float((gradients["ours"] - gradients[k]).norm() / gradients[k].norm()) for k in ("autograd", "bptt")]
    times = " | ".join(f"{best[k] / best['ours']:.1f}" for k in ("autograd", "same", "bptt", "cached", "backprop"))
    ratios = " | ".join(f"{best[k] / best['backprop']:.2f}" for k in ("ours", "tangent"))
    return (f"| {width} | {depth} | {batch} | {1e3 * best['ours']:.2f} | {steps[0]}/{steps[1]} | {fraction:.2f} "
            f"| {times} | {ratios} | {away[0]:.0e}, {away[1]:.0e} |")


def autograd_of_energy(model: EnergyMLP, x: Tensor, y: Tensor, *, beta: float, sweeps: tuple[int, int]) -> None:
    """EP as it is usually written: every step differentiates the whole energy, input layer included, phase by phase."""
    layers, gamma, depth, sigma = list(model.layers), model.gamma, model.depth, model.activation.function

    def primitive(state: list[Tensor]) -> Tensor:
        below, total = x, x.new_zeros(())
        for number, (layer, units) in enumerate(zip(layers, state, strict=False)):
            total = total + gamma ** (number + 1) * (units * layer(below)).sum()
            below = units
        return total

    def phase(state: list[Tensor], steps: int, strength: float) -> list[Tensor]:
        for _ in range(steps):
            leaves = [s.detach().requires_grad_() for s in state]
            objective = primitive(leaves)
            if strength:
                loss = nn.functional.cross_entropy(layers[-1](leaves[-1]), y, reduction="sum")
                objective = objective - strength * gamma**depth * loss
            slopes = torch.autograd.grad(objective, leaves)
            state = [sigma(g / gamma ** (i + 1)) for i, g in enumerate(slopes)]
        return [s.detach() for s in state]

    with torch.no_grad():
        state, below = [], x
        for layer in layers[:-1]:
            below = sigma(layer(below))
            state.append(below)
    free = phase(state, sweeps[0], 0.0)
    plus, minus = phase(free, sweeps[1], beta), phase(free, sweeps[1], -beta)
    contrast = (primitive(minus) - primitive(plus)) / (2 * beta * len(x) * gamma**depth)
    (contrast + nn.functional.cross_entropy(layers[-1](free[-1]), y)).backward()


def uncached_bptt(model: EnergyMLP, x: Tensor, y: Tensor, *, sweeps: int) -> None:
    """Backprop through time that computes the drive of the input at every step, as unrolled loops usually do."""
    state = model.start(model.clamp(x))
    for _ in range(sweeps):
        state = model.sweep(model.clamp(x), state)
    model.row_losses(model.logits(state), y).mean().backward()


def flops(widths: list[int], batch: int, steps: tuple[int, int]) -> float:
    """Floating-point operations of the matrix products that the centered kernel really makes."""
    hidden = widths[1:-1]
    first = 2.0 * batch * widths[0] * hidden[0]
    inner = sum(2.0 * batch * a * b for a, b in itertools.pairwise(hidden))
    readout = 2.0 * batch * hidden[-1] * widths[-1]
    return 2 * first + inner * (1 + 2 * steps[0] + 4 * steps[1] + 2) + readout * (4 * steps[1] + 3)


def sgemm_peak(rounds: int, size: int = 1024) -> float:
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / interleaved({"mm": lambda: a @ b}, rounds=rounds)["mm"]


def gradient_of(model: nn.Module, run: Callable[[], object]) -> Tensor:
    model.zero_grad()
    run()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def cleared(model: nn.Module, run: Callable[[], object]) -> Callable[[], None]:
    def call() -> None:
        model.zero_grad()
        run()

    return call


def interleaved(methods: dict[str, Callable[[], object]], *, rounds: int) -> dict[str, float]:
    """The least CPU seconds of one call of each method; methods take turns so that all meet the same machine."""
    repeats = {}
    for name, run in methods.items():
        run()
        began = time.process_time()
        run()
        repeats[name] = max(1, int(0.02 / max(time.process_time() - began, 1e-6)))
    best = dict.fromkeys(methods, float("inf"))
    for _ in range(rounds):
        for name, run in methods.items():
            began = time.process_time()
            for _ in range(repeats[name]):
                run()
            best[name] = min(best[name], (time.process_time() - began) / repeats[name])
    return best


# --- population ---------------------------------------------------------------------------------------------------


def population(options: argparse.Namespace) -> list[str]:
    """Gain of stacking S networks over training them one by one."""
    lines = ["Time of one gradient of S networks one by one over the time of all of them stacked (64-width-width-10,",
             "centered, 4/3 sweeps).", "", "| width | batch | S = 3 | S = 5 | S = 10 |", "|---|---|---|---|---|"]
    for width in (32, 64, 128, 256, 512):
        for batch in (32, 128):
            gains = []
            for count in (3, 5, 10):
                models = [EnergyMLP([64, width, width, 10], seed=seed) for seed in range(count)]
                generator = torch_generator(0, "benchmark")
                x = torch.randn(count, batch, 64, generator=generator)
                y = torch.randint(0, 10, (count, batch), generator=generator)
                layers, rule = stack([m.as_layers() for m in models]), EqProp(beta=0.3, sweeps=(4, 3))

                def alone(models=models, x=x, y=y, rule=rule) -> None:
                    for model, inputs, targets in zip(models, x, y, strict=True):
                        model.zero_grad()
                        rule.backward(model, inputs, targets)

                def together(layers=layers, x=x, y=y) -> None:
                    population_gradient(layers, x, y, sweeps=(4, 3), betas=(0.3, -0.3),
                                        coefficients=(1 / 0.6, -1 / 0.6))

                best = interleaved({"alone": alone, "together": together}, rounds=options.rounds)
                gains.append(best["alone"] / best["together"])
            lines.append(f"| {width} | {batch} | " + " | ".join(f"{gain:.1f}" for gain in gains) + " |")
            print(lines[-1], flush=True)
    return lines


if __name__ == "__main__":
    main()
