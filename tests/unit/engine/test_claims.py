"""A claim has one holder; a dead driver's passes on; no clock but the observer's own is believed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from assay.engine.store.backend import Backend, Folder, ObjectStore
from assay.engine.store.claims import Claims

KEY = "0" * 32


@pytest.fixture(params=["folder", "memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    if request.param == "memory":
        pytest.importorskip("fsspec", reason="needs the [ray] extra")
        yield ObjectStore(f"memory://{tmp_path.name}")
    else:
        yield Folder(tmp_path)


class Clock:
    """A monotonic clock that moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pretend_elsewhere(backend: Backend, claims: Claims) -> None:
    """Make a driver's claims look like another machine's, where process numbers say nothing."""
    for name in list(backend.names("claims")):
        claim = json.loads(backend.read(name) or b"{}")
        if claim["driver"] == claims.driver:
            backend.note(name, json.dumps({**claim, "machine": "another"}).encode())


def test_a_claim_has_one_holder_until_it_is_given_back(backend: Backend) -> None:
    with Claims(backend) as first, Claims(backend) as second:
        assert first.take(KEY) and first.take(KEY), "holding it, asking again is harmless"
        assert not second.take(KEY)
        first.release(KEY)
        assert second.take(KEY) and not first.take(KEY)
    assert list(backend.names("claims")) == [] and list(backend.names("drivers")) == []


def test_of_many_who_ask_at_once_one_gets_it(backend: Backend) -> None:
    drivers = [Claims(backend) for _ in range(8)]
    start = threading.Barrier(len(drivers))

    def ask(claims: Claims) -> list[bool]:
        start.wait()
        return [claims.take(f"{number:032x}") for number in range(20)]

    with ThreadPoolExecutor(len(drivers)) as pool:
        answers = list(pool.map(ask, drivers))
    assert [sum(row) for row in zip(*answers, strict=True)] == [1] * 20
    for claims in drivers:
        claims.close()


def test_a_silent_driver_elsewhere_is_believed_for_a_lease_and_then_not(backend: Backend) -> None:
    silent = Claims(backend, lease=1e9)
    assert silent.take(KEY)
    pretend_elsewhere(backend, silent)
    clock = Clock()
    with Claims(backend, lease=60, clock=clock) as observer:
        assert not observer.take(KEY), "just met"
        clock.now += 59.9
        assert not observer.take(KEY)
        clock.now += 0.2
        assert observer.take(KEY)
    assert list(backend.names("claims")) == [], "both generations are gone"
    assert list(backend.names("drivers")) == [], "and the dead driver's heartbeat"
    silent._ended.set()


def test_a_beating_driver_elsewhere_is_never_taken_for_dead(backend: Backend) -> None:
    living = Claims(backend, lease=1e9)
    assert living.take(KEY)
    pretend_elsewhere(backend, living)
    clock = Clock()
    with Claims(backend, lease=60, clock=clock) as observer:
        for _ in range(10):
            assert not observer.take(KEY)
            clock.now += 59
            living._beat()
    living.close()


def test_of_many_who_find_a_driver_dead_one_takes_over(backend: Backend) -> None:
    silent = Claims(backend, lease=1e9)
    assert silent.take(KEY)
    pretend_elsewhere(backend, silent)
    clock = Clock()
    observers = [Claims(backend, lease=60, clock=clock) for _ in range(6)]
    assert not any(observer.take(KEY) for observer in observers)
    clock.now += 61
    with ThreadPoolExecutor(len(observers)) as pool:
        assert sum(pool.map(lambda observer: observer.take(KEY), observers)) == 1
    for observer in observers:
        observer.close()
    silent._ended.set()


def test_file_times_and_wall_clocks_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Folder(tmp_path)
    living = Claims(backend, lease=1e9)
    assert living.take(KEY)
    pretend_elsewhere(backend, living)
    with Claims(backend, lease=60) as observer:
        for year in (0.0, 4e9, 1e9):
            monkeypatch.setattr("time.time", lambda year=year: year)
            for file in tmp_path.rglob("*"):
                os.utime(file, (year, year))
            assert not observer.take(KEY)
    living.close()


def test_a_process_dead_on_this_machine_is_known_at_once(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path\n"
        "from assay.engine.store.backend import Folder; from assay.engine.store.claims import Claims\n"
        f"assert Claims(Folder(Path(sys.argv[1]))).take('{KEY}'); os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == -9
    backend = Folder(tmp_path)
    assert len(list(backend.names("claims"))) == 1, "the lock of a dead driver is there"
    with Claims(backend) as claims:
        assert claims.take(KEY), "and binds nobody"
    assert list(backend.names("claims")) == [] and list(backend.names("drivers")) == []


def test_an_unreadable_claim_is_believed_for_a_lease(backend: Backend) -> None:
    assert backend.create(f"claims/{KEY}.0", b"")
    clock = Clock()
    with Claims(backend, lease=60, clock=clock) as observer:
        assert not observer.take(KEY)
        clock.now += 61
        assert observer.take(KEY)
