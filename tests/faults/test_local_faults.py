"""Faults on one machine: what goes wrong is named, the rest goes on, and the same command finishes the work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fault_cells as f
import pytest

from assay.engine import LocalExecutor, Store, execute
from assay.engine.store.claims import Claims

SCRIPT = str(Path(f.__file__))


def test_every_way_to_fail_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    planted = {
        "ZeroDivisionError": f.cell("explode"),
        "Timeout": f.cell("stubborn", timeout=1.0),
        "MemoryLimit": f.cell("eat", mebibytes=4000, memory=200 << 20),
        "WorkerDied": f.cell("crash"),
    }
    healthy = f.squares(tmp_path, 6)
    found = f.results([*planted.values(), *healthy], tmp_path)
    for kind, each in planted.items():
        failure = found[each.label].failure
        assert failure is not None and failure.kind == kind
    assert all(found[each.label].record == {"n": n, "square": n * n} for n, each in enumerate(healthy))
    memory = found["eat"].failure
    assert memory is not None and "more than its limit of 200 MiB" in memory.message
    crash = found["crash"].failure
    assert crash is not None and "SIGSEGV" in crash.message and "string_at" in crash.traceback, "with its place"
    assert f.leftovers(tmp_path) == []
    stored = {each.label for each in Store(tmp_path / "cells")}
    assert stored == {each.label for each in healthy}, "no failure is stored as a result"


def test_a_cell_within_its_memory_limit_is_left_alone(tmp_path: Path) -> None:
    assert f.results([f.cell("eat", mebibytes=64, memory=400 << 20)], tmp_path)["eat"].record == {"held": 8}


def test_a_worker_killed_from_outside_costs_a_retry_and_a_second_time_is_an_error(tmp_path: Path) -> None:
    once = f.cell("killed", n=1, times=1, log=str(tmp_path / "once"))
    always = f.cell("killed", n=2, times=99, log=str(tmp_path / "always"))
    found = f.results([once, always, *f.squares(tmp_path, 3)], tmp_path)
    assert found["killed 1"].record == {"survived": True}
    failure = found["killed 2"].failure
    assert failure is not None and failure.kind == "WorkerDied" and "SIGKILL" in failure.message
    assert (tmp_path / "always").read_text() == "xx", "tried twice, not for ever"


def test_a_crash_of_the_cells_own_code_is_not_tried_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    found = f.results([f.cell("explode"), *f.squares(tmp_path, 2)], tmp_path)
    assert found["explode"].failure is not None
    assert sorted(log.read_text().split()) == ["0", "1"]


def test_what_a_stopped_worker_started_is_stopped_too(tmp_path: Path) -> None:
    stream = execute([f.cell("where"), f.cell("hang")], store=Store(tmp_path / "cells"), executor=LocalExecutor(1))
    first = next(stream)
    assert first.record is not None
    stream.close()
    with pytest.raises(ProcessLookupError):
        os.kill(first.record["pid"], 0)
    assert f.leftovers(tmp_path) == [], "an interrupted driver leaves no lock"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_is_stopped_loses_nothing_and_blocks_nobody(
    tmp_path: Path, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Waiting for a claim of the dead would take ten minutes here, so that a busy machine is not taken for it.
    monkeypatch.setitem(Claims.__init__.__kwdefaults__, "lease", 600.0)
    driver = [sys.executable, SCRIPT, str(tmp_path), "60", "0.1"]
    # A shell that starts the tests in the background has them ignore SIGINT, and children inherit that.
    process = subprocess.Popen(
        driver, stderr=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    try:
        _until(lambda: len(f.begun(tmp_path)) >= 8)
        process.send_signal(how)
        process.wait(timeout=300)
    finally:
        process.kill()
        process.wait()
    done = len(list(Store(tmp_path / "cells")))
    assert 0 < done < 60, "it was stopped in the middle"
    begun = len(f.begun(tmp_path))
    start = time.monotonic()
    found = f.results(f.squares(tmp_path, 60, 0.1), tmp_path)
    assert time.monotonic() - start < 300, "claims of a dead driver on this machine are taken over at once"
    assert all(found[f"square {n}"].record == {"n": n, "square": n * n} for n in range(60))
    again = len(f.begun(tmp_path)) - begun
    assert again == 60 - done, "only what was not in the store is run again"
    assert f.leftovers(tmp_path) == []


def test_a_corrupted_cell_is_found_set_aside_and_done_again(tmp_path: Path) -> None:
    cells = f.squares(tmp_path, 5)
    f.results(cells, tmp_path)
    store = Store(tmp_path / "cells")
    paths = [store.path(each.key) for each in cells]
    paths[0].write_bytes(paths[0].read_bytes()[:40])
    paths[1].write_bytes(b"")
    paths[2].write_bytes(os.urandom(200))
    paths[3].write_bytes(paths[3].read_bytes().replace(b'"square": 9', b'"square": 8'))
    found = f.results(cells, tmp_path)
    assert all(found[f"square {n}"].record == {"n": n, "square": n * n} for n in range(5))
    assert sorted(f.begun(tmp_path)) == [0, 0, 1, 1, 2, 2, 3, 3, 4], "the damaged ones again, the whole one not"
    assert len(list((tmp_path / "cells").glob("??/*.damaged-*"))) == 4, "the evidence is kept"


def test_a_script_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    lines = (
        "import sys\n"
        "from assay.engine import LocalExecutor, Store, execute\n"
        "from assay.protocols import Cell\n"
        "def one(payload): return {'one': 1}\n"
        "cell = Cell('0' * 32, '__main__:one', {}, 'one', 'g', timeout=300)\n"
        "{guard}\n"
        "    for result in execute([cell], store=Store(sys.argv[1]), executor=LocalExecutor(1)):\n"
        "        print(result.record or result.failure.message)\n"
    )

    def said(guard: str) -> str:
        script.write_text(lines.replace("{guard}", guard))
        command = [sys.executable, str(script), str(tmp_path / "cells")]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout.strip()

    assert "if __name__ == '__main__'" in said("if True:")
    assert said("if __name__ == '__main__':") == "{'one': 1}", "a guarded script may define its own cells"


def _until(condition: object, seconds: float = 60.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
