"""What one gradient of equilibrium propagation costs beside one of backprop, and how good it is while it trains.

    python benchmarks/equilibrium.py price            all tables (minutes); --write puts them into docs/benchmarks/

Times are CPU seconds of this process; methods take turns, and the ratio shown is of minima, then of medians. The
allocator keeps what is freed, for all methods alike: by default glibc gives memory back and takes it again at some of
these sizes and not at others, up to 700 page faults a step. An error is that of a parameter's gradient against the same
network's gradient at rest in float64 (tangent), the largest over all parameters; the cosine is the smallest. Peak
memory is counted tensor by tensor (``audit_memory``'s meter).
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import itertools
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from equilibrium_training import BOUNDED, CHECKED, CODE, RECORDS, SETTINGS, Setting, agreement, at_rest, ladder
from revision import revision_of
from torch import Tensor, nn

from assay import tasks
from assay.models import EnergyConv, EnergyMLP, EnergyNet, LoopedMLP
from assay.probe.memory import measure_peak
from assay.rules import Backprop, Centered, EqProp, HealthWarning, OneSided
from assay.seeding import torch_generator

DOCS = Path(__file__).parent.parent / "docs" / "benchmarks"
BATCH, WIDTH = 128, 512
SCHEDULES = ((1, 1), (1, 2))
GAMMAS = (0.003, 0.1)
MOST = 200
ABOUT_CONTRACT = """\
`sweeps` of the free and of the nudged phase, one-sided, beta 1e-3. Networks of several hidden layers above are
`solver="deflated"`, whose following of the weights is part of the time. Error and cosine are the worst of seven looks
along 780 steps on MNIST at seeds 1 to 5 (of a layered network with a number in brackets: at so many of them), accuracy
that on its test images after them (`python benchmarks/equilibrium.py training`, which says how the settings were
fixed); the gap is to backprop of the network without feedback, in points, with a paired 95 % t interval. The contract:
error <= 0.05, cosine >= 0.99, the whole interval of the gap within 0.3 points. `backprop's error` is that of the
gradient of the feed-forward network with the same weights against the same gradient at rest, least and most of the
looks after the first step (in brackets at how many of the seeds, where not all): what is left to do for the phases. A
row in which it were small would be a contract about nothing. In the rows below weights are bounded at a spectral norm
(`keep_bounded`, its time included) instead, `solver="projected"`: that costs more accuracy than the contract allows.
The first convolution takes the maximum of the clamped image alone and averages above (`pooling="max-first"`, for
backprop too), so that its energy is smooth; the other takes a maximum in both layers."""
ABOUT_LADDER = """\
The price does not depend on gamma, the error does: free weights, `solver="deflated"`, one sweep a phase, at seed 0, by
which the settings above were fixed."""
ABOUT_GROWING = """\
Plain sweeps, without a solver for growing weights. The error is the worst of the first weights and of those after a
quarter and all of --steps steps of Adam at 1e-3 by the schedule itself. At gamma 0.1 no short schedule keeps the
contract here, because the norm of the weights triples. At 0.003 it is kept, but feedback is then next to nothing and
the credit travels as backprop's does."""
ABOUT_CLASSIC = """\
One-sided, beta 1e-3, weights as initialised; the nudged phase rests when no layer's deviation changes by more than 1e-4
of itself. EP by autograd is given the fewest steps (free and nudged alike, centered, beta 0.02) at which its gradient
is as good as ours, and 60 where it never is. Clipped units, [0, 1], are those of the classic papers. tanh at gamma 1
is almost critical with these weights (|W| = 1.15; beyond 1 a network need not have a single valley): its energy falls
with every sweep, but some rows take hundreds, and a run that took 200 was stopped there."""
LIMITS = {1: 1.25, 2: 1.7, 3: 1.9, 5: 2.1}


def main() -> None:
    """The tables; ``python benchmarks/equilibrium.py price`` is the same."""
    parts = {"contract": contract, "feedback": feedback, "layered": layered, "convolution": convolution,
             "classic": classic, "looped": looped, "memory": memory}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts), help="the tables to make")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=200, help="training steps before the last look at the error")
    parser.add_argument("--write", action="store_true", help="put the tables made into docs/benchmarks/")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    warnings.simplefilter("ignore", HealthWarning)
    x, y = data()
    for name in options.only:
        lines = parts[name](x, y, options)
        command = "python benchmarks/equilibrium.py price " + " ".join(sys.argv[1:])
        note = (f"Made by `{command}` with torch {torch.__version__}, one thread; the machine's load was "
                f"{os.getloadavg()[0]:.1f} (two cores).")
        lines[1:1] = ["", note]
        print("\n".join(lines), flush=True)
        if options.write:
            write("\n".join(lines) + "\n")


def keep_freed_memory() -> None:
    """Tell glibc to give no freed memory back to the system; elsewhere nothing happens."""
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None:
        adjust(-1, 1 << 30)  # M_TRIM_THRESHOLD
        adjust(-3, 1 << 25)  # M_MMAP_THRESHOLD, at the largest value that is taken


def write(section: str) -> None:
    """Put a section into the page, instead of the one of that heading, or at its end."""
    page, heading = DOCS / "equilibrium-price.md", section.split("\n", 1)[0]
    about = (__doc__ or "").split("\n", 4)[-1].strip()
    head = f"# Equilibrium propagation: the price of a gradient\n\n{about}\n"
    old = page.read_text().split("\n## ") if page.exists() else [head]
    sections = {f"## {each}".split("\n", 1)[0]: f"## {each}".rstrip() + "\n" for each in old[1:]}
    sections[heading] = section
    page.write_text("\n".join([head, *sections.values()]))


def data() -> tuple[Tensor, Tensor]:
    """A pool of images as rows of 784, and their classes."""
    if os.environ.get("ASSAY_DATA"):
        part = tasks.mnist(seed=0).train
        return part.x[: 40 * BATCH].flatten(1).float(), part.y[: 40 * BATCH]
    generator = torch_generator(0, "price")
    return torch.rand(40 * BATCH, 784, generator=generator), torch.randint(0, 10, (40 * BATCH,), generator=generator)


def contract(x: Tensor, y: Tensor, options: argparse.Namespace) -> list[str]:
    """The settings that were trained: their price now, beside the accuracy and errors that training recorded."""
    recorded = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    lines = ["## The contract: cheap schedules that stay good while they train", "",
             ABOUT_CONTRACT, "",
             "| network | gamma | sweeps | bound | time / backprop (minimum, median) | limit | error | cosine | "
             "backprop's error | EP, % | backprop, % | gap | seeds |", "|" + 13 * "---|"]
    for setting in SETTINGS + BOUNDED:
        lines.append(contract_row(setting, x, y, recorded.get(setting.name), rounds=options.rounds))
        print(lines[-1], flush=True)
    return [*lines, "", made_with(recorded)]


def made_with(recorded: dict[str, Any]) -> str:
    """Which code times, errors and accuracies come from: only times feel what else a machine does, so they are made
    apart."""
    found: dict[tuple[str, str], list[str]] = {}
    for setting in SETTINGS + BOUNDED:
        if entry := recorded.get(setting.name):
            made = tuple(entry.get(f"{what}_from", "not told") for what in ("errors", "accuracies"))
            found.setdefault(made, []).append(setting.name)
    rest = "".join(f" Revision of errors {errors}, of accuracies {ends}: {', '.join(names)}."
                   for (errors, ends), names in found.items())
    return f"Times are those of revision {revision_of(CODE)}; errors and accuracies are read from records.{rest}"


def feedback(x: Tensor, y: Tensor, options: argparse.Namespace) -> list[str]:
    """The same settings with more feedback, as training recorded them."""
    recorded = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    lines = ["## More feedback at the same price", "", ABOUT_LADDER, "",
             "| network | gamma | error | cosine | backprop's error |", "|" + 5 * "---|"]
    for name, setting in ladder().items():
        if found := recorded.get(name):
            lines.append(f"| {setting.name} | {setting.gamma} | {found['error']:.3f} | {found['cosine']:.4f} | "
                         f"{found['backprop_least']:.2f} to {found['backprop_most']:.2f} |")
    return lines


def contract_row(setting: Setting, x: Tensor, y: Tensor, found: dict[str, Any] | None, *, rounds: int) -> str:
    shape, rows = ((-1, 784), BATCH) if setting.hidden else ((-1, 1, 28, 28), 64)
    inputs, targets = x.view(shape)[:rows], y[:rows]
    model = setting.model(0)
    hooks = list(setting.optimiser(model)._optimizer_step_post_hooks.values())
    gradient = step(model, EqProp(sweeps=setting.sweeps), inputs, targets)

    def bounded() -> None:
        gradient()
        for hook in hooks:
            hook()

    calls = {"backprop": step(setting.model(0).feedforward(), Backprop(), inputs, targets), "ep": bounded}
    price = over(interleaved(calls, rounds=rounds), "ep", "backprop")
    bound = "none" if setting.bound is None else f"{setting.bound:g}"
    sweeps = "/".join(map(str, setting.sweeps))
    head = f"| {setting.name} | {setting.gamma} | {sweeps} | {bound} | {price} | {setting.limit} |"
    if found is None or found["setting"] != setting.label:
        return f"{head} not measured | | | | | | |"
    without = f"{found['backprop_least']:.2f} to {found['backprop_most']:.2f}" if "backprop_most" in found else ""
    looked = "" if found.get("looked", len(CHECKED)) == len(CHECKED) else f" ({found['looked']})"
    head += f" {found['error']:.3f} | {found['cosine']:.4f} | {without}{looked} |"
    if not found["seeds"]:
        return f"{head} not measured | | | |"
    ends = "" if found["low"] is None else f" [{found['low']:+.2f}, {found['high']:+.2f}]"
    return f"{head} {found['ep']:.2f} | {found['backprop']:.2f} | {found['gap']:+.2f}{ends} | {found['seeds']} |"


def layered(x: Tensor, y: Tensor, options: argparse.Namespace) -> list[str]:
    """Layered networks: every schedule and gamma beside backprop of the same feed-forward network."""
    lines = ["## Weights that grow freely: layered networks, 784-512-...-10, batch 128, one-sided, beta 1e-3", "",
             ABOUT_GROWING, "",
             "| hidden | limit | gamma | sweeps | time / backprop (minimum, median) | error | cosine |",
             "|---|---|---|---|---|---|---|"]
    for hidden, limit in LIMITS.items():
        widths = [784] + [WIDTH] * hidden + [10]
        calls = {"backprop": step(EnergyMLP(widths, seed=0).feedforward(), Backprop(), x[:BATCH], y[:BATCH])}
        for gamma in GAMMAS:
            for sweeps in SCHEDULES[:1] if hidden == 1 else SCHEDULES:
                calls[f"{gamma} {sweeps}"] = step(EnergyMLP(widths, gamma=gamma, seed=0), EqProp(sweeps=sweeps),
                                                  x[:BATCH], y[:BATCH])
        times = interleaved(calls, rounds=options.rounds)
        for gamma in GAMMAS:
            for sweeps in SCHEDULES[:1] if hidden == 1 else SCHEDULES:
                error, cosine = while_training(EnergyMLP(widths, gamma=gamma, seed=0), EqProp(sweeps=sweeps), x, y,
                                               steps=options.steps)
                ratio = over(times, f"{gamma} {sweeps}", "backprop")
                lines.append(f"| {hidden} | {limit} | {gamma} | {sweeps[0]}/{sweeps[1]} | {ratio} | {error:.0e} | "
                             f"{cosine:.4f} |")
                print(lines[-1], flush=True)
    return lines


def convolution(x: Tensor, y: Tensor, options: argparse.Namespace) -> list[str]:
    """A small convolutional network, as EnergyConv and as EnergyNet of an ordinary nn.Sequential."""
    lines = ["## Small convolution, 16 and 32 maps of 3 x 3, pooling by 2, batch 64", "",
             "Backprop is that of the network as it is usually written, then with weights stored channels last, which "
             "is faster.", "",
             "| model | pooling | gamma | sweeps | time / backprop (limit 2.3) | / backprop, channels last | error "
             "| cosine |", "|---|---|---|---|---|---|---|---|"]
    images, labels = x.view(-1, 1, 28, 28), y
    for pooling, gamma in (("average", 0.03), ("max", 0.01)):
        def sequential(pooling: str = pooling) -> nn.Sequential:
            pool: Callable[[int], nn.Module] = nn.AvgPool2d if pooling == "average" else nn.MaxPool2d
            with torch.random.fork_rng():
                torch.manual_seed(0)
                return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), pool(2), nn.Hardtanh(0, 1),
                                     nn.Conv2d(16, 32, 3, padding=1), pool(2), nn.Hardtanh(0, 1), nn.Flatten(),
                                     nn.Linear(1568, 10))

        models: dict[str, Callable[[], Any]] = {
            "EnergyConv": lambda pooling=pooling, gamma=gamma: EnergyConv((1, 28, 28), [16, 32], pooling=pooling,
                                                                           gamma=gamma),
            "EnergyNet": lambda make=sequential, gamma=gamma: EnergyNet(make(), gamma=gamma),
        }
        last = sequential().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        calls = {"backprop": step(sequential(), Backprop(), images[:64], labels[:64]),
                 "channels last": step(last, Backprop(), images[:64], labels[:64])}
        for name, make in models.items():
            calls[name] = step(make(), EqProp(sweeps=(1, 1)), images[:64], labels[:64])
        times = interleaved(calls, rounds=max(3, options.rounds // 2))
        for name, make in models.items():
            error, cosine = while_training(make(), EqProp(sweeps=(1, 1)), images, labels, steps=20, rows=32)
            lines.append(f"| {name} | {pooling} | {gamma} | 1/1 | {over(times, name, 'backprop')} | "
                         f"{over(times, name, 'channels last')} | {error:.0e} | {cosine:.4f} |")
            print(lines[-1], flush=True)
    return lines


def classic(x: Tensor, y: Tensor, options: argparse.Namespace) -> list[str]:
    """gamma 1, every unit at rest to 1e-4, 784-512-512-10: beside backprop and beside EP by autograd of the energy."""
    lines = ["## Classic feedback (gamma 1), 784-512-512-10, every unit at rest to 1e-4", "",
             ABOUT_CLASSIC, "",
             "| units | solver | sweeps taken | status | error | time / backprop (limit 8) | autograd EP steps, error "
             "| autograd EP / ours (limit 6) |", "|---|---|---|---|---|---|---|---|"]
    for activation, solver in itertools.product(("clipped", "smooth", "tanh"), ("overrelaxed", "sweeps")):
        if (activation, solver) != ("tanh", "sweeps"):  # 200 sweeps and not at rest, in either phase
            lines.append(classic_row(activation, solver, x[:BATCH], y[:BATCH], rounds=max(2, options.rounds // 3)))
            print(lines[-1], flush=True)
    return lines


def classic_row(activation: str, solver: str, x: Tensor, y: Tensor, *, rounds: int) -> str:
    from equilibrium import autograd_of_energy  # not at the top: it may be the script that runs this one

    model = EnergyMLP([784, WIDTH, WIDTH, 10], gamma=1.0, activation=activation, solver=solver, seed=0)
    rule = EqProp(sweeps=(MOST, MOST), tolerance=1e-4, on_divergence="record")
    calls = {"backprop": step(model.feedforward(), Backprop(), x, y), "ours": step(model, rule, x, y)}
    calls["ours"]()
    ended = rule.last
    assert ended is not None and ended.nudged is not None
    if activation == "tanh":
        ratio = over(interleaved(calls, rounds=2), "ours", "backprop")
        return f"| {activation} | {solver} | {ended.free.steps}/{ended.nudged.steps} | {ended.status} | | {ratio} | | |"
    truth = overrelaxed_to_rest(model, x, y)
    error = furthest(model, truth)
    steps, theirs = 0, float("inf")
    for steps in (15, 20, 30, 45, 60):
        model.zero_grad()
        autograd_of_energy(model, x, y, beta=0.02, sweeps=(steps, steps))
        theirs = furthest(model, truth)
        if theirs <= error:
            break
    count = steps
    calls["autograd"] = lambda: autograd_of_energy(model, x, y, beta=0.02, sweeps=(count, count))
    times = interleaved(calls, rounds=rounds)
    return (f"| {activation} | {solver} | {ended.free.steps}/{ended.nudged.steps} | {ended.status} | {error:.0e} | "
            f"{over(times, 'ours', 'backprop')} | {steps}, {theirs:.0e} | {over(times, 'autograd', 'ours')} |")


def overrelaxed_to_rest(model: EnergyMLP, x: Tensor, y: Tensor) -> list[Tensor]:
    """The gradient in float64 at the rest that over-relaxed sweeps find."""
    twin = copy.deepcopy(model).double()
    twin.solver = "overrelaxed"
    twin.zero_grad()
    EqProp(OneSided(1e-6), sweeps=(2 * MOST, 2 * MOST), tolerance=1e-9, on_divergence="record").backward(
        twin, x.double(), y)
    return [p.grad for p in twin.parameters() if p.grad is not None]


def furthest(model: nn.Module, truth: list[Tensor]) -> float:
    found = [p.grad for p in model.parameters() if p.grad is not None]
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, truth, strict=True))


def looped(x: Tensor, y: Tensor, options: argparse.Namespace) -> list[str]:
    """LoopedMLP with spectral normalisation: EP beside backprop through its 30 sweeps."""
    model = LoopedMLP(784, WIDTH, 10, seed=0)
    calls = {"ep": step(model, EqProp(sweeps=(30, 10)), x[:BATCH], y[:BATCH]),
             "bptt": step(model, EqProp("bptt", sweeps=(30, 1)), x[:BATCH], y[:BATCH])}
    times = interleaved(calls, rounds=max(3, options.rounds // 3))
    return ["## LoopedMLP, 512 units, spectral normalisation, 30/10 sweeps", "",
            f"EP takes {over(times, 'ep', 'bptt')} of the time of backprop through the 30 sweeps (limit 1)."]


def memory(x: Tensor, y: Tensor, options: argparse.Namespace) -> list[str]:
    """Peak memory at eight hidden layers."""
    model = EnergyMLP([784] + [WIDTH] * 8 + [10], gamma=0.03, seed=0)
    plain = model.feedforward()
    deflated = EnergyMLP([784] + [WIDTH] * 8 + [10], gamma=0.01, solver="deflated", seed=0)
    peaks = {}
    for name, net, rule in (("backprop", plain, Backprop()), ("one-sided 1/1", model, EqProp(sweeps=(1, 1))),
                            ("deflated, one-sided 1/1", deflated, EqProp(sweeps=(1, 1))),
                            ("one-sided 30/10", model, EqProp()), ("centered 30/10", model, EqProp(Centered(0.1))),
                            ("states, centered 30/10", model, EqProp(Centered(0.1), coordinates="states"))):
        call = step(net, rule, x[:BATCH], y[:BATCH])
        call()
        net.zero_grad()
        peaks[name] = measure_peak(call).bytes
    lines = ["## Peak memory, 784-512x8-10, batch 128", "", "| rule | peak, MB | / backprop (limit 2.2) |",
             "|---|---|---|"]
    return lines + [f"| {name} | {peak / 1e6:.1f} | {peak / peaks['backprop']:.2f} |" for name, peak in peaks.items()]


def while_training(
    model: Any, rule: EqProp, x: Tensor, y: Tensor, *, steps: int, rows: int = BATCH
) -> tuple[float, float]:
    """The largest error and smallest cosine of any layer's gradient at three moments of training."""
    optimiser, worst, least = torch.optim.Adam(model.parameters(), lr=1e-3), 0.0, 1.0
    for number in range(steps + 1):
        at = torch.arange(rows) + (number * rows) % (len(x) - rows)
        optimiser.zero_grad()
        rule.backward(model, x[at], y[at])
        if number in (0, steps // 4, steps):
            error, cosine = agreement(model, at_rest(model, x[at], y[at]))
            worst, least = max(worst, error), min(least, cosine)
        optimiser.step()
    return worst, least


def step(model: nn.Module, rule: Any, x: Tensor, y: Tensor) -> Callable[[], None]:
    def call() -> None:
        model.zero_grad()
        rule.backward(model, x, y)

    return call


def interleaved(calls: dict[str, Callable[[], None]], *, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of one call of each, round by round; the first round is left out."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            began, count = time.process_time(), 0
            while time.process_time() - began < 0.03:
                call()
                count += 1
            if number:
                times[name].append((time.process_time() - began) / count)
    return times


def over(times: dict[str, list[float]], name: str, base: str) -> str:
    paired = [a / b for a, b in zip(times[name], times[base], strict=True)]
    return f"{min(times[name]) / min(times[base]):.2f}, {statistics.median(paired):.2f}"


if __name__ == "__main__":
    main()
