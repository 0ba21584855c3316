"""How often verdicts are wrong where the truth is known: seeds x items, looks, and the bootstrap of ten values.

    python benchmarks/evidence.py [--repeats 300]     # some minutes; writes docs/results/evidence.md

Parity is simulated with the true gap exactly at the margin, where every PASS and every FAIL is an error. Answers of two
arms differ on few items. A share of the items answers every seed alike; the others are drawn anew at every seed; seeds
may also differ as a whole. Discordant items favour one arm alone, or both. All numbers are those of the library's own
functions on drawn answers.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.random import Generator
from scipy import special
from scipy import stats as scipy_stats

from assay import stats
from assay.results import Verdict
from assay.stats.answers import Answers
from assay.stats.crossed import crossed

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "evidence.md"
SEEDS, ITEMS, MARGINS = (3, 10, 20), (100, 1000, 10_000), (0.01, 0.03)
ALPHA = 0.05


@dataclass(frozen=True)
class Structure:
    """Where the differences come from: the share of items that is fixed, the sides, and the spread of whole seeds."""

    fixed: float
    both_sides: bool
    seed_spread: float
    """In margins."""

    @property
    def name(self) -> str:
        """For the page."""
        sides = "both sides" if self.both_sides else "one side"
        return f"{self.fixed:.0%} of the items fixed, {sides}, seeds {'alike' if not self.seed_spread else 'differ'}"


STRUCTURES = tuple(Structure(*each) for each in product((0.0, 0.8, 1.0), (False, True), (0.0, 0.5)))


@dataclass
class Rates:
    """Shares of simulated experiments."""

    seeds_pass: float = 0.0
    seeds_fail: float = 0.0
    crossed_pass: float = 0.0
    crossed_fail: float = 0.0
    power: float = 0.0


def draw(generator: Generator, seeds: int, items: int, gap: float, margin: float, structure: Structure) -> Answers:
    """Answers of ``seeds`` seeds to the same ``items``, with a population gap of ``gap``."""
    least = 0.03 if structure.both_sides else (0.0 if gap else margin)
    up, down = least, least - gap
    shares = [up, down, 1 - up - down]
    rows = np.zeros((seeds, items), dtype=np.int8)
    fixed = int(generator.binomial(items, structure.fixed))
    plus, minus, _ = generator.multinomial(fixed, shares)
    rows[:, :plus], rows[:, plus : plus + minus] = 1, -1
    for row in rows:
        plus, minus, _ = generator.multinomial(items - fixed, shares)
        places = fixed + generator.choice(items - fixed, plus + minus, replace=False)
        row[places[:plus]], row[places[plus:]] = 1, -1
        if structure.seed_spread:
            moved = generator.normal(0.0, structure.seed_spread * margin)
            places = generator.choice(items, int(generator.binomial(items, min(1.0, abs(moved)))), replace=False)
            row[places[row[places] == 0]] = math.copysign(1, moved)
    order = np.arange(items)
    return Answers(tuple(range(seeds)), tuple(rows), (order,) * seeds)


def rates(seeds: int, items: int, margin: float, structure: Structure, *, repeats: int, seed: int) -> Rates:
    """False verdicts at the margin and power at a gap of 0."""
    generator = np.random.default_rng(seed)
    quantile = float(special.stdtrit(seeds - 1, 1 - ALPHA))
    found = Rates()
    for _ in range(repeats):
        one = crossed(draw(generator, seeds, items, -margin, margin, structure))
        reach, distance = quantile * math.sqrt(one.over_seeds), one.mean + margin
        found.seeds_pass += distance > reach and margin - one.mean > reach
        found.seeds_fail += distance < -reach
        half = one.half(-margin, ALPHA)
        found.crossed_pass += distance > half and margin - one.mean > one.half(margin, ALPHA)
        found.crossed_fail += distance < -half
        healthy = crossed(draw(generator, seeds, items, 0.0, margin, structure))
        found.power += all(abs(healthy.mean - edge) > healthy.half(edge, ALPHA) for edge in (-margin, margin))
    return Rates(*(value / repeats for value in vars(found).values()))


def seeds_by_items(repeats: int) -> Iterator[tuple[float, int, int, dict[Structure, Rates]]]:
    """Every margin, number of items and number of seeds, with the rates of every structure."""
    for number, (margin, items, seeds) in enumerate(product(MARGINS, ITEMS, SEEDS)):
        yield margin, items, seeds, {
            structure: rates(seeds, items, margin, structure, repeats=repeats, seed=100 * number + k)
            for k, structure in enumerate(STRUCTURES)
        }  # fmt: skip


def looks(repeats: int) -> list[tuple[str, float, float]]:
    """False parities of several looks, each at 5 % and with alpha spent."""
    generator = np.random.default_rng(3)
    rows = []
    for chain in ((3, 10, 20), (3, 20), (10, 20), (5, 10, 20)):
        naive, spent, before = np.zeros(repeats, bool), np.zeros(repeats, bool), []
        data = generator.normal(size=(repeats, 20))
        for n in chain:
            p = scipy_stats.ttest_1samp(data[:, :n], 0.0, axis=1, alternative="greater").pvalue
            naive |= p <= ALPHA
            spent |= p <= stats.spending(range(n), before).level
            before.append(stats.Look(tuple(range(n)), "", verdict=Verdict.INCONCLUSIVE))
        rows.append((f"{', then '.join(map(str, chain))} seeds", float(naive.mean()), float(spent.mean())))
    for n in (3, 10):
        naive, spent, before = np.zeros(repeats, bool), np.zeros(repeats, bool), []
        for root in range(5):
            p = scipy_stats.ttest_1samp(generator.normal(size=(repeats, n)), 0.0, axis=1, alternative="greater").pvalue
            seeds = tuple(range(100 * root, 100 * root + n))
            naive |= p <= ALPHA
            spent |= p <= stats.spending(seeds, before).level
            before.append(stats.Look(seeds, "", verdict=Verdict.INCONCLUSIVE))
        rows.append((f"five root seeds, {n} seeds each", float(naive.mean()), float(spent.mean())))
    return rows


def bootstraps(repeats: int) -> list[tuple[str, float, float, float]]:
    """Coverage of 95 % intervals of the mean of ten values: BCa, studentised, t."""
    rows = []
    for name, truth in (("normal", 0.0), ("exponential", 1.0), ("lognormal", math.exp(0.5))):
        generator = np.random.default_rng(4)
        kind = {"normal": generator.normal, "exponential": generator.exponential, "lognormal": generator.lognormal}
        hits = np.zeros(3)
        for k in range(repeats):
            values = kind[name](size=10)
            bca = scipy_stats.bootstrap((values,), np.mean, n_resamples=999, rng=generator).confidence_interval
            ours, student = stats.bootstrap_interval(values, seed=k, resamples=999), stats.mean_interval(values)
            assert student is not None
            hits += [low <= truth <= high for low, high in (bca, (ours.low, ours.high), (student.low, student.high))]
        rows.append((name, *(float(hit) / repeats for hit in hits)))
    return rows


def page(repeats: int, table: list[tuple[float, int, int, dict[Structure, Rates]]]) -> str:
    """The committed page."""
    rows = [(rate.crossed_pass, m, i, s, structure) for m, i, s, by in table for structure, rate in by.items()]
    worst = max(rows, key=lambda row: row[0])
    error = math.sqrt(ALPHA * (1 - ALPHA) / repeats)
    every = [rate.crossed_pass for *_, by in table for rate in by.values()]
    lines = [
        "# Evidence, simulated",
        "",
        "Written by `python benchmarks/evidence.py`; do not edit.",
        "",
        "## Seeds x items",
        "",
        f"Parity with the true gap exactly at the margin: every PASS and every FAIL is an error. {len(STRUCTURES)} "
        f"structures of the answers, {repeats} experiments each (standard error of 5 %: {error:.1%}). Shown is the "
        "worst structure; power (the chance of a PASS at a true gap of 0) from the worst structure to the best.",
        "",
        "| margin | items | seeds | seeds alone: false PASS | false FAIL | crossed: false PASS | false FAIL | power |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for margin, items, seeds, by in table:
        tops = [max(getattr(rate, name) for rate in by.values())
                for name in ("seeds_pass", "seeds_fail", "crossed_pass", "crossed_fail")]  # fmt: skip
        powers = sorted(rate.power for rate in by.values())
        cells = " | ".join(f"{value:.1%}" for value in tops)
        lines.append(f"| {100 * margin:g} pp | {items:,} | {seeds} | {cells} | {powers[0]:.0%} to {powers[-1]:.0%} |")
    lines += [
        "",
        f"Over all {len(every)} settings the crossed test passes {np.mean(every):.1%} on average and {worst[0]:.1%} at "
        f"worst ({100 * worst[1]:g} pp, {worst[2]:,} items, {worst[3]} seeds, {worst[4].name}); the largest of "
        f"{len(every)} rates of exactly 5 % would be about {_largest(len(every), repeats):.1%}. A hundred items cannot "
        "show a margin of three points: the honest power there is 0.",
        "",
        "### Power at a true gap of 0, by structure (10 seeds)",
        "",
        "| structure | " + " | ".join(f"{100 * m:g} pp, {i:,} items" for m, i, s, _ in table if s == 10) + " |",
        "|---|" + "---|" * sum(s == 10 for *_, s, _ in table),
    ]
    for structure in STRUCTURES:
        cells = " | ".join(f"{by[structure].power:.0%}" for *_, s, by in table if s == 10)
        lines.append(f"| {structure.name} | {cells} |")
    lines += ["", "## Looks", "", "False parities of paired t tests at the margin, 100,000 experiments.", "",
              "| looks | each at 5 % | alpha spent |", "|---|---|---|"]  # fmt: skip
    lines += [f"| {name} | {naive:.1%} | {spent:.1%} |" for name, naive, spent in looks(100_000)]
    lines += ["", "## Ten values", "", "Coverage of nominal 95 % intervals of a mean of ten values, 1,000 samples.", ""]
    lines += ["| distribution | BCa | studentised (`bootstrap_interval`) | t (`mean_interval`) |", "|---|---|---|---|"]
    lines += [f"| {name} | {a:.1%} | {b:.1%} | {c:.1%} |" for name, a, b, c in bootstraps(1000)]
    return "\n".join(lines) + "\n"


def _largest(count: int, repeats: int) -> float:
    """The median of the largest of ``count`` rates of 5 %."""
    return float(scipy_stats.binom.ppf(0.5 ** (1 / count), repeats, ALPHA)) / repeats


def main() -> None:
    """Simulate and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=300)
    repeats = parser.parse_args().repeats
    began, table = time.process_time(), []
    for row in seeds_by_items(repeats):
        table.append(row)
        print(f"{100 * row[0]:g} pp, {row[1]} items, {row[2]} seeds: {time.process_time() - began:.0f} s", flush=True)
    PAGE.write_text(page(repeats, table), encoding="utf-8")
    print(f"{PAGE.name} written, {time.process_time() - began:.0f} s of processor time")


if __name__ == "__main__":
    main()
