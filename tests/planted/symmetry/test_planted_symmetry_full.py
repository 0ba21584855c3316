"""The planted suite against its targets: every third task, which stands for the whole (five minutes on a free core).

ASSAY_SUITE_EVERY=1 runs all of it (a quarter of an hour), and with
ASSAY_SUITE_RECORDS=docs/results/data/symmetry-suite/records.jsonl the committed records are judged instead.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from planted_symmetry.suite import finished, run, tasks

# In one process: the records are made once.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.xdist_group("planted suite")]
EVERY = int(os.environ.get("ASSAY_SUITE_EVERY", "3"))


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    todo, given = list(tasks()), os.environ.get("ASSAY_SUITE_RECORDS")
    if given is not None:
        done = finished(Path(given))
        return [done[task.name] for task in todo]
    return run(todo[::EVERY], records=tmp_path_factory.mktemp("suite") / "records.jsonl")


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


def test_wrong_backward_passes_are_caught_in_their_module(records) -> None:
    assert not [one["task"] for one in records if one["kind"] == "backward" and one["near"] != "exact"]


def test_no_cause_is_wrong(records) -> None:
    assert not [one["task"] for one in records if one["kind"] != "clean" and one["counts"] and one["cause"] == "wrong"]


def test_faint_defects_are_part_of_the_suite(records) -> None:
    faint = [one for one in records if one["kind"] == "forward" and one["magnitude"] == 1e-5]
    assert sum(one["counts"] for one in faint) >= 20 * len(records) // len(list(tasks()))
