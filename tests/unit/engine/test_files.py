"""Many files with one wait for the disk, and none lost when the power goes between the log and the files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from assay.engine import Store, StoredCell, content_key
from assay.engine.store.files import Journal
from assay.errors import AssayError


def cells(count: int) -> list[StoredCell]:
    return [StoredCell(content_key({"n": n}), f"cell {n}", "g", 0.1, {"n": n}) for n in range(count)]


def test_a_batch_waits_for_the_disk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.put_all(cells(2))  # opens the log
    syncs: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (syncs.append(handle), real(handle))[1])
    store.put_all(cells(50))
    assert len(syncs) == 1
    assert [store.get(cell.key) for cell in cells(50)] == cells(50)


def test_what_a_power_cut_took_from_the_files_comes_back_from_the_log(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put_all(cells(6))
    files = [store.path(cell.key) for cell in cells(6)]
    files[0].unlink()  # as after a power cut: a rename not yet on disk,
    files[1].write_bytes(b"")  # a file whose data never got there,
    files[2].write_bytes(files[2].read_bytes()[:30])  # or only a part of it
    del store  # the driver is gone and its lock with it
    again = Store(tmp_path)
    assert [again.get(cell.key) for cell in cells(6)] == cells(6)
    assert again.damaged == []
    assert list((tmp_path / "journal").glob("*.log")) == [], "a log that has served is dropped"


def test_the_log_of_a_living_driver_is_left_alone(tmp_path: Path) -> None:
    living = Store(tmp_path)
    living.put_all(cells(4))
    Store(tmp_path)
    assert len(list((tmp_path / "journal").glob("*.log"))) == 1
    living.close()
    assert list((tmp_path / "journal").glob("*.log")) == []


def test_the_torn_end_of_a_log_is_ignored(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put_all(cells(3))
    log = next((tmp_path / "journal").glob("*.log"))
    whole = log.read_bytes()
    del store
    for cut in (2, 20, len(whole) // 2):
        log.write_bytes(whole[:-cut])
        for cell in cells(3):
            (tmp_path / cell.key[:2] / f"{cell.key}.json").unlink(missing_ok=True)
        Journal(tmp_path / "journal", tmp_path).recover()
        kept = list(Store(tmp_path))
        assert 0 < len(kept) < 3 and all(cell in cells(3) for cell in kept)


@pytest.mark.parametrize("count", [1, 5])
def test_a_full_disk_is_one_clear_line_and_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    store = Store(tmp_path)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(AssayError, match=r"cannot write .*No space left.*free some space"):
        store.put_all(cells(count))
    monkeypatch.undo()
    assert all(cell in cells(5) for cell in Store(tmp_path)) and not list(tmp_path.rglob("*.tmp"))
