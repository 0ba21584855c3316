"""A cell no node can run waits for an autoscaler as long as was said, and is then an error with both sizes."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="needs the [ray] extra: pip install 'assay-ml[ray]'")

from assay.engine.ray.executor import RayExecutor, _Flight
from assay.errors import InputError
from assay.protocols import Cell


def flight(cell: Cell, *, waited: float, nodes: list[dict[str, float]]) -> tuple[_Flight, list[str]]:
    """The driver's side alone: a cell has been with Ray for some time, on a cluster of these nodes."""
    cancelled: list[str] = []
    made = object.__new__(_Flight)
    now = time.monotonic()
    made._ray = SimpleNamespace(cancel=lambda reference, force: cancelled.append(reference))
    made._executor = RayExecutor(patience=60.0)
    made._cells_of, made._too_large, made._started = {"it": cell}, {"it": now - waited}, {}
    made._nodes, made._places, made._counted = nodes, 1, now
    return made, cancelled


LARGE = Cell("f" * 32, "m:f", {}, "large", "g", cpus=5, memory=3 << 30)
SMALL_NODES = [{"CPU": 4.0, "memory": 1 << 30}, {"CPU": 1.0, "memory": 8 << 30}]


def test_after_its_patience_the_cell_fails_with_what_was_asked_and_what_there_is() -> None:
    driver, cancelled = flight(LARGE, waited=61.0, nodes=SMALL_NODES)
    (result,) = driver._hopeless()
    assert result.failure is not None and result.failure.kind == "TooLarge"
    assert result.failure.message == (
        "asked for 5 cpus, 0 gpus, 3072 MiB of memory; the largest of 2 nodes has 4 cpus, 0 gpus, 8192 MiB of memory"
    )
    assert cancelled == ["it"] and not driver.under_way, "nothing waits for ever"


def test_before_that_it_waits_and_a_node_that_comes_saves_it() -> None:
    driver, cancelled = flight(LARGE, waited=59.0, nodes=SMALL_NODES)
    assert driver._hopeless() == [] and driver.under_way
    driver, cancelled = flight(LARGE, waited=600.0, nodes=[*SMALL_NODES, {"CPU": 8.0, "memory": 16 << 30}])
    assert driver._hopeless() == [] and driver.under_way and not driver._too_large
    assert cancelled == []


def test_cores_of_one_node_and_memory_of_another_do_not_make_a_node() -> None:
    both = Cell("e" * 32, "m:f", {}, "both", "g", cpus=4, memory=8 << 30)
    driver, _ = flight(both, waited=61.0, nodes=SMALL_NODES)
    assert len(driver._hopeless()) == 1


def test_patience_is_not_negative() -> None:
    with pytest.raises(InputError, match="patience >= 0"):
        RayExecutor(patience=-1.0)


def test_without_a_bash_to_start_workers_by_it_says_so_instead_of_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="install bash"):
        RayExecutor()._connect()
