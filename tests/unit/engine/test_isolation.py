"""A cell's process is its own: nothing it does reaches another cell, and only it can answer for itself."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay.engine import LocalExecutor, Store, content_key, execute
from assay.engine.workers.process import WorkerProcess
from assay.protocols import Cell, CellResult

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def targets_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def cell(function: str, *, n: int = 0, fresh: bool = False, memory: int | None = None, **payload: Any) -> Cell:
    key = content_key({"function": function, "n": n, "fresh": fresh, **payload})
    return Cell(key, f"unruly_cells:{function}", payload, f"{function} {n}", function, timeout=600.0, fresh=fresh,
                memory=memory)


def run(cells: list[Cell], folder: Path, workers: int = 1) -> dict[str, CellResult]:
    stream = execute(cells, store=Store(folder), executor=LocalExecutor(workers))
    return {result.cell.label: result for result in stream}


@pytest.mark.parametrize("fresh", [False, True])
def test_what_a_cell_does_to_its_process_reaches_no_other(tmp_path: Path, fresh: bool) -> None:
    found = run([cell("look", n=1), cell("contaminate", fresh=fresh), cell("look", n=2)], tmp_path)
    assert found["contaminate 0"].record == {"done": True}
    first, second = found["look 1"].record, found["look 2"].record
    assert first is not None and second is not None
    assert {**first, "drawn": 0} == {**second, "drawn": 0}
    assert first["drawn"] != second["drawn"], "each cell has random numbers of its own"
    assert run([cell("look", n=2)], tmp_path / "again")["look 2"].record == second, "and the same ones again"


def test_a_child_that_a_cell_forked_cannot_answer_for_another(tmp_path: Path) -> None:
    cells = [cell("returns_twice", n=n) for n in range(2)] + [cell("look", n=n, slow=True) for n in range(3)]
    found = run(cells, tmp_path)
    for n in range(2):
        assert found[f"returns_twice {n}"].record == {"who": "parent"}
    assert all("where" in (found[f"look {n}"].record or {}) for n in range(3))


@pytest.mark.parametrize("function", ["writes_garbage", "writes_for_another"])
def test_a_reply_that_is_not_the_cells_own_is_an_error(tmp_path: Path, function: str) -> None:
    found = run([cell(function), cell("look")], tmp_path)
    failure = found[f"{function} 0"].failure
    assert failure is not None and failure.kind == "ForeignReply"
    assert found["look 0"].record is not None
    assert Store(tmp_path).get(found[f"{function} 0"].cell.key) is None


def test_children_of_a_cell_die_with_it_and_leave_the_next_alone(tmp_path: Path) -> None:
    found = run([cell("leaves_children"), cell("look")], tmp_path)
    record = found["leaves_children 0"].record
    assert record is not None and len(record["pids"]) == 3
    assert _gone(record["pids"])


def test_children_of_a_cell_that_is_stopped_die_with_it(tmp_path: Path) -> None:
    log = tmp_path / "pids"
    for forking in (True, False):
        worker = WorkerProcess(forking=forking)
        worker.start(cell("hangs_with_children", log=str(log)))
        while not (log.exists() and log.read_text()):
            assert worker.poll() is None
            time.sleep(0.02)
        worker.stop()
        assert _gone([int(pid) for pid in log.read_text().split()])
        log.unlink()


def test_memory_of_children_counts_against_the_cell(tmp_path: Path) -> None:
    greedy = cell("child_eats", mebibytes=400, memory=200 << 20)
    modest = cell("child_eats", n=1, mebibytes=40, memory=200 << 20)
    found = run([greedy, modest], tmp_path)
    failure = found["child_eats 0"].failure
    assert failure is not None and failure.kind == "MemoryLimit"
    assert found["child_eats 1"].record == {"ate": 40}


def test_pages_that_children_share_count_once(tmp_path: Path) -> None:
    assert run([cell("shares", mebibytes=120, memory=250 << 20)], tmp_path)["shares 0"].record == {"children": 3}


def test_every_cell_says_where_it_was_computed(tmp_path: Path) -> None:
    result = run([cell("look")], tmp_path)["look 0"]
    assert result.environment["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"torch", "numpy", "scipy", "machine"} <= set(result.environment)
    stored = Store(tmp_path).get(result.cell.key)
    assert stored is not None and stored.environment == result.environment
    assert run([cell("look")], tmp_path)["look 0"].environment == result.environment


def test_a_template_stays_clean_and_warm(tmp_path: Path) -> None:
    worker = WorkerProcess()
    try:
        pids = []
        for n in range(3):
            worker.start(cell("pid", n=n))
            while (outcome := worker.poll()) is None:
                time.sleep(0.005)
            pids.append(outcome["record"]["pid"])
            assert not outcome["heavy"] and not worker.heavy
        assert len(set(pids)) == 3 and worker.pid not in pids
        worker.start(cell("uses_torch"))
        while (outcome := worker.poll()) is None:
            time.sleep(0.005)
        assert outcome["heavy"] and outcome["record"]["threads"] == 1
        assert worker.heavy and worker.reusable, "the next such cell finds torch here"
    finally:
        worker.stop()


def _gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not any(_alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

