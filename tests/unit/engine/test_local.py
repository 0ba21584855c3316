"""Workers are isolated: what misbehaves fails alone and with its reason, and nothing done is done twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.engine import LocalExecutor, Store, content_key, execute
from assay.errors import InputError
from assay.protocols import Cell, CellEvent, CellResult

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def targets_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.syspath_prepend(str(HERE))


def cell(function: str, timeout: float = 60.0, **payload: Any) -> Cell:
    key = content_key({"function": function, **payload})
    return Cell(key, f"cells_for_tests:{function}", payload, f"{function} {payload}", function, timeout=timeout)


def run(
    cells: list[Cell], folder: Path, workers: int = 2, events: list[CellEvent] | None = None
) -> dict[str, CellResult]:
    notify = events.append if events is not None else (lambda event: None)
    stream = execute(cells, store=Store(folder), executor=LocalExecutor(workers), notify=notify)
    return {result.cell.label: result for result in stream}


def test_a_misbehaving_cell_fails_alone_with_its_reason(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    healthy = [cell("count", n=n, log=log) for n in range(4)]
    planted = {name: cell(name) for name in ("explode", "die", "leave", "not_a_record")}
    planted["hang"] = cell("hang", timeout=1.0)
    planted["missing"] = Cell(content_key({"m": 1}), "cells_for_tests:absent", {}, label="missing", group="m")
    events: list[CellEvent] = []
    results = run([*planted.values(), *healthy], tmp_path / "cells", events=events)

    assert len(results) == len(healthy) + len(planted), "every cell is accounted for exactly once"
    for each in healthy:
        assert results[each.label].record == {"n": each.payload["n"], "square": each.payload["n"] ** 2}
    failures = {name: results[each.label].failure for name, each in planted.items()}
    assert all(failure is not None for failure in failures.values())
    kinds = {name: failure.kind for name, failure in failures.items() if failure}
    assert kinds == {
        "explode": "ZeroDivisionError", "die": "WorkerDied", "leave": "WorkerDied", "not_a_record": "TypeError",
        "hang": "Timeout", "missing": "AttributeError",
    }
    exploded = failures["explode"]
    assert exploded is not None
    assert "planted" in exploded.message
    assert "explode" in exploded.traceback and "about to explode" in exploded.traceback
    died = failures["die"]
    assert died is not None and "signal 9" in died.message
    assert sum(event.kind == "failed" for event in events) == len(planted)
    assert sum(event.kind == "done" for event in events) == len(healthy)


def test_done_cells_are_answered_by_the_store_and_failed_ones_tried_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    cells = [cell("count", n=n, log=str(log)) for n in range(3)]
    run([*cells, cell("explode")], tmp_path / "cells")
    again = run([*cells, cell("count", n=3, log=str(log)), cell("explode")], tmp_path / "cells")
    assert sorted(log.read_text().split()) == ["0", "1", "2", "3"]
    assert [again[c.label].cached for c in cells] == [True, True, True]
    assert again["explode {}"].failure is not None


def test_a_tampered_cell_is_done_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    one = cell("count", n=5, log=str(log))
    run([one], tmp_path / "cells")
    file = Store(tmp_path / "cells").path(one.key)
    file.write_text(file.read_text().replace('"square": 25', '"square": 26'))
    assert run([one], tmp_path / "cells")[one.label].record == {"n": 5, "square": 25}
    assert log.read_text().split() == ["5", "5"]


def test_every_worker_has_one_thread_and_the_driver_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    results = run([cell("threads")], tmp_path / "cells", workers=1)
    assert results["threads {}"].record == {"threads": 1, "omp": "1"}
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_the_same_cell_asked_for_twice_runs_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run([cell("count", n=1, log=str(log))] * 3, tmp_path / "cells")
    assert log.read_text().split() == ["1"]


def test_leaving_early_stops_the_workers_and_keeps_what_was_done(tmp_path: Path) -> None:
    cells = [cell("count", n=0, log=str(tmp_path / "log")), *(cell("hang", n=n) for n in range(3))]
    stream = execute(cells, store=Store(tmp_path / "cells"), executor=LocalExecutor(1))
    first = next(stream)
    start = time.monotonic()
    stream.close()
    assert time.monotonic() - start < 300, "the three that hang take ten minutes each"
    assert Store(tmp_path / "cells").get(first.cell.key) is not None


def test_zero_workers_are_refused() -> None:
    with pytest.raises(InputError, match="workers >= 1"):
        LocalExecutor(0)


DRIVER = """
import sys
sys.path.insert(0, {here!r})
from test_local import cell, run
from pathlib import Path
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    run([cell("count", n=n, log=str(folder / "log"), sleep=0.05) for n in range(40)], folder / "cells")
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[list[str]]:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER.format(here=str(HERE)))
    yield [sys.executable, str(script), str(tmp_path)]


def finished(folder: Path) -> int:
    return len(list(Store(folder / "cells")))


def test_kill_minus_nine_loses_nothing_and_repeats_nothing_finished(tmp_path: Path, driver: list[str]) -> None:
    process = subprocess.Popen(driver)
    deadline = time.monotonic() + 60
    while finished(tmp_path) < 8 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)
    kept = finished(tmp_path)
    executed = (tmp_path / "log").read_text().split()
    assert 8 <= kept < 40, "the kill came in the middle"
    time.sleep(0.5)
    assert (tmp_path / "log").read_text().split() == executed, "workers died with their driver"

    subprocess.run(driver, check=True, timeout=120)
    assert finished(tmp_path) == 40
    counts = (tmp_path / "log").read_text().split()
    repeated = len(counts) - 40
    assert set(counts) == {str(n) for n in range(40)}
    assert repeated <= 3, "only cells that were in flight when the driver died ran again"
    cells = [json.loads(p.read_text())["record"] for p in (tmp_path / "cells").glob("??/*.json")]
    assert all(record["square"] == record["n"] ** 2 for record in cells)
