"""How the two hand-set numbers of the symmetry auditor lie beside what clean and planted models show.

    python benchmarks/symmetry_calibration.py    # some minutes; writes docs/results/symmetry-calibration.md

ESTIMATE_SAFETY: a model without a float64 run is judged by an estimate of its rounding. Clean models are audited as if
they had none: the largest error over the estimate says how much room the factor leaves, and planted models of falling
magnitude say what the room costs.

CLOSE: a feature that no candidate representation describes is excused if it keeps inner products, unless a candidate is
off by less than CLOSE. Clean models show how far off the best candidate of an undescribed feature is; planted models
show how far off the best candidate of a broken feature is where inner products miss the break.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.audits.symmetry import layout
from assay.audits.symmetry.drawing import ROWS, few
from assay.audits.symmetry.facts import Facts, Options
from assay.audits.symmetry.locate.localise import CLOSE, Location, locate
from assay.audits.symmetry.measure.endtoend import measure
from assay.audits.symmetry.measure.perturbed import ESTIMATE_SAFETY
from assay.audits.symmetry.measure.tolerance import judge
from assay.audits.symmetry.subject import Subject, prepare

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "planted" / "symmetry"))
from planted_symmetry.families import families  # noqa: E402
from planted_symmetry.operators import operators  # noqa: E402
from planted_symmetry.plant import Family, healthy, planted  # noqa: E402
from planted_symmetry.truth import measure as measure_truth  # noqa: E402

INPUTS, ELEMENTS = 16, 20


@dataclass
class Seen:
    """What one family shows."""

    family: str
    clean: list[float] = field(default_factory=list)
    """Largest error over the estimate of rounding, per clean model."""
    excused: list[float] = field(default_factory=list)
    """Clean models: relative error of the best candidate of a feature that none describes and that keeps products."""
    missed: list[float] = field(default_factory=list)
    """Planted models: the same number where a broken feature keeps inner products to rounding."""
    found: list[tuple[float, bool]] = field(default_factory=list)
    """Planted models: (true error over float32 rounding, found without float64)."""


def subject_of(model: nn.Module, family: Family, seed: int) -> Facts:
    """The facts of an audit that has gone through its guards."""
    subject = prepare(model, family.sample, family.symmetry, seed=seed, inputs=INPUTS)
    facts = Facts(subject, Options(seed, inputs=INPUTS, transforms=ELEMENTS), family.name)
    layout.arrange(subject, family.sample, INPUTS, stochastic=False)
    return facts


def estimated_excess(facts: Facts) -> float:
    """The largest error over the estimate of rounding, as if there were no float64."""
    subject, worst = facts.subject, 0.0
    high, subject.high = subject.high, None
    for name in subject.group().generators():
        draw = few(facts, name, ELEMENTS)
        for errors in measure(subject, draw, spreads={}):
            worst = max(worst, judge(errors, low_dtype=subject.low_dtype).excess)
    subject.high = high
    return worst


def located(facts: Facts) -> list[Location]:
    """The profile of every generator at the first inputs and elements."""
    subject: Subject = facts.subject
    rows = list(range(min(ROWS, subject.batch(0))))
    names = list(subject.group().generators())
    return [locate(subject, name, 0, rows=rows, elements=few(facts, name)(subject.group())[:3]) for name in names]


def kept_though_undescribed(locations: list[Location], module: str | None = None) -> list[float]:
    """Relative errors of the best candidate where none fits and inner products are kept; of one module's outputs."""
    places = [place for location in locations for place in location.places]
    return [
        place.relative
        for place in places
        if not place.fits and place.gram_excess is not None and place.gram_excess <= 1 and not place.centred
        if module is None or (place.event.module == module and place.event.kind == "exit")
    ]


def study(family: Family, seeds: int) -> Seen:
    """Clean models of several seeds, then every operator at falling magnitudes."""
    seen = Seen(family.name)
    for seed in range(seeds):
        for trained in (False, True):
            facts = subject_of(healthy(family, seed, trained=trained), family, seed)
            seen.clean.append(estimated_excess(facts))
            seen.excused += kept_though_undescribed(located(facts))
    for operator in [one for one in operators() if one.family == family.name]:
        for magnitude in (1e-2, 1e-5) if len(operator.magnitudes) > 1 else ():
            subject = planted(family, operator, operator.depths[0], magnitude)
            facts = subject_of(subject.model, family, 0)
            truth = measure_truth(subject.model, family)
            seen.found.append((max(truth.excess.values()), estimated_excess(facts) > ESTIMATE_SAFETY))
            broken = [location for location in located(facts) if location.generator in truth.broken]
            seen.missed += kept_though_undescribed(broken, subject.place)
    return seen


def page(studied: list[Seen], seeds: int) -> str:
    """The page; every number is computed here from what was seen."""
    rows = []
    for one in studied:
        sizes = [f"{sum(ok for e, ok in one.found if low < e <= high)}/{sum(low < e <= high for e, _ in one.found)}"
                 for low, high in ((10, 100), (100, 1000), (1000, float("inf")))]  # fmt: skip
        rows.append((one.family, str(len(one.clean)), f"{sorted(one.clean)[len(one.clean) // 2]:.2g}",
                     f"{max(one.clean):.2g}", *sizes))  # fmt: skip
    others = [
        (one.family, str(len(one.excused)), _extremes(one.excused, min), str(len(one.missed)),
         _extremes(one.missed, max))
        for one in studied
    ]  # fmt: skip
    missed = [value for one in studied for value in one.missed]
    above = sum(value > CLOSE for value in missed)
    largest = max(max(one.clean) for one in studied)
    return "\n\n".join([
        "# Symmetry auditor: two hand-set numbers",
        "Written by `python benchmarks/symmetry_calibration.py`; do not edit. Both numbers were set by hand before "
        "this measurement; the page says what they leave and what they cost, on the families of the planted suite.",
        f"## ESTIMATE_SAFETY = {ESTIMATE_SAFETY:g}",
        "Without float64, rounding is estimated by moving weights and inputs by one rounding. The first columns give "
        f"the largest error over that estimate on clean models ({seeds} seeds, initial and trained), the others the "
        "planted models found without float64, by their true error over float32 rounding.",
        _table(("family", "clean models", "median", "largest", "10 to 100 found", "100 to 1000", "above 1000"), rows),
        f"The largest is {largest:.2g}: the factor leaves {ESTIMATE_SAFETY / largest:.1f} times that. It is an "
        "extrapolation for other architectures, and the limitations of every such report say so.",
        f"## CLOSE = {CLOSE:g}",
        "Relative error of the best candidate at features that keep inner products to rounding though no candidate "
        "fits. On clean models such a feature is of a kind the candidates do not know and must be excused (its error "
        "must lie above CLOSE); on planted ones it is the output of the guilty module under a generator that is "
        "broken, and must not be (below).",
        _table(("family", "clean: features", "smallest", "planted: features", "largest"), others),
        f"{above} of the {len(missed)} planted features lie above CLOSE: under this sample of elements they would be "
        "excused and the break named one module late.",
    ]) + "\n"  # fmt: skip


def _extremes(values: list[float], pick: Any) -> str:
    return f"{pick(values):.2g}" if values else "none"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)])


def main() -> None:
    """Studies every family and writes the page."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seeds", type=int, default=2)
    arguments.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "symmetry-calibration.md")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    studied = []
    for family in families().values():
        studied.append(study(family, options.seeds))
        print(studied[-1].family, max(studied[-1].clean), len(studied[-1].excused), len(studied[-1].missed), flush=True)
    text = page(studied, options.seeds)
    options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
