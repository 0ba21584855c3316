"""The whole planted suite against its targets; minutes, so it is marked slow."""

from __future__ import annotations

import pytest
from planted_symmetry.suite import run, tasks

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return run(list(tasks()), records=tmp_path_factory.mktemp("suite") / "records.jsonl")


def test_no_clean_model_raises_an_alarm(records) -> None:
    assert not [one["task"] for one in records if one["kind"] == "clean" and one["alarm"]]


def test_every_error_above_ten_times_the_floor_is_found(records) -> None:
    assert not [one["task"] for one in records if one["kind"] == "forward" and one["counts"] and not one["caught"]]


def test_the_exact_module_is_named_in_95_of_100_and_its_parent_in_the_rest(records) -> None:
    named = [one["near"] for one in records if one["kind"] == "forward" and one["counts"] and one["caught"]]
    assert named.count("exact") >= 0.95 * len(named)
    assert named.count("exact") + named.count("parent") == len(named)


def test_latent_defects_are_named_by_parameter(records) -> None:
    assert not [one["task"] for one in records if one["kind"] == "latent" and one["near"] != "exact"]


def test_wrong_backward_passes_are_caught(records) -> None:
    assert not [one["task"] for one in records if one["kind"] == "backward" and not one["caught"]]
