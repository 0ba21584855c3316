"""What it saves to train the seeds of an arm side by side: CPU time of benchmark cells apart over grouped.

    python -m benchmarks.grouping                            # digits, 10 seeds, the arms that can be grouped
    python -m benchmarks.grouping --seeds 5 --epochs 40

CPU time of one thread, both ways in turn in one process, the least of several rounds; the records must be equal.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.studies.arms import find_arm
from assay.studies.bench.cells import SIDE_BY_SIDE, as_cell, measure_cell, measure_together, plan_task

Payloads = Sequence[Mapping[str, Any]]
TIMES = ("seconds", "cpu_seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="digits")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=5, help="the saving does not depend on it")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print(f"{asked.task}, {asked.seeds} seeds, {asked.epochs} epochs; least of {asked.rounds} rounds, one thread\n")
    print("| arm | apart, CPU s | side by side, CPU s | apart / side by side | records |")
    print("|---|---:|---:|---:|---|")
    for name in SIDE_BY_SIDE:
        work = plan_task(asked.task, [find_arm(name)], budget="quick", seeds=range(asked.seeds),
                         overrides={"epochs": asked.epochs})
        cells = [as_cell(item, data=None) for item in work if item.name == name]
        payloads = [dict(cell.payload) for cell in cells]
        best = {"apart": float("inf"), "together": float("inf")}
        records: dict[str, Any] = {}
        for _ in range(asked.rounds):
            for way, call in (("apart", one_by_one), ("together", measure_together)):
                seconds, records[way] = timed(call, payloads)
                best[way] = min(best[way], seconds)
        same = "the same bits" if facts(records["apart"]) == facts(records["together"]) else "DIFFERENT"
        gain = best["apart"] / best["together"]
        print(f"| {name} | {best['apart']:.2f} | {best['together']:.2f} | {gain:.2f} | {same} |", flush=True)


def one_by_one(payloads: Payloads) -> list[dict[str, Any]]:
    """The records of cells that are not grouped."""
    return [measure_cell(payload) for payload in payloads]


def timed(call: Callable[[Payloads], Any], payloads: Payloads) -> tuple[float, Any]:
    """CPU seconds of a call, and what it returned."""
    began = time.process_time()
    value = call(payloads)
    return time.process_time() - began, value


def facts(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without their times."""
    return [{name: value for name, value in record.items() if name not in TIMES} for record in records]


if __name__ == "__main__":
    main()
