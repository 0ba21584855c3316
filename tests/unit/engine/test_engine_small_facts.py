"""Small facts of the engine: each was once changed by a line without any test noticing."""

from __future__ import annotations

import importlib.metadata
import io
import signal
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.engine import CostModel, Forecast
from assay.engine.driver import _Plan
from assay.engine.grouping import as_group, bundle, split
from assay.engine.identity import version_of
from assay.engine.imports import imports_of
from assay.engine.store.patience import ATTEMPTS, patiently
from assay.engine.workers import worker
from assay.engine.workers.process import WorkerProcess
from assay.errors import AssayError, InputError
from assay.protocols import Cell, CellResult, Together


def cell(n: int, *, most: int = 10, gpus: float = 0.0) -> Cell:
    return Cell(f"{n:032x}", "m:f", {"n": n}, f"cell {n}", "g", gpus=gpus, together=Together("m:all", "family", most))


def test_the_longest_cell_still_to_end_is_the_one_that_began_last() -> None:
    costs = CostModel()
    for _ in range(3):
        costs.learn("g", 10.0)
    assert costs.left({}, {"g": [1.0, 9.0]}, 2) == pytest.approx(9.0)


def test_work_takes_as_long_as_it_is_on_one_core_or_on_none_yet_known() -> None:
    plan = Forecast(cells=5, stored=0, core_seconds=10.0, longest=2.0, guessed=0, unknown=0)
    assert [plan.seconds(places) for places in (0, 1, 2, 50)] == [10.0, 10.0, 5.0, 2.0]


def test_a_family_is_cut_by_its_most_modest_member_and_asks_for_the_largest_device() -> None:
    family = [cell(0, most=2), *(cell(n) for n in range(1, 6))]
    assert max(map(len, bundle(family, places=1))) == 2
    assert as_group([cell(0, gpus=1.0), cell(1)]).gpus == as_group([cell(1), cell(0, gpus=1.0)]).gpus == 1.0


def test_records_of_a_group_are_never_given_to_the_wrong_number_of_members() -> None:
    members = [cell(0), cell(1)]
    with pytest.raises(ValueError, match="argument"):
        split(CellResult(as_group(members), {"records": [{}]}, None, 1.0), members)


def test_an_importable_package_has_the_version_of_the_distribution_that_holds_it() -> None:
    assert version_of("sklearn") == f"scikit-learn {importlib.metadata.version('scikit-learn')}"
    assert version_of("no_such_package_at_all") == "absent"


def test_computed_texts_are_read_for_their_ending_and_may_be_empty() -> None:
    assert imports_of(b'open(f""); open(f"{x}.json"); open(f"{x}")', "m", package=False).endings == {".json"}


def test_a_server_is_asked_so_often_and_then_an_error_says_so() -> None:
    waited: list[float] = []

    def fails() -> None:
        raise ConnectionError("gone")

    with pytest.raises(AssayError):
        patiently(fails, what="read it", sleep=waited.append)
    assert len(waited) == ATTEMPTS - 1


@pytest.mark.parametrize(("code", "lost"), [(-signal.SIGKILL, True), (-signal.SIGTERM, True),
                                            (-signal.SIGSEGV, False), (1, False)])  # fmt: skip
def test_a_worker_that_was_killed_from_outside_is_lost_and_one_that_crashed_is_not(code: int, lost: bool) -> None:
    made = object.__new__(WorkerProcess)
    made._output, made._started, made.cell = io.BytesIO(), time.monotonic(), cell(0)  # type: ignore[assignment]
    outcome = made._dead(code)
    assert outcome["kind"] == "WorkerDied" and bool(outcome.get("lost")) is lost


def test_a_worker_is_deaf_to_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", heard.__setitem__)
    for variable in worker.THREAD_VARIABLES:
        monkeypatch.setenv(variable, "1")
    worker.prepare()
    assert heard == {signal.SIGINT: signal.SIG_IGN}


@pytest.mark.parametrize(("elsewhere", "waiting", "sleeps"), [(1, 0, 1), (0, 0, 0), (1, 1, 0)])
def test_a_driver_sleeps_only_where_all_that_is_left_runs_elsewhere(
    elsewhere: int, waiting: int, sleeps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    plan = object.__new__(_Plan)
    plan._store = SimpleNamespace(get_all=lambda keys: [None] * len(keys))  # type: ignore[assignment]
    plan._claims = SimpleNamespace(take=lambda key: False)  # type: ignore[assignment]
    plan._elsewhere = {str(n): cell(n) for n in range(elsewhere)}
    plan._waiting = [(0.0, n, (cell(n),)) for n in range(waiting)]
    assert list(plan.look_elsewhere()) == [] and len(slept) == sleeps


def object_store(tmp_path: Path) -> Any:
    pytest.importorskip("fsspec", reason="needs the [ray] extra")
    from assay.engine.store.backend import open_backend

    return open_backend(f"memory://{tmp_path.name}/cells")


def test_an_object_is_ours_only_if_a_lost_answer_of_ours_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr("assay.engine.store.patience.FIRST_SECONDS", 0.0)
    backend = object_store(tmp_path)
    assert backend.create("claims/a", b"mine") and not backend.create("claims/a", b"mine")
    put = backend._files.pipe_file
    failed: list[str] = []

    def answer_lost(where: str, data: bytes, **how: Any) -> None:
        put(where, data, **how)
        if not failed:
            failed.append(where)
            raise ConnectionError("the answer was lost")

    monkeypatch.setattr(backend._files, "pipe_file", answer_lost)
    assert backend.create("claims/b", b"mine")

    def lost_before(where: str, data: bytes, **how: Any) -> None:
        if len(failed) == 1:
            failed.append(where)
            put(where, b"theirs")
            raise ConnectionError("the request was lost, and another came first")
        put(where, data, **how)

    monkeypatch.setattr(backend._files, "pipe_file", lost_before)
    assert not backend.create("claims/c", b"mine")


def test_one_worker_is_enough_for_ray_and_none_is_not() -> None:
    pytest.importorskip("ray", reason="needs the [ray] extra")
    from assay.engine import RayExecutor

    assert [RayExecutor(workers=n).workers for n in (1, 2)] == [1, 2]
    with pytest.raises(InputError):
        RayExecutor(workers=0)


def test_ray_without_an_address_is_started_here_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="needs the [ray] extra")
    from assay.engine import RayExecutor

    asked: dict[str, Any] = {}
    monkeypatch.setattr(ray, "init", lambda **options: asked.update(options))
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    RayExecutor(workers=2)._connect()
    assert (asked["address"], asked["num_cpus"]) == ("local", 2)


def test_ray_is_handed_cells_until_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="needs the [ray] extra")
    from assay.engine import RayExecutor
    from assay.engine.ray import executor

    class OneAtATime:
        def __init__(self, executor: Any, cells: Any, notify: Any) -> None:
            self.cells, self.under_way = cells, []

        def fill(self) -> None:
            self.under_way += [next(self.cells)] if not self.under_way and self.cells.__length_hint__() else []

        def collect(self) -> list[Cell]:
            return [self.under_way.pop()]

        def cancel(self) -> None:
            self.under_way = []

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(executor, "_Flight", OneAtATime)
    cells = [cell(n) for n in range(3)]
    batches: Any = RayExecutor(workers=1).run(cells, notify=lambda event: None)
    assert [one for batch in batches for one in batch] == cells


def test_a_cell_whose_ray_worker_was_lost_is_tried_again() -> None:
    pytest.importorskip("ray", reason="needs the [ray] extra")
    from ray import exceptions

    from assay.engine import RayExecutor
    from assay.engine.ray.executor import _Flight

    def lost(reference: str) -> None:
        raise exceptions.WorkerCrashedError

    made = object.__new__(_Flight)
    made._ray, made._executor = SimpleNamespace(get=lost), RayExecutor(retries=1)
    made._losses, made._again = Counter(), []  # type: ignore[assignment]
    for attempt in range(2):
        made._cells_of, made._started = {"it": cell(0)}, {"it": time.monotonic()}
        result = made._take("it")
        assert (result is None) is (attempt == 0)
    assert list(made._again) == [cell(0)]
    assert result is not None and result.failure is not None and result.failure.kind == "WorkerDied"
