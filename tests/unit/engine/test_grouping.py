"""Siblings are computed in one call; to the store and to everybody above it there are only single cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.engine import LocalExecutor, Store, bundle, content_key, describe_grouping, execute
from assay.engine.grouping import as_group
from assay.protocols import Cell, CellEvent, CellResult, Together

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def targets_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.syspath_prepend(str(HERE))


def siblings(
    count: int, log: Path, *, together: str = "count_together", alone: str = "count", **more: Any
) -> list[Cell]:
    return [
        Cell(
            content_key({"n": n, "alone": alone}), f"cells_for_tests:{alone}", {"n": n, "log": str(log)}, f"cell {n}",
            "squares", together=Together(f"cells_for_tests:{together}", "squares"), **more,
        )
        for n in range(count)
    ]


def run(
    cells: list[Cell], folder: Path, events: list[CellEvent] | None = None, **options: Any
) -> dict[str, CellResult]:
    notify = events.append if events is not None else (lambda event: None)
    stream = execute(cells, store=Store(folder), executor=LocalExecutor(2), notify=notify, **options)
    return {result.cell.label: result for result in stream}


def test_siblings_share_calls_and_every_one_is_a_cell_of_its_own(tmp_path: Path) -> None:
    log, events = tmp_path / "log", []
    cells = siblings(6, log)
    results = run(cells, tmp_path / "cells", events)
    assert {label: result.record for label, result in results.items()} == {
        f"cell {n}": {"n": n, "square": n * n} for n in range(6)}
    assert sorted(log.read_text().split()) == ["0+1+2", "3+4+5"], "one group for each of two workers"
    assert all(result.together == 3 for result in results.values())
    store = Store(tmp_path / "cells")
    assert {stored.key for stored in store} == {cell.key for cell in cells}
    for kind in ("planned", "started", "done"):
        assert sorted(e.cell.label for e in events if e.kind == kind) == [f"cell {n}" for n in range(6)]
    shares = {result.seconds for label, result in results.items() if label in ("cell 0", "cell 1", "cell 2")}
    assert len(shares) == 1, "the time of a group is shared evenly"

    again = run(siblings(8, log), tmp_path / "cells")
    assert sum(result.cached for result in again.values()) == 6
    assert [r.together for r in again.values()].count(3) == 6, "a stored cell remembers how it was computed"
    assert sorted(log.read_text().split())[-2:] == ["6", "7"], "two missing siblings on two workers run apart"


def test_without_grouping_the_records_are_the_same_and_none_is_together(tmp_path: Path) -> None:
    apart = run(siblings(5, tmp_path / "log"), tmp_path / "apart", grouping=False)
    grouped = run(siblings(5, tmp_path / "log"), tmp_path / "grouped")
    assert {k: r.record for k, r in apart.items()} == {k: r.record for k, r in grouped.items()}
    assert {result.together for result in apart.values()} == {1}
    assert max(result.together for result in grouped.values()) == 3


@pytest.mark.parametrize("together", ["one_of_them_explodes", "one_record_too_few", "die_together"])
def test_a_group_that_fails_is_given_up_and_only_the_guilty_cell_fails(tmp_path: Path, together: str) -> None:
    events: list[CellEvent] = []
    cells = siblings(4, tmp_path / "log", together=together, alone="count_or_explode")
    results = run(cells, tmp_path / "cells", events)
    assert {label for label, result in results.items() if result.failure} == {"cell 2"}
    failure = results["cell 2"].failure
    assert failure is not None and failure.message == "planted in cell 2"
    assert {result.together for result in results.values()} == {1}
    for kind, labels in {"started": range(4), "done": (0, 1, 3), "failed": (2,)}.items():
        assert sorted(e.cell.label for e in events if e.kind == kind) == [f"cell {n}" for n in labels], kind


def test_pieces_of_work_keep_every_place_busy_before_they_grow() -> None:
    def sizes(counts: list[int], places: int) -> list[int]:
        cells = [
            Cell(f"{family}{n}", "m:f", {}, "", "", together=Together("m:g", str(family)))
            for family, count in enumerate(counts) for n in range(count)
        ]
        return sorted(len(piece) for piece in bundle(cells, places=places))

    assert sizes([10], places=2) == [5, 5]
    assert sizes([10], places=1) == [10]
    assert sizes([25], places=1) == [8, 8, 9], "never more than a family's limit of 10"
    assert sizes([2], places=2) == [1, 1]
    assert sizes([3], places=8) == [1, 1, 1]
    assert sizes([20] * 20, places=20) == [5] * 80, "a long plan has work for all, so groups may grow"
    lonely = [Cell(str(n), "m:f", {}, "", "") for n in range(3)]
    assert [len(piece) for piece in bundle(lonely, places=1)] == [1, 1, 1]


def test_the_limits_of_a_group_are_those_of_its_members_added_up(tmp_path: Path) -> None:
    group = as_group(siblings(3, tmp_path / "log", timeout=10.0, memory=1 << 30, cpus=2))
    assert (group.timeout, group.memory, group.cpus) == (30.0, 3 << 30, 2)
    assert as_group(siblings(3, tmp_path / "log")).memory is None


def test_grouping_is_told_in_one_line() -> None:
    some = "10 of 13 cells computed in 2 groups; the others alone"
    assert describe_grouping([5] * 10 + [1] * 3) == some
    assert describe_grouping([3, 3, 3]) == "3 of 3 cells computed in 1 group"
    assert describe_grouping([]) == "all 0 cells computed alone"
