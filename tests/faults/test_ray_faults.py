"""Faults on a Ray cluster of several nodes: what is lost is tried again, what fails is named, nothing is forgotten."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fault_cells as f
import pytest

ray = pytest.importorskip("ray", reason="needs the [ray] extra: pip install 'assay-ml[ray]'")

from assay.engine import LocalExecutor, RayExecutor, Store, execute  # noqa: E402
from assay.errors import AssayError, InputError  # noqa: E402

pytestmark = [
    pytest.mark.ray, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this system: Ray starts workers by it"),
]  # fmt: skip

SCRIPT = str(Path(f.__file__))


class Nodes:
    """A head without cores and two nodes of one core each, on this machine; a node that was killed is replaced."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        small = {"object_store_memory": 80 << 20, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
        self.nodes = [self.cluster.add_node(num_cpus=1, object_store_memory=80 << 20) for _ in range(2)]
        self.executor = RayExecutor(address=self.cluster.address, modules=("fault_cells", "engine_track"), retries=1)
        self.executor._connect()

    def kill_one(self) -> None:
        self.cluster.remove_node(self.nodes.pop(), allow_graceful=False)

    def mend(self) -> None:
        while len(self.nodes) < 2:
            self.nodes.append(_patiently(lambda: self.cluster.add_node(num_cpus=1, object_store_memory=80 << 20)))
        self.cluster.wait_for_nodes()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    made = _patiently(Nodes)
    yield made
    ray.shutdown()
    made.cluster.shutdown()


def test_every_way_to_fail_is_named_as_on_one_machine_and_the_rest_goes_on(nodes: Nodes, tmp_path: Path) -> None:
    planted = [
        f.cell("explode"), f.cell("stubborn", timeout=1.0), f.cell("eat", mebibytes=4000, memory=200 << 20),
        f.cell("crash"), f.cell("killed", n=9, times=99, log=str(tmp_path / "always")),
    ]
    healthy = f.squares(tmp_path, 6)
    found = f.results([*planted, *healthy], tmp_path, nodes.executor)
    assert {label: result.failure.kind for label, result in found.items() if result.failure} == {
        "explode": "ZeroDivisionError", "stubborn": "Timeout", "eat": "MemoryLimit", "crash": "WorkerDied",
        "killed 9": "WorkerDied",
    }
    assert all(found[f"square {n}"].record == {"n": n, "square": n * n} for n in range(6))
    assert (tmp_path / "always").read_text() == "xx", "killed from outside: once more, not for ever"
    assert f.leftovers(tmp_path) == []


def test_a_lost_ray_worker_is_replaced_and_its_cell_tried_again_within_bounds(nodes: Nodes, tmp_path: Path) -> None:
    once = f.cell("kills_keeper", n=1, times=1, log=str(tmp_path / "once"))
    always = f.cell("kills_keeper", n=2, times=99, log=str(tmp_path / "always"))
    found = f.results([once, always, *f.squares(tmp_path, 4)], tmp_path, nodes.executor)
    assert found["kills_keeper 1"].record == {"survived": True}
    failure = found["kills_keeper 2"].failure
    assert failure is not None and failure.kind == "WorkerDied" and "(2 times)" in failure.message
    assert (tmp_path / "always").read_text() == "xx", "one try and one retry"


def test_a_node_that_dies_takes_no_cell_with_it(nodes: Nodes, tmp_path: Path) -> None:
    over = threading.Event()

    def kill_when_busy() -> None:
        while not over.wait(0.02):
            if len(f.begun(tmp_path)) >= 6:
                nodes.kill_one()
                return

    killer = threading.Thread(target=kill_when_busy)
    killer.start()
    try:
        found = f.results(f.squares(tmp_path, 16, 0.3), tmp_path, nodes.executor)
    finally:
        over.set()  # a run that failed at its start must end this test, not leave it waiting
        killer.join()
        nodes.mend()
    assert all(found[f"square {n}"].record == {"n": n, "square": n * n} for n in range(16))
    begun = f.begun(tmp_path)
    assert set(begun) == set(range(16)) and len(begun) <= 16 + 2
    assert f.leftovers(tmp_path) == []


def test_a_killed_driver_leaves_a_store_that_either_engine_finishes(nodes: Nodes, tmp_path: Path) -> None:
    command = [sys.executable, SCRIPT, str(tmp_path), "24", "0.2", nodes.cluster.address]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _until(lambda: len(f.begun(tmp_path)) >= 5)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = len(list(Store(tmp_path / "cells")))
    assert done < 24
    found = f.results(f.squares(tmp_path, 24, 0.2)[:12], tmp_path, LocalExecutor(2))
    found |= f.results(f.squares(tmp_path, 24, 0.2), tmp_path, nodes.executor)
    assert all(found[f"square {n}"].record == {"n": n, "square": n * n} for n in range(24))
    assert len(f.begun(tmp_path)) <= 24 + 4, "only what was under way at the kill was run again"
    assert f.leftovers(tmp_path) == []


def test_a_local_and_a_ray_driver_share_one_plan(nodes: Nodes, tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, SCRIPT, str(tmp_path), "20", "0.1"])
    try:
        found = f.results(f.squares(tmp_path, 20, 0.1), tmp_path, nodes.executor)
        assert other.wait(timeout=300) == 0
    finally:
        other.kill()
        other.wait()
    assert all(found[f"square {n}"].record == {"n": n, "square": n * n} for n in range(20))
    assert sorted(f.begun(tmp_path)) == list(range(20)), "no cell was run twice"


def test_findings_are_the_same_bytes_on_both_engines(nodes: Nodes, tmp_path: Path) -> None:
    import engine_track  # noqa: F401 - registers track 9801

    import assay

    def findings(executor: Any, folder: str) -> list[str]:
        run = assay.verify(9801, executor=executor, store=tmp_path / folder)
        return [finding.model_copy(update={"seconds": 0.0}).model_dump_json() for finding in run.findings]

    local = findings(LocalExecutor(2), "local")
    assert findings(nodes.executor, "ray") == local
    assert "planted at seed 43" in local[0] and "threads [1.0]" in local[0]


@pytest.mark.slow
def test_a_benchmark_finds_the_same_on_both_engines(nodes: Nodes, tmp_path: Path) -> None:
    """Everything but the measured times; those have a unit of time or are ratios of times."""
    from assay.studies.bench import bench

    def findings(executor: Any, folder: str) -> list[dict[str, Any]]:
        found = []
        grouping = folder != "apart"
        run = bench("digits", seeds=4, settings={"epochs": 1}, executor=executor, store=tmp_path / folder,
                    grouping=grouping)
        assert ("groups" in run.config["grouping"]) is grouping
        for finding in run.findings:
            data = finding.model_dump(mode="json", exclude={"seconds", "key_finding"})
            data["measurements"] = [each for each in data["measurements"] if "time" not in each["name"]]
            found.append(data)
        return found

    local = findings(LocalExecutor(2), "local")
    assert local[0]["measurements"] and findings(nodes.executor, "ray") == local
    assert findings(LocalExecutor(2), "apart") == local, "whether seeds are grouped changes nothing either"


def test_a_cell_larger_than_any_node_is_told_so_and_the_rest_goes_on(nodes: Nodes, tmp_path: Path) -> None:
    large = replace(f.cell("where"), key="f" * 32, label="large", cpus=5.0)
    found = f.results([large, *f.squares(tmp_path, 3)], tmp_path, replace(nodes.executor, patience=1.0))
    failure = found["large"].failure
    assert failure is not None and failure.kind == "TooLarge"
    assert failure.message.startswith("asked for 5 cpus, 0 gpus, 0 MiB of memory; the largest of 3 nodes has 1 cpus")
    assert all(found[f"square {n}"].record for n in range(3))


def test_no_more_of_a_plan_is_with_ray_than_its_window(nodes: Nodes, tmp_path: Path) -> None:
    drawn = finished = worst = 0

    def plan() -> Iterator[Any]:
        nonlocal drawn, worst
        for cell in f.squares(tmp_path, 40):
            drawn += 1
            worst = max(worst, drawn - finished)
            yield cell

    for batch in nodes.executor.run(plan(), notify=lambda event: None):
        finished += len(batch)
    assert finished == 40
    assert worst <= 2 * 2 + 4, "two places, as many queued, and what came back together"


def test_leaving_early_stops_what_is_under_way(nodes: Nodes, tmp_path: Path) -> None:
    cells = [f.cell("where"), *(f.cell("hang", n=n, log=str(tmp_path / "log")) for n in range(2))]
    stream = execute(cells, store=Store(tmp_path / "cells"), executor=nodes.executor)
    first = next(stream)
    assert first.record is not None and first.record["threads"] == "1"
    _until(lambda: len(f.begun(tmp_path)) == 2)
    stream.close()
    assert f.leftovers(tmp_path) == []
    _until(lambda: not any(_runs(pid) for pid in f.begun(tmp_path)))


def test_code_travels_with_the_job(nodes: Nodes, tmp_path: Path) -> None:
    record = f.results([f.cell("where")], tmp_path, nodes.executor)["where"].record
    assert record is not None and "runtime_resources" in record["assay"], "the worker runs what the driver sent"


def test_a_node_with_other_versions_stops_the_run_with_one_line(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "assay.engine.ray.executor.versions", lambda: {"python": "3.11", "torch": "0.0.1", "assay source": "x"}
    )
    with pytest.raises(AssayError, match=r"torch .*\(driver: 0.0.1\).*same command again"):
        f.results(f.squares(tmp_path, 2), tmp_path, nodes.executor)
    assert f.leftovers(tmp_path) == []


def test_bad_arguments_are_refused_before_anything_starts() -> None:
    with pytest.raises(InputError, match="workers >= 1"):
        RayExecutor(workers=0)
    with pytest.raises(InputError, match="retries >= 0"):
        RayExecutor(retries=-1)


def _patiently(start: Any) -> Any:
    """Start Ray, again if it gave up: it waits 30 s for a node, too short on a busy machine, and has no setting."""
    for _ in range(2):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return start()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _until(condition: Any, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)
