"""The leaderboard of docs/results/leaderboard.md: every rule, tuned alike, on three tasks, ten seeds.

    python benchmarks/leaderboard.py OUT [--tasks digits ...] [--rules pc ...] [--minutes 60]  tune, run, write the page
    python benchmarks/leaderboard.py OUT --page                                                the page alone

One command, resumable at any point: searches go on in OUT/tuning.sqlite, trainings are cells in OUT/cells, the run of a
rule on a task is OUT/runs/TASK/RULE.json. Every rule gets the same number of trials over the same two settings
(learning rate, input noise), judged on validation alone; the outcome is committed in benchmarks/leaderboard_settings.
``--minutes`` starts no further rule after that time. The page names what is missing. Nothing on it is typed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "leaderboard.md"
SETTINGS = Path(__file__).parent / "leaderboard_settings"
SEEDS, MARGIN = 10, 1.0
SEARCHED = ("learning_rate", "input_noise")
TASKS: dict[str, dict[str, Any]] = {
    # Trials and what is fixed are the same for every rule; ``use`` replaces what the search kept short.
    "digits": {"trials": 6, "use": {"epochs": 25},
               "settings": {"hidden": [64, 64, 64], "epochs": 10, "gamma": 0.1, "beta": 0.5, "sweeps": [6, 6]}},
    # At quick budget: 10,000 training items and half of these epochs.
    "mnist": {"trials": 4, "use": {"epochs": 12}, "train_items": 5000,
              "settings": {"hidden": [128, 128, 128], "epochs": 5, "batch_size": 100, "gamma": 0.1, "beta": 0.5,
                           "sweeps": [4, 4]}},
    "fashion-mnist": {"trials": 4, "use": {"epochs": 12}, "train_items": 5000,
                      "settings": {"hidden": [128, 128, 128], "epochs": 5, "batch_size": 100, "gamma": 0.1,
                                   "beta": 0.5, "sweeps": [4, 4]}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--rules", nargs="+", default=compared())
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    if not asked.page:
        ends = time.monotonic() + 60 * asked.minutes
        for task in asked.tasks:
            tune_all(task, ["backprop", *asked.rules], asked.out, ends)
            for rule in asked.rules:
                if time.monotonic() < ends:
                    run(task, rule, asked.out, asked.workers)
    write_page(asked.out)


def compared() -> list[str]:
    """Every rule of the table but backprop, the yardstick, and the arm with published settings, which is not tuned."""
    from assay.learning.names import RULES

    return [name for name in RULES if name not in ("backprop", "original")]


def tune_all(task: str, rules: list[str], out: Path, ends: float) -> None:
    """Search the settings of every rule that has none yet, with the same number of trials."""
    from assay.studies.arms.settings import read_settings
    from assay.studies.tune import save_settings, tune

    path = SETTINGS / f"{task}.json"
    out.mkdir(parents=True, exist_ok=True)
    for rule in rules:
        done = read_settings(path) if path.is_file() else {}
        if f"{rule}/mlp" in done or time.monotonic() > ends:
            continue
        found = tune(task, rule=rule, search=SEARCHED, storage=f"sqlite:///{out / 'tuning.sqlite'}", **TASKS[task])
        save_settings(path, [found])
        print(f"{task} {rule}: validation {found.told}", flush=True)


def run(task: str, rule: str, out: Path, workers: int) -> None:
    """One rule on one task against backprop: the benchmark itself, one rule at a time, so that each is kept."""
    from assay.studies.bench import bench

    found = bench(task, rules=[rule], budget="quick", seeds=SEEDS, margin=MARGIN, store=out / "cells",
                  workers=workers, settings_from=SETTINGS)
    path = out / "runs" / task / f"{rule}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(found.model_dump_json(), encoding="utf-8")
    print(f"{task} {rule}: {found.findings[0].key_finding}", flush=True)


def write_page(out: Path) -> None:
    """The page from whatever runs there are; what is missing is named."""
    from assay.learning.names import RULES
    from assay.results import load_run

    lines = [
        "# Leaderboard of learning rules", "",
        "Written by `python benchmarks/leaderboard.py OUT`, which goes on where it stopped; do not edit. What each "
        "rule does: [the rules](../guides/rules.md). Every rule: the same network, initial weights, order and noise "
        "stream, the same number of trials over learning rate and input noise, judged on validation; scores are of the "
        f"test set, over {SEEDS} seeds. One rule had more: the threshold of forward-forward (0.3) was picked by hand "
        "from six settings on the validation part of digits.", "",
        "No rule is called better or worse than backprop but by its interval, and each is compared at what few "
        "trials found: a longer search may reverse it. **Gap** and its 90 % interval come from "
        "the benchmark's own decision; **told from backprop** asks for a paired t interval without 0 at 95 % over all "
        "rules of the table together (Bonferroni). **Parity** is the verdict at "
        f"± {MARGIN:g} pp. **Credit**: cosine of one step's update with the gradient at each weight of the trained "
        "network, from the input up, mean over seeds. **Reached**: share of the weights given any update. **Memory**: "
        "peak of one step on 128 rows. **Time**: processor time of training over backprop's, on a machine that did "
        "other work too; the narrow networks of digits are trained side by side under backprop and one by one under "
        "the others, which is most of their price there (one step beside one of backprop: `benchmarks/rules.py`). "
        "The order is by mean accuracy and claims nothing.", "",
    ]
    for task in TASKS:
        runs = {rule: load_run(path) for rule in compared() if (path := out / "runs" / task / f"{rule}.json").is_file()}
        missing = [rule for rule in compared() if rule not in runs]
        lines += [f"## {task}", "", *(table(task, runs) if runs else []), ""]
        if missing:
            lines += [f"Not run yet: {', '.join(missing)}; the same command goes on.", ""]
        lines += [f"Settings: `benchmarks/leaderboard_settings/{task}.json` "
                  f"({TASKS[task]['trials']} trials per rule).", ""]
    lines += ["## Rules", "", *(f"* `{name}`: {RULES[name].about}" for name in compared()), ""]
    PAGE.write_text("\n".join(lines), encoding="utf-8")
    print(f"written: {PAGE}")


def table(task: str, runs: dict[str, Any]) -> list[str]:
    """The rules of one task, best mean first, with backprop among them."""
    columns = ("rule", "accuracy [%]", "95 % interval", "n", "gap [pp]", "90 % interval", "told from backprop",
               "parity", "credit by weight", "reached [%]", "memory [kB]", "time")
    rows = [entry(rule, found.findings[0], len(runs)) for rule, found in runs.items()]
    longest = max((found.findings[0] for found in runs.values()), key=lambda finding: len(finding.seeds))
    rows.append(entry("backprop", longest, len(runs)))
    rows.sort(key=lambda row: -float(row[1] or 0))
    first = next(iter(runs.values()))
    place = first.environment
    made = (f"{len(runs)} of {len(compared())} rules; {place.cpu or place.platform}, torch "
            f"{place.packages.get('torch', '')}, revision {place.git_revision[:10] or 'unknown'}; floors in per cent: "
            + ", ".join(f"{m.name.removeprefix('floor: ')} {m.value:.1f}" for m in longest.measurements
                        if m.name.startswith("floor: ")) + ".")
    body = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *body, "", made]


def entry(rule: str, finding: Any, comparisons: int) -> tuple[str, ...]:
    """One row, all from the measurements of a finding."""
    from assay import stats
    from assay.studies.bench.credit import CREDIT

    arm = f"{rule}/mlp"
    own = {m.name.removesuffix(f", {arm}"): m for m in finding.measurements if m.name.endswith(f", {arm}")}

    def number(name: str, digits: int) -> str:
        return f"{own[name].value:.{digits}f}" if name in own and own[name].value is not None else ""

    credit = " ".join(f"{m.value:.2f}" for name, m in own.items() if name.startswith(CREDIT))
    accuracy = own.get("accuracy")
    around = f"{accuracy.interval.low:.2f} to {accuracy.interval.high:.2f}" if accuracy and accuracy.interval else ""
    start = (rule, number("accuracy", 2), around, str(accuracy.n if accuracy else 0))
    end = (credit, number("share of the weights given an update", 0), number("peak memory of a step", 0))
    if rule == "backprop":
        return (*start, "", "", "", "yardstick", *end, "1.0")
    gap = next((m for m in finding.measurements if m.name == finding.headline), None)
    ratio = next((m.value for m in finding.measurements if m.name == "processor time ratio"), None)
    limits = f"{gap.interval.low:+.2f} to {gap.interval.high:+.2f}" if gap and gap.interval else ""
    strict = stats.mean_interval(gap.values, confidence=1 - 0.05 / comparisons) if gap and len(gap.values) > 1 else None
    told = "" if strict is None else "above" if strict.low > 0 else "below" if strict.high < 0 else "no"
    return (*start, f"{gap.value:+.2f}" if gap and gap.value is not None else "", limits, told, str(finding.verdict),
            *end, f"{ratio:.1f}" if ratio is not None else "")


if __name__ == "__main__":
    main()
