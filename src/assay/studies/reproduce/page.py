"""The results page: every published figure beside ours, as Markdown, from the records alone.

python -m assay.studies.reproduce.page docs/results/data/fa-protocol > docs/results/fa-protocol.md
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.studies.reproduce.compare import Reproduced, by_arm, compare_all
from assay.studies.reproduce.sections import (
    interval,
    ladder_section,
    length_section,
    penalty_section,
    shallow_section,
    sizes,
    table,
    verdict_section,
)

Record = Mapping[str, Any]
ASSUMED = (
    "The source's description leaves these open, and each may be why a figure differs ([a search over the open "
    "choices](fa-readings.md)): feedback matrices are "
    "N(0, 1/d) with d the width of the stream; the embedding is trained by the signal at h_0 (B_0 e under DFA, B_0 a_1 "
    "under block FA); block losses and penalties are sums over features and means over the batch; the cosine schedule "
    "steps once per epoch and ends at 0; pixels are normalised per channel and crops are padded with the mean colour; "
    "|h| and |g| are means over samples of per-sample norms, |g| of the batch-mean loss. Equilibrium propagation on "
    "this architecture and ViT-Mini were not run here; the latter is a command (`--arch vit`). "
    "The source's mean cosine and its null are taken to be of DFA at lambda 0.01, averaged over h_1 to h_L; "
    "its gains over frozen are differences of mean accuracies."
)
ORDER = ("bp", "frozen", "fa-layer", "fa-block", "dfa-block")


def read_records(folder: str | Path) -> list[dict[str, Any]]:
    """Every record in a folder of JSON files, by name."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).glob("*.json"))]


def render(records: Sequence[Record], source: str) -> str:
    """The whole page."""
    arms = by_arm(record for record in records if record["setting"]["arch"] == "resmlp")
    comparisons = compare_all(records)
    counted = Counter(c.word for c in comparisons)
    parts = [
        "# The feedback-alignment protocol, run again",
        _introduction(records, source),
        "## Does it reproduce?",
        f"Of {len(comparisons)} published figures {counted['yes']} reproduce, {counted['no']} do not, "
        f"{counted['better than published']} are better than published (not the same, yet not short of it), "
        f"{counted['undecided']} are undecided and {counted['not run']} were not run. Margins, fixed in the code: "
        "2 points of accuracy, half a decade for sizes printed as powers of ten, 0.1 for cosines; the interval of the "
        "difference (90 %, Welch where the source gives a spread) must lie inside.",
        _reproduction_table(comparisons),
        "## Is it the length?",
        length_section(records),
        "## Our runs",
        "Means over seeds with 95 % t intervals; sizes are geometric means.",
        _main_table(arms),
        "## Depth by depth",
        _depth_table(arms),
        "## Verdicts, and does depth pay?",
        verdict_section(arms, ORDER),
        "## Penalty sweep",
        "The source trained these for 30 epochs; where ours have 30 too, like is compared with like.",
        penalty_section(arms),
        "## Depth ladder",
        ladder_section(arms),
        "## Without any block",
        shallow_section(by_arm(records), arms.get("frozen", {})),
        "## What did not finish",
        unfinished(records),
        "## What had to be assumed",
        ASSUMED,
        "## How to run it again",
        _commands(source),
    ]
    return "\n\n".join(parts) + "\n"


def unfinished(records: Sequence[Record]) -> str:
    """What of the whole table is not among the records: at the source's length, and at any."""
    from assay.studies.reproduce.experiment import whole_plan
    from assay.studies.reproduce.table import arm_of

    have = {str(record["name"]) for record in records}
    some = {name.partition("-seed")[0].rpartition("-")[0] for name in have}
    plan = whole_plan()
    short = Counter(arm_of(setting) for setting in plan if setting.name not in have)
    never = list(dict.fromkeys(arm_of(s) for s in plan if s.arm.rpartition("-")[0] not in some))
    return (
        f"Of {len(plan)} runs of the whole table, as long as the source's, {len(plan) - short.total()} are recorded. "
        f"Missing at that length: {', '.join(f'{arm} ({count} seeds)' for arm, count in short.items()) or 'nothing'}. "
        f"Not run at any length: {', '.join([*never, 'ep (equilibrium propagation on this architecture)'])}."
    )


def _introduction(records: Sequence[Record], source: str) -> str:
    seeds = sorted({int(r["setting"]["seed"]) for r in records})
    epochs = sorted({int(r["setting"]["epochs"]) for r in records})
    hours = sum(float(r["seconds"]) for r in records) / 3600
    shorter = (
        f"**The source trained its main table for 100 epochs; the runs here have {'/'.join(map(str, epochs))}, "
        "and few have more than the fewest.** Its "
        "penalty sweep has 30. A figure of the main table that does not reproduce may differ because of the length "
        "alone.\n\n"
    )
    return (
        f"{shorter if min(epochs) < 100 else ''}"
        f"CIFAR-10, ResMLP of width 256 and depth 4, {len(records)} training runs of {'/'.join(map(str, epochs))} "
        f"epochs, seeds {', '.join(map(str, seeds))}; {hours:.1f} hours on "
        "one shared CPU core. AdamW 1e-3, weight decay 0.01, cosine schedule, batch 128, crop and flip. Diagnostics on "
        "the first 128 test images, in float64. Standard deviations have ddof = 1. The source is arXiv 2606.21126. "
        f"This page is generated from the records in `{source}`; nothing in it is typed by hand."
    )


def _reproduction_table(comparisons: Iterable[Reproduced]) -> str:
    rows = []
    for c in comparisons:
        f = c.figure
        place = f" at h_{f.depth}" if f.depth is not None else ""
        spread = f" ± {f.sd:g}" if f.sd is not None else ""
        theirs = f"< {f.value:g}" if f.below else f"{f.value:g}{spread}"
        interval = f"[{c.interval.low:.3g}, {c.interval.high:.3g}]" if c.interval else ""
        ours = "" if c.mean is None else f"{c.mean:.3g}"
        word = "**no**" if c.word == "no" else c.word
        ran = "" if c.epochs is None else f"{c.epochs} / {f.epochs}"
        rows.append((f.arm, f"{f.quantity}{place}", theirs, ours, interval, len(c.values), ran, word))
    return table(
        ("arm", "figure", "published", "ours", "95 % interval", "seeds", "epochs (ours / theirs)", "reproduces"), rows
    )


def _main_table(arms: Mapping[str, Mapping[int, Record]]) -> str:
    rows = []
    for arm in ORDER:
        runs = arms.get(arm, {})
        if not runs:
            continue
        found = [run["diagnostics"] for run in runs.values()]
        rows.append(
            (
                arm,
                len(runs),
                interval([run["accuracy"] for run in runs.values()], ".3f"),
                sizes([d["norms"][-1] for d in found]),
                sizes([d["gradient"][-1] for d in found]),
                sizes([d["invariant"][-1] for d in found]),
                sizes([max(d["growth"]) for d in found]),
                sizes([d["absorption"] for d in found]),
                f"{max(max(d['noise']) for d in found):.0%}",
            )
        )
    return table(
        (
            "arm",
            "seeds",
            "accuracy",
            "|h_L|",
            "|g_L|",
            "|g| |h| / loss",
            "largest growth",
            "|h_L| / |h_0|",
            "samples without a reference",
        ),
        rows,
    )


def _depth_table(arms: Mapping[str, Mapping[int, Record]]) -> str:
    rows = []
    for arm in ORDER:
        for seed, run in sorted(arms.get(arm, {}).items()):
            d = run["diagnostics"]
            if d["null_sd"][0] is None:
                continue
            cells = []
            for cosine, mean, sd in zip(d["cosine"], d["null_mean"], d["null_sd"], strict=True):
                exact = sd is not None and sd < 1e-9
                cells.append("exact" if exact else f"{cosine:+.3f} (null {mean:+.3f} ± {sd:.3f})")
            rows.append((arm, seed, *cells))
    text = (
        "Cosine of the signal with the true gradient (exact, float64), beside mean and spread of 20 fresh feedbacks. "
        "Under backprop, and in the frozen baseline's embedding and head, the signal is the gradient: 1 at every depth."
    )
    return text + "\n\n" + table(("arm", "seed", *(f"h_{i}" for i in range(5))), rows)


def _commands(source: str) -> str:
    return (
        "```\nassay reproduce fa-protocol --arch resmlp --methods bp fa dfa fa-layer --seeds 42 123 456 --epochs 30\n"
        "assay reproduce fa-protocol frozen --ladder --seeds 42 123 456 --epochs 30\n"
        "assay reproduce fa-protocol penalty --lambdas 0 1e-4 1e-3 1e-2 1e-1\n"
        "assay reproduce fa-protocol --arch resmlp-without-ln --methods dfa --seeds 42 123 456 --epochs 30\n"
        "assay reproduce fa-protocol frozen --shallow --seeds 42 --epochs 30\n"
        "python -m assay.studies.reproduce.table --epochs 100  # whatever is missing, record by record\n"
        f"python -m assay.studies.reproduce.page {source} > docs/results/fa-protocol.md\n```\n\n"
        "All but the last continue where they were stopped; each finished run is one record."
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m assay.studies.reproduce.page FOLDER")
    sys.stdout.write(render(read_records(sys.argv[1]), sys.argv[1]))
