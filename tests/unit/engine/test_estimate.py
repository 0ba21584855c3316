"""Time left is right within a factor of two, and long cells go first."""

from __future__ import annotations

import heapq
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from assay.engine import CostModel, Store, StoredCell, content_key, execute
from assay.engine.estimate import KEPT
from assay.protocols import Cell


def simulate(times: list[tuple[str, float]], workers: int, costs: CostModel) -> list[tuple[float, float | None]]:
    """Give cells out longest expected first; at 50 completions the true and the estimated time left."""
    waiting = sorted(times, key=lambda each: costs.seconds(each[0]))
    counts = Counter(name for name, _ in waiting)
    running: list[tuple[float, float, str]] = []
    now, looks = 0.0, []
    while waiting or running:
        while waiting and len(running) < workers:
            group, seconds = waiting.pop()
            counts[group] -= 1
            heapq.heappush(running, (now + seconds, now, group))
        end, start, group = heapq.heappop(running)
        now = end
        costs.learn(group, end - start)
        if len(waiting) % (len(times) // 50) and waiting:
            continue
        spent: dict[str, list[float]] = {}
        for _, began, name in running:
            spent.setdefault(name, []).append(now - began)
        looks.append((now, costs.left(counts, spent, workers)))
    return [(now - when, left) for when, left in looks]


@pytest.mark.parametrize("workers", [1, 2, 16, 100])
@pytest.mark.parametrize("seed", range(5))
def test_time_left_is_right_within_a_factor_of_two(workers: int, seed: int) -> None:
    """Groups from 0.1 s to 100 s, log-normal with 30 % spread; three earlier times known of each, 5 rounds or more.

    With a single round of cells the end is the longest of them, which no record of a few can tell: not claimed.
    """
    draw = random.Random(seed)
    groups = {f"group {n}": 10 ** draw.uniform(-1, 2) for n in range(8)}
    count = max(40, 5 * workers)
    times = [(name, mean * draw.lognormvariate(0, 0.3)) for name, mean in groups.items() for _ in range(count)]
    costs = CostModel()
    for name, mean in groups.items():
        for _ in range(3):
            costs.learn(name, mean * draw.lognormvariate(0, 0.3))
    looks = simulate(times, workers, costs)
    whole = looks[0][0]
    # The last fifth is a handful of cells, where one cell's own spread decides; until there the estimate must hold.
    judged = [(true, left) for true, left in looks if true > 0.2 * whole]
    assert judged
    wrong = [(true, left) for true, left in judged if left is None or not true / 2 <= left <= true * 2]
    assert wrong == []


def test_nothing_is_promised_before_anything_is_known() -> None:
    assert CostModel().left({"a": 3}, {}, 2) is None


def test_one_long_cell_is_not_divided_among_workers() -> None:
    costs = CostModel()
    costs.learn("long", 100.0)
    assert costs.left({"long": 1}, {}, 8) == 100.0


def test_recent_times_replace_old_ones() -> None:
    costs = CostModel()
    for seconds in [1000.0] * KEPT + [1.0] * KEPT:
        costs.learn("a", seconds)
    assert costs.seconds("a") == 1.0
    assert CostModel.loads(costs.dumps()).seconds("a") == 1.0


class InOrder:
    """An executor that answers at once, one cell at a time, and keeps the order it was given."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def places(self) -> int:
        return 1

    def run(self, cells, *, notify):  # type: ignore[no-untyped-def]
        from assay.protocols import CellResult

        for cell in cells:
            self.order.append(cell.label)
            yield [CellResult(cell, {"ok": True}, None, 1.0)]


def test_a_fresh_driver_starts_the_longest_cells_first(tmp_path: Path) -> None:
    def cell(group: str, seed: int) -> Cell:
        return Cell(content_key({"g": group, "s": seed}), "m:f", {}, f"{group} {seed}", group)

    store = Store(tmp_path)
    costs = CostModel()
    for group, seconds in {"short": 1.0, "long": 9.0, "middle": 4.0}.items():
        costs.learn(group, seconds)
    store.keep_costs(costs)
    executor = InOrder()
    list(execute([cell(g, s) for s in range(2) for g in ("short", "long", "middle")], store=store, executor=executor))
    assert executor.order == ["long 0", "long 1", "middle 0", "middle 1", "short 0", "short 1"]


def test_a_huge_plan_is_drawn_as_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = sys.modules["assay.engine.driver"]
    monkeypatch.setattr(engine, "LOOKAHEAD", 10)
    monkeypatch.setattr(engine, "ASKED_TOGETHER", 4)
    drawn = 0

    def plan():  # type: ignore[no-untyped-def]
        nonlocal drawn
        for n in range(200):
            drawn += 1
            yield Cell(content_key({"n": n}), "m:f", {}, f"cell {n}", "g")

    store = Store(tmp_path)
    store.put(StoredCell(content_key({"n": 150}), "cell 150", "g", 1.0, {"ok": True}))
    done = set()
    for result in execute(plan(), store=store, executor=InOrder()):
        done.add(result.cell.label)
        assert drawn - len(done) <= 10 + 4 + 1, "no more of the plan is held than the lookahead"
    assert done == {f"cell {n}" for n in range(200)}


LARGE = """
import itertools, sys, tempfile
from assay.engine import Store, execute
from assay.protocols import Cell, CellEvent, CellResult

class Forgetful(Store):
    together = 64
    def get_all(self, keys): return [None for _ in keys]
    def put_all(self, cells): list(cells)
    def claims(self): return self
    def __enter__(self): return self
    def __exit__(self, *error): return None
    def take_all(self, keys): return [True for _ in keys]
    def release_all(self, keys): return None

class AtOnce:
    def places(self): return 64
    def run(self, todo, *, notify):
        for cell in todo:
            notify(CellEvent("done", cell))
            yield [CellResult(cell, {"n": 1}, None, 0.0)]

plan = (Cell(f"{n:032x}", "m:f", {"n": n, "config": {"hidden": [64, 64]}}, f"seed {n}", "g") for n in range(10**6))
with tempfile.TemporaryDirectory() as folder:
    done = sum(1 for _ in execute(plan, store=Forgetful(folder), executor=AtOnce()))
# Not ru_maxrss, which a process inherits from the one that started it.
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(done, int(peak) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc")
def test_a_million_cells_stay_below_200_megabytes() -> None:
    made = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
    done, megabytes = map(int, made.stdout.split())
    assert done == 10**6 and megabytes < 200
