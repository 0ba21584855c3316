"""A store on an S3 server: shared by drivers, exclusive in its claims, patient when it fails for a moment."""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fault_cells as f
import pytest

pytest.importorskip("s3fs", reason="needs the [ray] tests' packages: s3fs")
moto = pytest.importorskip("moto.server", reason="needs the [ray] tests' packages: moto[server]")

from assay.engine import LocalExecutor, Store, StoredCell, content_key, execute  # noqa: E402
from assay.engine.store import patience  # noqa: E402
from assay.errors import AssayError  # noqa: E402

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    running = moto.ThreadedMotoServer(port=0)
    running.start()
    host, port = running.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        import s3fs

        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("lab")
        yield "s3://lab"
        s3fs.S3FileSystem.clear_instance_cache()
    running.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_SECONDS", 0.005)


def test_cells_go_there_and_come_back_and_only_one_driver_runs_each(server: str, tmp_path: Path) -> None:
    cells = f.squares(tmp_path, 8, 0.05)
    found: list[dict[str, Any]] = []

    def drive() -> None:
        store = Store(f"{server}/shared")
        found.append({r.cell.label: r.record for r in execute(cells, store=store, executor=LocalExecutor(1))})

    drivers = [threading.Thread(target=drive) for _ in range(2)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert found[0] == found[1] == {f"square {n}": {"n": n, "square": n * n} for n in range(8)}
    assert sorted(f.begun(tmp_path)) == list(range(8)), "each cell ran once"
    store = Store(f"{server}/shared")
    assert len(list(store)) == 8 and list(store._backend.names("claims/")) == []


def test_a_server_that_fails_for_a_moment_costs_time_and_nothing_else(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(f"{server}/moment")
    files = store._backend._files  # type: ignore[attr-defined]
    asked: collections.Counter[tuple[int, str, str]] = collections.Counter()
    for name in ("cat_file", "pipe_file"):
        real = getattr(files, name)

        def sometimes(path: str, *given: Any, name: str = name, real: Any = real, **more: Any) -> Any:
            request = (threading.get_ident(), name, path)  # threads ask at once: each request fails twice for itself
            asked[request] += 1
            if asked[request] % 3:
                raise OSError(5, "We encountered an internal error. Please try again.")
            return real(path, *given, **more)

        monkeypatch.setattr(files, name, sometimes)
    found = {r.cell.label: r.record for r in execute(f.squares(tmp_path, 4), store=store, executor=LocalExecutor(2))}
    assert found == {f"square {n}": {"n": n, "square": n * n} for n in range(4)}


def test_a_server_that_stays_away_is_one_line_and_what_is_done_is_kept(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(f"{server}/away")
    done = StoredCell(content_key({"n": 1}), "one", "g", 1.0, {"n": 1})
    store.put(done)
    files = store._backend._files  # type: ignore[attr-defined]

    def away(*given: Any, **more: Any) -> Any:
        raise ConnectionError("endpoint\nunreachable")

    with monkeypatch.context() as patch:
        patch.setattr(files, "pipe_file", away)
        with pytest.raises(AssayError, match=r"after 6 attempts: endpoint unreachable; the same command continues"):
            list(execute(f.squares(tmp_path, 2), store=store, executor=LocalExecutor(1)))
    assert store.get(done.key) == done
    assert len(list(execute(f.squares(tmp_path, 2), store=store, executor=LocalExecutor(1)))) == 2


def test_a_create_whose_answer_was_lost_is_known_as_ones_own(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend: Any = Store(f"{server}/lost")._backend
    real = backend._files.pipe_file
    calls = []

    def carried_out_but_unanswered(*given: Any, **more: Any) -> Any:
        calls.append(given)
        real(*given, **more)
        if len(calls) == 1:
            raise TimeoutError("no answer")

    monkeypatch.setattr(backend._files, "pipe_file", carried_out_but_unanswered)
    assert backend.create("claims/a", b"mine")
    assert not backend.create("claims/a", b"yours")
