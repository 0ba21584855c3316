"""Two drivers at once, full disks and clocks that jump: real processes on real (small) file systems."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import fault_cells as f
import pytest

from assay.engine import Store, execute
from assay.protocols import Cell, CellResult

SCRIPT = str(Path(f.__file__))


def driver(folder: Path, count: int, sleep: float) -> list[str]:
    return [sys.executable, SCRIPT, str(folder), str(count), str(sleep)]


def test_two_drivers_of_one_plan_share_the_work_and_repeat_none(tmp_path: Path) -> None:
    both = [subprocess.Popen(driver(tmp_path, 40, 0.05)) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0], "each driver has every result"
    assert sorted(f.begun(tmp_path)) == list(range(40)), "no cell was run twice, none was left out"
    assert len(list(Store(tmp_path / "cells"))) == 40
    assert f.leftovers(tmp_path) == []


def test_when_one_of_two_drivers_is_killed_the_other_finishes_its_cells(tmp_path: Path) -> None:
    victim, heir = (subprocess.Popen(driver(tmp_path, 30, 0.2)) for _ in range(2))
    try:
        deadline = time.monotonic() + 60
        while len(f.begun(tmp_path)) < 8:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        victim.kill()
        victim.wait()
        stored = {int(cell.label.split()[1]) for cell in Store(tmp_path / "cells")}
        assert heir.wait(timeout=300) == 0
    finally:
        victim.kill()
        heir.kill()
        victim.wait()
        heir.wait()
    begun = f.begun(tmp_path)
    assert set(begun) == set(range(30))
    again = {n for n in begun if begun.count(n) > 1}
    assert not again & stored, "what had been written when the victim died is not run again"
    # Its workers are handed the next cell before the last result is on the disk: two run, two more may be on their way.
    assert len(begun) <= 30 + 4, "only the victim's running and unwritten cells were run again"
    assert len(list(Store(tmp_path / "cells"))) == 30
    assert f.leftovers(tmp_path) == []


class Here:
    """An executor in this process, slow enough that two drivers meet."""

    def __init__(self, ran: list[str]) -> None:
        self.ran = ran

    def places(self) -> int:
        return 1

    def run(self, cells, *, notify):  # type: ignore[no-untyped-def]
        for cell in cells:
            self.ran.append(cell.key)
            time.sleep(0.002)
            yield [CellResult(cell, {"key": cell.key}, None, 0.002)]


def test_two_drivers_share_an_object_store_too(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="needs the [ray] extra")
    cells = [Cell(f"{n:032x}", "m:f", {}, f"cell {n}", "g") for n in range(150)]
    ran: list[str] = []
    answers: list[dict[str, bool]] = []

    def drive() -> None:
        stream = execute(cells, store=Store(f"memory://{tmp_path.name}"), executor=Here(ran))
        answers.append({result.cell.key: result.record == {"key": result.cell.key} for result in stream})

    threads = [threading.Thread(target=drive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert [len(answer) for answer in answers] == [150, 150] and all(all(answer.values()) for answer in answers)
    assert sorted(ran) == sorted(cell.key for cell in cells)


FULL_DISK = """
set -e
mount -t tmpfs -o size=96k tmpfs "$1"
"$2" "$3" "$1" 40 0 > "$4/first" 2>&1 && exit 9
ls "$1"/cells/??/*.json | wc -l > "$4/kept"
mount -o remount,size=16m "$1"
"$2" "$3" "$1" 40 0 > "$4/second" 2>&1
sort -n "$1/log" | uniq | wc -l > "$4/begun"
ls "$1"/cells/??/*.json | wc -l > "$4/done"
ls "$1"/cells/claims "$1"/cells/drivers | grep -c json > "$4/left" || true
"""


def test_a_full_disk_stops_the_run_with_one_line_and_the_same_command_finishes_it(tmp_path: Path) -> None:
    """A real 96 KiB file system, mounted in a private namespace; one page per cell, so that it fills half way."""
    disk, notes = tmp_path / "disk", tmp_path / "notes"
    disk.mkdir()
    notes.mkdir()
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", FULL_DISK, "sh"]
    probe = [*command[:4], "mount", "-t", "tmpfs", "tmpfs", str(disk)]
    try:
        if (tried := subprocess.run(probe, capture_output=True, text=True, check=False)).returncode:
            pytest.skip(f"no private mounts here: {tried.stderr.strip()}")
    except FileNotFoundError:
        pytest.skip("no unshare on this system")
    ran = subprocess.run([*command, str(disk), sys.executable, SCRIPT, str(notes)], timeout=120, check=False)
    said = {note.name: note.read_text() for note in notes.iterdir()}
    assert ran.returncode == 0, said
    assert "AssayError" in said["first"] and "No space left on device; free some space" in said["first"]
    assert 0 < int(said["kept"]) < 40
    assert int(said["done"]) == 40 and int(said["begun"]) == 40 and int(said["left"]) == 0


JUMPING = """
import random, runpy, sys, time
draw = random.Random(0)
time.time = lambda: draw.uniform(0, 4e9)
time.time_ns = lambda: int(time.time() * 1e9)
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_wall_clocks_that_jump_change_nothing(tmp_path: Path) -> None:
    script = tmp_path / "jumping.py"
    script.write_text(JUMPING)
    commands = [[sys.executable, str(script), *driver(tmp_path, 24, 0.05)[1:]], driver(tmp_path, 24, 0.05)]
    both = [subprocess.Popen(command) for command in commands]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert sorted(f.begun(tmp_path)) == list(range(24))
    assert f.leftovers(tmp_path) == []


def test_drivers_whose_monotonic_clocks_are_days_apart_agree(tmp_path: Path) -> None:
    """One driver in a time namespace ten days ahead, as a machine with another uptime."""
    ahead = ["unshare", "--user", "--map-root-user", "--time", "--monotonic=864000", "--boottime=864000", "--fork"]
    try:
        if subprocess.run([*ahead, "true"], capture_output=True, check=False).returncode:
            pytest.skip("no time namespaces here")
    except FileNotFoundError:
        pytest.skip("no unshare on this system")
    command = driver(tmp_path, 24, 0.05)
    both = [subprocess.Popen([*ahead, *command]), subprocess.Popen(command)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert sorted(f.begun(tmp_path)) == list(range(24))
    assert f.leftovers(tmp_path) == []
