"""The results page: every published figure beside ours, as Markdown, from the records alone.

python -m assay.reproduce.page docs/results/data/fa-protocol > docs/results/fa-protocol.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.reproduce.compare import Comparison, by_arm, compare_all, correct_rows
from assay.results import Verdict

if TYPE_CHECKING:
    from assay.audits.credit.depth import Utility

Record = Mapping[str, Any]
WORDS = {Verdict.PASS: "yes", Verdict.FAIL: "**no**", Verdict.INCONCLUSIVE: "undecided", None: "not run"}
ASSUMED = (
    "The source's description leaves these open, and each may be why a figure differs: feedback matrices are "
    "N(0, 1/d) with d the width of the stream; the embedding is trained by the signal at h_0 (B_0 e under DFA, B_0 a_1 "
    "under block FA); block losses and penalties are sums over features and means over the batch; the cosine schedule "
    "steps once per epoch and ends at 0; pixels are normalised per channel and crops are padded with the mean colour; "
    "|h| and |g| are means over samples of per-sample norms, |g| of the batch-mean loss. Equilibrium propagation on "
    "this architecture, ViT-Mini, the net without terminal LayerNorm and the depth ladder are implemented as commands "
    "and were not run here."
)
ORDER = ("bp", "frozen", "fa-layer", "fa-block", "dfa-block")


def read_records(folder: str | Path) -> list[dict[str, Any]]:
    """Every record in a folder of JSON files, by name."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).glob("*.json"))]


def render(records: Sequence[Record], source: str) -> str:
    """The whole page."""
    arms = by_arm(records)
    comparisons = compare_all(records)
    counted = {word: sum(WORDS[c.verdict] == word for c in comparisons) for word in WORDS.values()}
    parts = [
        "# The feedback-alignment protocol, run again",
        _introduction(records, source),
        "## Does it reproduce?",
        f"Of {len(comparisons)} published figures {counted['yes']} reproduce, {counted['**no**']} do not, "
        f"{counted['undecided']} are undecided and {counted['not run']} were not run. Margins, fixed in the code: "
        "2 points of accuracy, half a decade for sizes printed as powers of ten, 0.1 for cosines; the interval of the "
        "difference (90 %, Welch where the source gives a spread) must lie inside.",
        _reproduction_table(comparisons),
        "## Our runs",
        _main_table(arms),
        "## Depth by depth",
        _depth_table(arms),
        "## Does depth pay?",
        _utility_text(arms),
        *_penalty_section(arms),
        "## What had to be assumed",
        ASSUMED,
        "## How to run it again",
        _commands(source),
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(records: Sequence[Record], source: str) -> str:
    seeds = sorted({int(r["setting"]["seed"]) for r in records})
    epochs = sorted({int(r["setting"]["epochs"]) for r in records})
    hours = sum(float(r["seconds"]) for r in records) / 3600
    return (
        f"CIFAR-10, ResMLP of width 256 and depth 4, {len(records)} training runs of {'/'.join(map(str, epochs))} "
        f"epochs (the source trained its main table for 100), seeds {', '.join(map(str, seeds))}; {hours:.1f} hours on "
        "one shared CPU core. AdamW 1e-3, weight decay 0.01, cosine schedule, batch 128, crop and flip. Diagnostics on "
        "the first 128 test images, in float64. Standard deviations have ddof = 1. The source is arXiv 2606.21126. "
        f"This page is generated from the records in `{source}`; nothing in it is typed by hand."
    )


def _reproduction_table(comparisons: Iterable[Comparison]) -> str:
    rows = []
    for c in comparisons:
        f = c.figure
        place = f" at h_{f.depth}" if f.depth is not None else ""
        spread = f" ± {f.sd:g}" if f.sd is not None else ""
        theirs = f"< {f.value:g}" if f.below else f"{f.value:g}{spread}"
        interval = f"[{c.interval.low:.3g}, {c.interval.high:.3g}]" if c.interval else ""
        ours = "" if c.mean is None else f"{c.mean:.3g}"
        ran = "" if c.epochs is None else f"{c.epochs} / {f.epochs}"
        rows.append((f.arm, f"{f.quantity}{place}", theirs, ours, interval, len(c.values), ran, WORDS[c.verdict]))
    return _table(
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
                _spread([run["accuracy"] for run in runs.values()], ".3f"),
                _range([d["norms"][-1] for d in found]),
                _range([d["gradient"][-1] for d in found]),
                _range([d["invariant"][-1] for d in found]),
                _range([max(d["growth"]) for d in found]),
                _range([d["absorption"] for d in found]),
                f"{max(max(d['noise']) for d in found):.0%}",
            )
        )
    return _table(
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
    text = "Cosine of the signal with the true gradient (exact, float64), beside mean and spread of 20 fresh feedbacks."
    return text + "\n\n" + _table(("arm", "seed", *(f"h_{i}" for i in range(5))), rows)


def _utility_text(arms: Mapping[str, Mapping[int, Record]]) -> str:
    lines = []
    for arm in ORDER:
        if arm == "frozen" or not arms.get(arm) or not arms.get("frozen"):
            continue
        utility = _utility(arms, arm)
        lines.append(
            f"* **{arm}**: {utility.verdict.value}. {utility.reason[0].upper()}{utility.reason[1:]}. "
            f"Published rule: {_published_verdict(arms, arm)}."
        )
    return "\n".join(lines) or "The frozen baseline was not run."


def _utility(arms: Mapping[str, Mapping[int, Record]], arm: str) -> Utility:
    from assay.audits.credit.depth import Baselines, judge_utility

    rows = {"rule": correct_rows(arms[arm]), "frozen": correct_rows(arms["frozen"])}
    if arms.get("bp"):
        rows["backprop"] = correct_rows(arms["bp"])
    return judge_utility(Baselines(rows))


def _published_verdict(arms: Mapping[str, Mapping[int, Record]], arm: str) -> str:
    from assay.audits.credit.published import Published

    frozen = [run["accuracy"] for run in arms["frozen"].values()]
    verdicts = []
    for seed, run in sorted(arms[arm].items()):
        d = run["diagnostics"]
        result = Published(max(d["growth"]), d["gradient"][-1], run["accuracy"] - sum(frozen) / len(frozen))
        one, two, three = result.flags
        fired = [name for name, fires in (("D1", one), ("D2", two), ("D3", three)) if fires]
        verdicts.append(f"{result.verdict} at seed {seed} ({', '.join(fired) or 'nothing'} fired)")
    return "; ".join(verdicts)


def _penalty_section(arms: Mapping[str, Mapping[int, Record]]) -> list[str]:
    rows = []
    for arm in sorted(a for a in arms if "lambda" in a or a in ("bp", "dfa-block")):
        found = [run["diagnostics"] for run in arms[arm].values()]
        verdict = _utility(arms, arm).reason if arms.get("frozen") else ""
        rows.append(
            (
                arm,
                len(found),
                _spread([r["accuracy"] for r in arms[arm].values()], ".3f"),
                _range([d["norms"][-1] for d in found]),
                _range([max(d["growth"]) for d in found]),
                verdict,
            )
        )
    if not any("lambda" in str(row[0]) for row in rows):
        return ["## Penalty sweep", "Not run."]
    return ["## Penalty sweep", _table(("arm", "seeds", "accuracy", "|h_L|", "largest growth", "depth utility"), rows)]


def _commands(source: str) -> str:
    return (
        "```\nassay reproduce fa-protocol --arch resmlp --methods bp fa dfa fa-layer --seeds 42 123 456 --epochs 30\n"
        "assay reproduce fa-protocol frozen --seeds 42 123 456 --epochs 30\n"
        "assay reproduce fa-protocol penalty --lambdas 0 1e-4 1e-3 1e-2 1e-1\n"
        f"python -m assay.reproduce.page {source} > docs/results/fa-protocol.md\n```\n\n"
        "The first three continue where they were stopped; each finished run is one record."
    )


def _spread(values: Sequence[float], form: str) -> str:
    mean = sum(values) / len(values)
    if len(values) < 2:
        return f"{mean:{form}} (one seed)"
    sd = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    return f"{mean:{form}} ± {sd:{form}}"


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low} to {high}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(name.replace("|", "\\|") for name in columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m assay.reproduce.page FOLDER")
    sys.stdout.write(render(read_records(sys.argv[1]), sys.argv[1]))
