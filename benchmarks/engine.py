"""What the engine itself costs: completions a second, how busy workers are kept, what Ray adds.

    python -m benchmarks.engine                  # everything, about two minutes on two cores
    python -m benchmarks.engine driver local     # parts of it
    python -m benchmarks.engine --json overheads.json

The machine must be otherwise idle: a busy one measures its neighbours.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # workers import cells from this module by its name

from assay.engine import LocalExecutor, RayExecutor, Store, StoredCell, content_key, execute
from assay.protocols import Cell, CellEvent, CellResult, Executor

NEEDED = {
    "completions a second": 500.0, "isolated cells a second, two workers, by processor time": 500.0,
    "busy on two local workers": 0.95, "busy on Ray, two cores": 0.85,
}


def cells(function: str, count: int) -> list[Cell]:
    target = f"benchmarks.cells:{function}"
    keys = (content_key({"f": function, "n": n}) for n in range(count))
    return [Cell(key, target, {"n": n}, f"{function} {n}", function) for n, key in enumerate(keys)]


class AtOnce:
    """Answers in this process, ``together`` at a time: what is left is the driver's own cost."""

    def __init__(self, together: int) -> None:
        self.together = together

    def places(self) -> int:
        return 1

    def run(self, todo: Iterable[Cell], *, notify: Callable[[CellEvent], None]) -> Iterator[Sequence[CellResult]]:
        batch = []
        for cell in todo:
            batch.append(CellResult(cell, {"n": cell.payload["n"]}, None, 0.0))
            notify(CellEvent("done", cell))
            if len(batch) == self.together:
                yield batch
                batch = []
        if batch:
            yield batch


def seconds(todo: list[Cell], executor: Executor, folder: Path) -> float:
    start = time.perf_counter()
    done = sum(result.record is not None for result in execute(todo, store=Store(folder), executor=executor))
    assert done == len(todo)
    return time.perf_counter() - start


def driver(folder: Path) -> dict[str, float]:
    """Completions a second through execute, claims and the store, with nothing to compute."""
    found = {}
    for together, count in ((1, 1000), (8, 4000), (64, 4000)):
        spent = seconds(cells("nothing", count), AtOnce(together), folder / f"driver-{together}")
        found[f"driver, {together} at a time"] = count / spent
    again = seconds(cells("nothing", 4000), AtOnce(64), folder / "driver-64")
    found["answers from the store a second"] = 4000 / again
    found.update(isolated(folder))
    found["completions a second"] = found["driver, 64 at a time"]
    return found


def isolated(folder: Path) -> dict[str, float]:
    """Cells a second through two local workers, each cell in a child of its own: by the clock, and by processor time.

    The second is what two cores can do at best whatever else the machine does: the processor time of the driver, the
    templates and the children of a cell, over two cores.
    """
    count = 1500

    def spent(todo: list[Cell], name: str) -> tuple[float, float]:
        before = sum(os.times()[:4])
        clock = seconds(todo, LocalExecutor(2), folder / name)
        return clock, sum(os.times()[:4]) - before

    start_clock, start_work = spent(cells("nothing", 2), "start")
    clock, work = spent(cells("nothing", count), "own")
    return {
        "isolated cells a second, two workers": count / (clock - start_clock),
        "isolated cells a second, two workers, by processor time": 2 * count / (work - start_work),
        "milliseconds of processor time a cell": 1e3 * (work - start_work) / count,
    }


def store_operations(folder: Path) -> dict[str, float]:
    """Microseconds of each store operation on this disk."""
    store = Store(folder / "operations")
    items = [StoredCell(content_key({"n": n}), f"cell {n}", "g", 1.0, {"accuracy": 0.5, "n": n}) for n in range(400)]

    def each(action: Callable[[], object], count: int) -> float:
        start = time.perf_counter()
        action()
        return (time.perf_counter() - start) / count * 1e6

    found = {
        "microseconds to write one cell durably": each(lambda: [store.put(item) for item in items[:100]], 100),
        "microseconds a cell in a durable batch of 64": each(
            lambda: [store.put_all(items[i : i + 64]) for i in range(0, 384, 64)], 384),
        "microseconds to read a cell": each(lambda: store.get_all(item.key for item in items[:384]), 384),
    }
    with store.claims() as claims:
        keys = [item.key for item in items]
        found["microseconds to claim a cell"] = each(lambda: claims.take_all(keys), len(keys))
        found["microseconds to give a claim back"] = each(lambda: claims.release_all(keys), len(keys))
    return found


def busy(executor: Executor, count: int, places: int, folder: Path) -> float:
    """The part of ``places`` cores that one-second cells kept busy, from the first start to the last end."""
    times: dict[str, float] = {}
    first = last = worked = 0.0
    for result in execute(
        cells("one_second", count), store=Store(folder), executor=executor,
        notify=lambda event: times.setdefault(event.kind, time.perf_counter()) and None,
    ):
        assert result.record is not None
        first = first or times["started"]
        last = time.perf_counter()
        worked += 1.0  # a cell is one second of work, whatever else the machine does
    return worked / places / (last - first)


def local(folder: Path) -> dict[str, float]:
    """How busy two local workers are kept."""
    return {"busy on two local workers": busy(LocalExecutor(2), 30, 2, folder / "local")}


def ray(folder: Path) -> dict[str, float]:
    """How busy two cores are kept by Ray, and what a no-op cell costs through it."""
    import ray as library

    executor = RayExecutor(workers=2)
    executor._connect()
    try:
        start = time.perf_counter()
        seconds(cells("nothing", 4), executor, folder / "ray-warm")
        warm = time.perf_counter() - start
        spent = seconds(cells("nothing", 600), executor, folder / "ray-nothing")
        return {
            "seconds until Ray has run its first cells": warm,
            "Ray, no-op cells a second": 600 / spent,
            "busy on Ray, two cores": busy(executor, 30, 2, folder / "ray"),
        }
    finally:
        library.shutdown()


PARTS: dict[str, Callable[[Path], dict[str, float]]] = {
    "driver": driver, "store": store_operations, "local": local, "ray": ray,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(PARTS)}; all by default")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--folder", type=Path, help="where to put the stores: the disk to be measured")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    folder = Path(tempfile.mkdtemp(prefix="assay-benchmark-", dir=asked.folder or Path.cwd()))
    found: dict[str, float] = {}
    try:
        for part in asked.parts or PARTS:
            for name, value in PARTS[part](folder).items():
                found[name] = value
                need = f"   needed: {NEEDED[name]:g}" if name in NEEDED else ""
                print(f"{value:10.4g}  {name}{need}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if asked.json:
        load = os.getloadavg()[0]
        asked.json.write_text(json.dumps({"cores": os.cpu_count(), "load": load, "measured": found}, indent=1) + "\n")
    missed = [name for name, need in NEEDED.items() if name in found and found[name] < need]
    print("below what is needed: " + ", ".join(missed) if missed else "all needs met")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
