"""How fast the symmetry auditor is beside the loop most people write, and what its parts cost in forward passes.

    python benchmarks/symmetry.py             # about a minute on a free core; writes docs/benchmarks/symmetry.md
    python benchmarks/symmetry.py --rounds 3  # fewer rounds

CPU time of one thread; the contestants take turns within every round, and ratios are taken within a round. Reported:
the median ratio over rounds, the smallest and the largest.

What is a fair comparison? A loop that does the same job. Beside the auditor in one precision that is the float32 loop;
beside the auditor in two precisions it is a loop that runs float32 and float64 at every transformation, since nothing
less tells a bug from rounding. Most people write the float32 loop, so that ratio is shown as well.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.audits.symmetry import layout, stages
from assay.audits.symmetry.facts import Facts, Options
from assay.audits.symmetry.measure.endtoend import measure
from assay.audits.symmetry.measure.rounding import compare
from assay.audits.symmetry.subject import Subject, prepare
from assay.seeding import torch_generator

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "planted" / "symmetry"))
from planted_symmetry.families.egnn import EGNN  # noqa: E402
from planted_symmetry.operators.euclidean import vector_bias  # noqa: E402
from planted_symmetry.plant import Family, call, healthy, tensors  # noqa: E402
from planted_symmetry.truth import bind, tensors_of  # noqa: E402

TRANSFORMS, BATCHES = 100, (1, 4, 16, 64)
LEAST, AT_BATCH_ONE = 0.9, 20.0


class SmallCnn(nn.Module):
    """Three circular convolutions, invariant under circular shifts."""

    def __init__(self) -> None:
        super().__init__()
        circular = {"padding": 1, "padding_mode": "circular"}
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, **circular), nn.ReLU(), nn.Conv2d(8, 8, 3, **circular), nn.ReLU(),
            nn.Conv2d(8, 8, 3, **circular), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


CNN = Family(
    "CNN",
    SmallCnn,
    lambda n, generator: torch.randn(n, 1, 16, 16, generator=generator),
    sym.Symmetry(sym.Shifts(), inputs=sym.image(-2, -1), outputs=sym.invariant()),
)


def loop(model: nn.Module, family: Family, x: Any, elements: sym.Elements, *, cached: bool) -> float:
    """The loop: transform, run, run the untransformed input again (unless cached), transform the output, compare."""
    inputs, outputs, worst = tensors_of(family.symmetry.inputs), tensors_of(family.symmetry.outputs), 0.0
    keys = list(x) if isinstance(x, dict) else None
    with torch.no_grad():
        y = tensors(call(model, x))
        for number in range(elements.count):
            one = elements[number : number + 1]
            moved = [rep.act(one, leaf.unsqueeze(0))[0] for rep, leaf in zip(inputs, tensors(x), strict=True)]
            there = tensors(call(model, dict(zip(keys, moved, strict=True)) if keys else moved[0]))
            y = y if cached else tensors(call(model, x))
            for rep, a, b in zip(outputs, there, y, strict=True):
                wanted = rep.act(one, b.unsqueeze(0))[0]
                worst = max(worst, float(torch.norm(a - wanted) / (torch.norm(wanted) + 1e-8)))
    return worst


def loop_both(models: tuple[nn.Module, nn.Module], family: Family, x: Any, elements: sym.Elements) -> float:
    """The loop in two precisions: errors of both, and what rounding allows at every pair; f(x) is cached."""
    inputs, outputs, worst = tensors_of(family.symmetry.inputs), tensors_of(family.symmetry.outputs), 0.0
    keys, dtypes = list(x) if isinstance(x, dict) else None, (torch.float32, torch.float64)

    def outputs_at(leaves: list[Tensor]) -> list[list[Tensor]]:
        found = []
        for model, dtype in zip(models, dtypes, strict=True):
            fed = [leaf.to(dtype) for leaf in leaves]
            given = dict(zip(keys, fed, strict=True)) if keys else fed[0]
            found.append([y.double() for y in tensors(call(model, given))])
        return found

    with torch.no_grad():
        here = outputs_at(tensors(x))
        for number in range(elements.count):
            one = elements[number : number + 1]
            moved = [rep.act(one, leaf.double().unsqueeze(0))[0] for rep, leaf in zip(inputs, tensors(x), strict=True)]
            for rep, low, high, low_here, high_here in zip(outputs, *outputs_at(moved), *here, strict=True):
                wanted = [rep.act(one, y.unsqueeze(0))[0] for y in (low_here, high_here)]
                bound = torch.norm(low - high) + torch.norm(wanted[0] - wanted[1])
                errors = torch.stack([torch.norm(low - wanted[0]), torch.norm(high - wanted[1])]) / bound
                worst = max(worst, float(errors.max()))
    return worst


def ready(model: nn.Module, family: Family, x: Any, *, both: bool) -> Subject:
    """The auditor's subject; without ``both`` it measures in one precision, as the loop does."""
    subject = prepare(model, x, family.symmetry, seed=0, inputs=64)
    layout.arrange(subject, x, 64, stochastic=False)
    if not both:
        subject.high = None
    return subject


def batched(subject: Subject, elements: sym.Elements) -> None:
    """Every transformed input in as few passes as fit, errors and all; f(x) is computed once, within the time."""
    subject._base.clear()
    if subject.high is not None:
        measure(subject, lambda group: elements, spreads={})
        return
    there = subject.over(subject.cases[0], elements, "low")
    for index in subject.tested:
        compare(subject, subject.output(index), elements, case=0, index=index, low=there[index], high=None)


def race(family: Family, batch: int, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of every contestant in every round."""
    model = healthy(family, 0)
    x = family.sample(batch, torch_generator(0, "benchmark", batch))
    elements = bind(family.symmetry, x).sample(TRANSFORMS, torch_generator(0, "elements"))
    one, two = ready(model, family, x, both=False), ready(model, family, x, both=True)
    single = sym.Elements({name: part.float() if part.is_floating_point() else part
                           for name, part in elements.parts.items()})  # fmt: skip
    models = (copy.deepcopy(model).float(), copy.deepcopy(model).double())
    contestants: dict[str, Callable[[], object]] = {
        "loop": lambda: loop(model, family, x, single, cached=False),
        "loop, f(x) cached": lambda: loop(model, family, x, single, cached=True),
        "loop in both": lambda: loop_both(models, family, x, elements),
        "one precision": lambda: batched(one, elements),
        "two precisions": lambda: batched(two, elements),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, run in contestants.items():
            start = time.process_time()
            run()
            if number:  # the first round warms up
                seconds[name].append(time.process_time() - start)
    return seconds


def ratios(seconds: dict[str, list[float]], slow: str, fast: str) -> list[float]:
    """How many times longer ``slow`` took, round by round."""
    return [a / b for a, b in zip(seconds[slow], seconds[fast], strict=True)]


def costs() -> list[tuple[str, str, str, str]]:
    """Calls and inputs of every stage of an audit of an EGNN, clean and with a bias on vectors."""
    rows: list[tuple[str, str, str, str]] = []
    for title, broken in (("clean", False), ("bias on vectors", True)):
        model = healthy(EGNN, 0)
        if broken:
            vector_bias(model, 1, 0.1, torch_generator(0, "bias"))
        sample = EGNN.sample(50, torch_generator(0, "costs"))
        rows += _stages(title, prepare(model, sample, EGNN.symmetry, seed=0, inputs=50), model, sample)
    return rows


def _stages(title: str, subject: Subject, model: nn.Module, sample: Any) -> list[tuple[str, str, str, str]]:
    """The stages of ``stages.run`` one by one; each begins with the facts that those before it left."""
    rows: list[tuple[str, str, str, str]] = []
    forward, cost = _forward_seconds(model, sample), subject.cost

    @contextlib.contextmanager
    def counted(name: str) -> Iterator[None]:
        calls, inputs, start = cost.calls, cost.inputs, time.process_time()
        yield
        spent = (time.process_time() - start) / forward
        rows.append((f"{title}: {name}", str(cost.calls - calls), str(cost.inputs - inputs), f"{spent:.0f}"))

    with counted("guards"):
        subject, guards, identity = stages.run_guards(subject, Options(), sample)
    facts = Facts(subject, Options(), "EGNN", guards=guards)
    with counted("end to end"):
        facts = dataclasses.replace(facts, forward=stages.run_end_to_end(facts, identity))
    with counted("other declarations and places"):
        facts = dataclasses.replace(facts, places=stages.run_places(facts))
    with counted("gradients and differences"):
        facts = dataclasses.replace(facts, backward=stages.run_gradients(facts))
    with counted("under other conditions"):
        stages.run_again(facts)
    assert subject.cost is cost
    return rows


def _forward_seconds(model: nn.Module, sample: Any) -> float:
    """CPU seconds of one forward pass of 50 inputs in float32, the median of twenty."""
    found = []
    with torch.no_grad():
        for _ in range(20):
            start = time.process_time()
            call(model, sample)
            found.append(time.process_time() - start)
    return statistics.median(found)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Markdown."""
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)])


def spread(values: list[float]) -> str:
    """Median with the smallest and the largest."""
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    """Races, costs, the page."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks" / "symmetry.md")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    rows, worst, first = [], ([], [], []), []
    for family in (EGNN, CNN):
        for batch in BATCHES:
            seconds = race(family, batch, options.rounds)
            same = ratios(seconds, "loop", "one precision")
            both = ratios(seconds, "loop in both", "two precisions")
            usual = ratios(seconds, "loop", "two precisions")
            rows.append((family.name, str(batch), spread(same),
                         spread(ratios(seconds, "loop, f(x) cached", "one precision")), spread(both), spread(usual)))
            for kept, ratio in zip(worst, (same, both, usual), strict=True):
                kept.append(statistics.median(ratio))
            first += [statistics.median(same)] if batch == 1 else []
            print(" | ".join(rows[-1]), flush=True)
    least = [min(kept) for kept in worst]
    met = f"Loop / auditor in one precision at batch 1: {', '.join(f'{one:.1f}x' for one in first)} (target " \
          f"{AT_BATCH_ONE:g}x). Slowest anywhere (target {LEAST:g}x): {least[0]:.2f}x in one precision; " \
          f"{least[1]:.2f}x in two beside the loop in two; {least[2]:.2f}x in two beside the loop in one."
    text = "\n\n".join([
        "# Speed of the symmetry auditor",
        "Written by `python benchmarks/symmetry.py`; do not edit. CPU time of one thread; contestants take turns "
        f"within a round, ratios are taken within rounds: the median of {options.rounds} rounds, and the extremes.",
        f"## {TRANSFORMS} transformations, beside a loop",
        "How many times longer the loop takes. The loop runs the model at every transformed input and at the original "
        "one, as in the usual template; the second column gives it a cached f(x). The auditor puts many transformed "
        "batches into one pass, as many as fit into the cache. Two precisions tell a bug from rounding: the loop that "
        "does so runs float32 and float64 at every transformation (f(x) cached) and is the like-for-like; the auditor "
        "runs float32 at every pair and float64 at a sample and at every pair whose float32 error leaves room for an "
        "error above ten rounding bounds. The last column sets the same audit beside the float32 "
        "loop, which cannot tell.",
        table(("model", "batch", "loop / auditor", "cached loop / auditor", "both: loop / auditor in two precisions",
               "float32 loop / auditor in two precisions"), rows),
        met,
        "## What the parts of an audit cost",
        "An EGNN of three blocks, 50 inputs and the default number of transformations. Time is CPU time over that of "
        "one forward pass of the 50 inputs in float32; it holds the float64 passes, the transformations and the tests.",
        table(("audit: part", "calls of the model", "inputs sent through", "time in forward passes"), costs()),
    ])  # fmt: skip
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
