"""How often verdicts are wrong where the truth is known: seeds x items, looks, and the bootstrap of ten values.

    python benchmarks/evidence.py [--repeats 3000] [--records FOLDER]     # about half an hour of one core

writes docs/benchmarks/evidence.md; with ``--records`` every finished setting is kept, and the same command goes on.

Parity is simulated with the true gap exactly at the margin, where every PASS and every FAIL is an error. Answers of two
arms differ on few items. A share of the items answers every seed alike; the others are drawn anew at every seed; seeds
may also differ as a whole. Discordant items favour one arm alone, or both. Seeds share one test set, or each draws its
own from a pool three times as large. All numbers are those of the library's own functions on drawn answers.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
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

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "evidence.md"
SEEDS, ITEMS, MARGINS = (3, 5, 10, 20), (100, 1000, 10_000), (0.01, 0.03)
OWN = {(0.01, 1000), (0.03, 100)}
"""Margins and items at which every seed also draws a test set of its own."""
POOL = 3
"""How many times as large as a test set the pool is that seeds draw their own from."""
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


def draw(
    generator: Generator, seeds: int, items: int, gap: float, margin: float, structure: Structure, *, own: bool = False
) -> Answers:
    """Answers of ``seeds`` seeds to the same ``items``, or to ``own`` ones, with a population gap of ``gap``."""
    everything = POOL * items if own else items
    least = 0.03 if structure.both_sides else (0.0 if gap else margin)
    up, down = least, least - gap
    chances = generator.random((seeds, everything), dtype=np.float32)
    fixed = int(generator.binomial(everything, structure.fixed))
    chances[:, :fixed] = chances[0, :fixed]
    rows = (chances < up).astype(np.int8) - (chances >= 1 - down)
    if structure.seed_spread:
        moved = generator.normal(0.0, structure.seed_spread * margin, (seeds, 1))
        places = generator.random((seeds, everything), dtype=np.float32) < np.abs(moved)
        rows = np.where(places & (rows == 0), np.sign(moved).astype(np.int8), rows)
    if not own:
        return Answers(tuple(range(seeds)), tuple(rows), (np.arange(items),) * seeds)
    seen = tuple(generator.choice(everything, items, replace=False) for _ in range(seeds))
    return Answers(tuple(range(seeds)), tuple(row[each] for row, each in zip(rows, seen, strict=True)), seen)


def rates(
    seeds: int, items: int, margin: float, structure: Structure, *, repeats: int, seed: int, own: bool = False
) -> Rates:
    """False verdicts at the margin and power at a gap of 0."""
    generator = np.random.default_rng(seed)
    quantile = float(special.stdtrit(seeds - 1, 1 - ALPHA))
    found = Rates()
    for _ in range(repeats):
        one = crossed(draw(generator, seeds, items, -margin, margin, structure, own=own))
        reach, distance = quantile * math.sqrt(one.over_seeds), one.mean + margin
        found.seeds_pass += distance > reach and margin - one.mean > reach
        found.seeds_fail += distance < -reach
        half = one.half(-margin, ALPHA)
        found.crossed_pass += distance > half and margin - one.mean > one.half(margin, ALPHA)
        found.crossed_fail += distance < -half
        healthy = crossed(draw(generator, seeds, items, 0.0, margin, structure, own=own))
        found.power += all(abs(healthy.mean - edge) > healthy.half(edge, ALPHA) for edge in (-margin, margin))
    return Rates(*(float(value) / repeats for value in vars(found).values()))


@dataclass(frozen=True)
class Setting:
    """A size of experiment, with the rates of every structure in the order of ``STRUCTURES``."""

    margin: float
    items: int
    seeds: int
    own: bool
    by: tuple[Rates, ...]

    def worst(self, name: str) -> float:
        """The largest of a rate over the structures."""
        return float(max(getattr(rate, name) for rate in self.by))

    @property
    def size(self) -> str:
        """For the page."""
        return f"{100 * self.margin:g} pp, {self.items:,} items, {self.seeds} seeds"


def settings(repeats: int, *, own: bool, records: Path | None) -> Iterator[Setting]:
    """Every margin, number of items and number of seeds; those in ``records`` are read, the others written there."""
    for number, (margin, items, seeds) in enumerate(product(MARGINS, ITEMS[:2] if own else ITEMS, SEEDS)):
        if own and (margin, items) not in OWN:
            continue
        kept = records / f"{repeats}-{'own' if own else 'one'}-{margin}-{items}-{seeds}.json" if records else None
        if kept is not None and kept.exists():
            by = tuple(Rates(**each) for each in json.loads(kept.read_text(encoding="utf-8")))
        else:
            by = tuple(
                rates(seeds, items, margin, structure, repeats=repeats, seed=100 * number + k, own=own)
                for k, structure in enumerate(STRUCTURES)
            )
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps([asdict(each) for each in by]), encoding="utf-8")
        yield Setting(margin, items, seeds, own, by)


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
        hits = np.zeros(3)
        for k in range(repeats):
            values = getattr(generator, name)(size=10)
            bca = scipy_stats.bootstrap((values,), np.mean, n_resamples=999, rng=generator).confidence_interval
            ours, student = stats.bootstrap_interval(values, seed=k, resamples=999), stats.mean_interval(values)
            assert student is not None
            hits += [low <= truth <= high for low, high in (bca, (ours.low, ours.high), (student.low, student.high))]
        rows.append((name, *(float(hit) / repeats for hit in hits)))
    return rows


def page(repeats: int, shared: list[Setting], own: list[Setting]) -> str:
    """The committed page."""
    error = math.sqrt(ALPHA * (1 - ALPHA) / repeats)
    lines = [
        "# Evidence, simulated",
        "",
        "Written by `python benchmarks/evidence.py`; do not edit.",
        "",
        "## Seeds x items",
        "",
        f"Parity with the true gap exactly at the margin: every PASS and every FAIL is an error. {len(STRUCTURES)} "
        f"structures of the answers, {repeats:,} experiments each (standard error of 5 %: {error:.1%}). Shown is the "
        "worst structure; power (the chance of a PASS at a true gap of 0) from the worst structure to the best.",
        "",
        *_table(shared),
        "",
        _summary(shared, repeats),
        "",
        "### Power at a true gap of 0, by structure (10 seeds)",
        "",
        "| structure | " + " | ".join(f"{100 * s.margin:g} pp, {s.items:,} items" for s in _ten(shared)) + " |",
        "|---|" + "---|" * len(_ten(shared)),
    ]
    for k, structure in enumerate(STRUCTURES):
        lines.append(f"| {structure.name} | " + " | ".join(f"{s.by[k].power:.0%}" for s in _ten(shared)) + " |")
    lines += [
        "",
        "### Test sets of their own",
        "",
        f"Every seed draws its test items from a pool {POOL} times as large; an item that two seeds saw is known to be "
        "one.",
        "",
        *_table(own),
        "",
        _summary(own, repeats),
    ]
    lines += ["", "## Looks", "", "False parities of paired t tests at the margin, 100,000 experiments.", "",
              "| looks | each at 5 % | alpha spent |", "|---|---|---|"]  # fmt: skip
    lines += [f"| {name} | {naive:.1%} | {spent:.1%} |" for name, naive, spent in looks(100_000)]
    lines += ["", "## Ten values", "", "Coverage of nominal 95 % intervals of a mean of ten values, 1,000 samples.", ""]
    lines += ["| distribution | BCa | studentised (`bootstrap_interval`) | t (`mean_interval`) |", "|---|---|---|---|"]
    lines += [f"| {name} | {a:.1%} | {b:.1%} | {c:.1%} |" for name, a, b, c in bootstraps(1000)]
    return "\n".join(lines) + "\n"


def _ten(found: list[Setting]) -> list[Setting]:
    return [setting for setting in found if setting.seeds == 10]


def _table(found: list[Setting]) -> list[str]:
    """One row per size of experiment."""
    lines = [
        "| margin | items | seeds | seeds alone: false PASS | false FAIL | crossed: false PASS | false FAIL | power |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for s in found:
        names = ("seeds_pass", "seeds_fail", "crossed_pass", "crossed_fail")
        tops = " | ".join(f"{s.worst(name):.1%}" for name in names)
        powers = sorted(rate.power for rate in s.by)
        size = f"{100 * s.margin:g} pp | {s.items:,} | {s.seeds}"
        lines.append(f"| {size} | {tops} | {powers[0]:.0%} to {powers[-1]:.0%} |")
    return lines


def _summary(found: list[Setting], repeats: int) -> str:
    """The mean and the largest rate of false PASSes, beside what the largest would be were all of them 5 %."""
    rows = [(rate.crossed_pass, s.size, structure.name)
            for s in found for structure, rate in zip(STRUCTURES, s.by, strict=True)]  # fmt: skip
    worst, size, structure = max(rows)
    over, average = sum(rate > ALPHA for rate, *_ in rows), np.mean([rate for rate, *_ in rows])
    return (
        f"Over all {len(rows)} settings the crossed test passes falsely {average:.1%} of the time on average and "
        f"{worst:.1%} at worst ({size}: {structure}); {over} of the {len(rows)} rates are above 5 %, and the largest "
        f"of {len(rows)} rates of exactly 5 % would be about {_largest(len(rows), repeats):.1%}."
    )


def _largest(count: int, repeats: int) -> float:
    """The median of the largest of ``count`` rates of 5 %."""
    return float(scipy_stats.binom.ppf(0.5 ** (1 / count), repeats, ALPHA)) / repeats


def main() -> None:
    """Simulate and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3000)
    parser.add_argument("--records", type=Path, help="keep finished settings here and go on from them")
    asked = parser.parse_args()
    began, found = time.process_time(), {False: list[Setting](), True: list[Setting]()}
    for own in (False, True):
        for setting in settings(asked.repeats, own=own, records=asked.records):
            found[own].append(setting)
            print(f"{setting.size}{', own' * own}: {time.process_time() - began:.0f} s", flush=True)
    PAGE.write_text(page(asked.repeats, found[False], found[True]), encoding="utf-8")
    print(f"{PAGE.name} written, {time.process_time() - began:.0f} s of processor time")


if __name__ == "__main__":
    main()
