"""Tuning chooses on validation alone, resumes, treats rules alike, and writes down what it found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay import tasks
from assay.errors import AssayError, InputError
from assay.protocols import Split
from assay.studies.arms import Arm
from assay.studies.arms.settings import read_settings
from assay.studies.tune import ENERGY_SPACE, SPACE, Tuned, save_settings, search_space, tune, tuning_run

pytest.importorskip("optuna", reason="needs the [tune] extra")
FIXED = {"hidden": [16, 8], "epochs": 1, "batch_size": 64}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[tasks.ArrayTask]:
    """Makes ``load`` give a small task; the list holds it, so that a test can replace it."""
    held = [tasks.blobs(seed=7, train=200, validation=100, test=100)]
    monkeypatch.setattr("assay.tasks.load", lambda name, seed, **options: held[0])
    return held


def search(folder: Path, *, trials: int = 3, **more: Any) -> Tuned:
    return tune("blobs", trials=trials, storage=f"sqlite:///{folder / 'trials.sqlite'}", settings=FIXED, **more)


def test_the_outcome_does_not_depend_on_the_test_set(small: list[tasks.ArrayTask], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = search(tmp_path / "a")
    task = small[0]
    small[0] = replace(task, test=Split(task.test.x * 0, task.test.y * 0))
    second = search(tmp_path / "b")
    assert first.trials == second.trials
    assert first.settings == second.settings


def test_nothing_but_train_and_validation_is_ever_evaluated(
    small: list[tasks.ArrayTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.learning import training

    seen: list[Split] = []
    whole = training.evaluate

    def watched(model: Any, split: Split, **options: Any) -> Any:
        seen.append(split)
        return whole(model, split, **options)

    monkeypatch.setattr(training, "evaluate", watched)
    search(tmp_path, trials=1)
    assert seen
    assert all(split is small[0].validation for split in seen)


def test_a_search_goes_on_where_it_stopped(small: list[tasks.ArrayTask], tmp_path: Path) -> None:
    first = search(tmp_path, trials=2)
    more = search(tmp_path, trials=3)
    assert more.trials[:2] == first.trials
    assert len(more.trials) == 3
    assert search(tmp_path, trials=3).trials == more.trials
    assert more.validation >= first.validation
    assert search(tmp_path, trials=2).trials == first.trials, "more trials in the storage do not count"


def test_other_fixed_settings_or_data_are_another_search(small: list[tasks.ArrayTask], tmp_path: Path) -> None:
    search(tmp_path, trials=1)
    other = tune("blobs", trials=1, storage=f"sqlite:///{tmp_path / 'trials.sqlite'}", settings={**FIXED, "epochs": 2})
    assert len(other.trials) == 1
    small[0] = tasks.blobs(seed=8, train=200, validation=100, test=100)
    assert len(search(tmp_path, trials=1).trials) == 1


def test_the_best_trial_on_validation_is_chosen_and_what_is_used_is_applied(
    small: list[tasks.ArrayTask], tmp_path: Path
) -> None:
    found = search(tmp_path, use={"epochs": 9})
    best = max(found.trials, key=lambda t: t.validation or 0.0)
    assert found.validation == best.validation
    assert found.settings.epochs == 9
    assert found.settings.hidden == (16, 8)
    assert found.settings.beta == pytest.approx(best.values["beta"], abs=1e-6)
    assert found.settings.sweeps == (best.values["free_sweeps"], best.values["nudged_sweeps"])
    assert "--use epochs=9" in found.command
    assert "--set hidden=[16,8]" in found.command


def test_backprop_searches_what_it_has_and_equilibrium_propagation_also_nudge_feedback_and_sweeps() -> None:
    assert set(search_space(Arm("backprop"))) == set(SPACE)
    assert set(search_space(Arm("eqprop"))) == set(SPACE) | set(ENERGY_SPACE)


def test_a_search_varies_only_the_names_it_is_given(small: list[tasks.ArrayTask], tmp_path: Path) -> None:
    found = search(tmp_path, trials=2, search=["learning_rate"])
    assert {name for trial in found.trials for name in trial.values} == {"learning_rate"}
    assert "--search learning_rate" in found.command
    for wrong, message in ((["beta", "nudge"], "nudge"), (["free_sweeps"], "together"), ([], "at least one")):
        with pytest.raises(InputError, match=message):
            search_space(Arm("eqprop"), wrong)


def test_there_is_a_sensitivity_picture_of_every_setting_and_a_report(
    small: list[tasks.ArrayTask], tmp_path: Path
) -> None:
    found = search(tmp_path, trials=4)
    names = {figure.key.rpartition("-")[2] for figure in found.figures()}
    assert names == set(SPACE) | set(ENERGY_SPACE)
    assert all(len(figure.series[0].x) == 4 for figure in found.figures())
    rows = found.table().rows
    assert [row[-1] for row in rows] == sorted((row[-1] for row in rows), reverse=True)
    run = tuning_run(found)
    assert run.findings[0].verdict == "INCONCLUSIVE", "a search tests nothing"
    assert not found.importance or sum(found.importance.values()) == pytest.approx(1.0, abs=1e-6)


def test_saving_keeps_the_other_arms_and_can_be_read_back(small: list[tasks.ArrayTask], tmp_path: Path) -> None:
    file = tmp_path / "blobs.json"
    ours, theirs = search(tmp_path, trials=1), search(tmp_path, trials=1, rule="backprop")
    save_settings(file, [ours])
    save_settings(file, [theirs])
    entries = read_settings(file)
    assert set(entries) == {"eqprop/mlp", "backprop/mlp"}
    assert entries["eqprop/mlp"].settings == ours.settings
    assert entries["backprop/mlp"].source.startswith("assay tune blobs --rule backprop")
    assert json.loads(file.read_text())["task"] == "blobs"
    file.write_text("{broken")
    with pytest.raises(InputError, match="is not a settings file"):
        save_settings(file, [ours])


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="trials >= 1"):
        search(tmp_path, trials=0)
    with pytest.raises(InputError, match="did you mean 'eqprop'"):
        search(tmp_path, rule="eqprp")
    with pytest.raises(InputError, match="cannot open the optuna storage"):
        tune("digits", trials=1, storage="nonsense://place")


def test_a_search_in_which_every_trial_raises_says_so(
    small: list[tasks.ArrayTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **options: object) -> float:
        raise AssayError("no such luck")

    monkeypatch.setattr("assay.studies.tune.objective", broken)
    with pytest.raises(AssayError, match="no such luck"):
        search(tmp_path, trials=1)


def test_trials_run_on_one_thread_and_give_the_others_back(
    small: list[tasks.ArrayTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from assay.studies import tune as module

    seen: list[int] = []
    monkeypatch.setattr(module, "objective", lambda *_, **__: float(seen.append(torch.get_num_threads()) or 0.5))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        search(tmp_path, trials=1)
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)
