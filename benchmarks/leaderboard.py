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
        print(f"{task} {rule}: validation {100 * found.accuracy:.2f} %", flush=True)


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
    """Placeholder until the page is written below."""
    raise SystemExit("no page yet")


if __name__ == "__main__":
    main()
