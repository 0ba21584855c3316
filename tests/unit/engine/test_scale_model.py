"""The model of very large runs is exact where the answer is known."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def model() -> Any:
    file = Path(__file__).parents[3] / "benchmarks" / "scale_model.py"
    spec = importlib.util.spec_from_file_location("scale_model_under_test", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_without_overheads_and_faults_every_core_is_busy(model: Any) -> None:
    got = model.simulate(model.Scenario(1000, 10, 10, 60.0, spread=0.0, completion=0.0, hours_between_failures=0))
    assert got.duration == pytest.approx(600.0) and got.busy == pytest.approx(1.0)
    assert got.run_again == got.failures == 0


def test_a_slow_driver_bounds_the_run(model: Any) -> None:
    got = model.simulate(model.Scenario(1000, 10, 10, 0.001, spread=0.0, completion=1.0, hours_between_failures=0))
    assert got.duration >= 1000.0 and got.driver_busy == pytest.approx(1.0, abs=0.01)


def test_faults_cost_what_ran_on_the_failed_nodes_and_no_cell(model: Any) -> None:
    calm = model.Scenario(4000, 10, 10, 600.0, completion=0.001, hours_between_failures=0)
    rough = model.Scenario(4000, 10, 10, 600.0, completion=0.001, hours_between_failures=20)
    quiet, hurt = model.simulate(calm), model.simulate(rough)
    assert hurt.failures > 0 and hurt.run_again <= hurt.failures * 10
    # A failure strikes a cell half way on average: the loss is about half a cell for each one run again.
    assert hurt.lost_seconds == pytest.approx(hurt.run_again * 600 / 2, rel=0.5)
    assert hurt.duration > quiet.duration


def test_failures_come_as_often_as_asked(model: Any) -> None:
    got = model.simulate(model.Scenario(20000, 100, 4, 600.0, completion=0.0, hours_between_failures=10))
    expected = 100 * got.duration / 3600 / 10
    assert got.failures == pytest.approx(expected, rel=4 / expected**0.5), "within four standard deviations of Poisson"


PAGE = Path(__file__).parents[3] / "docs" / "guides" / "scale.md"


def test_the_page_shows_the_committed_measurements(model: Any) -> None:
    found = json.loads(model.OVERHEADS.read_text())
    page = PAGE.read_text()
    assert model.overheads(found) in page
    without_rows = model.report(1_000_000, 1000, 8, [], 1000.0, found["measured"])
    assert [line for line in without_rows.splitlines() if line not in page.splitlines()] == []


@pytest.mark.slow
def test_the_page_shows_what_the_model_prints(model: Any) -> None:
    found = json.loads(model.OVERHEADS.read_text())
    assert model.report(1_000_000, 1000, 8, [1.0, 10.0, 60.0, 600.0], 1000.0, found["measured"]) in PAGE.read_text()
