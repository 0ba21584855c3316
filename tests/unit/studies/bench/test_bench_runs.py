"""Whole benchmark runs on small tasks: resuming repeats nothing, missing data stay, broken rules do not pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from assay import tasks
from assay.cli.learning.bench import RULE_NAMES, assignments
from assay.cli.typed.many import spread
from assay.engine import Store
from assay.errors import InputError
from assay.learning.controls import shuffle_labels
from assay.results import Run, Verdict
from assay.studies.arms import Arm, arms
from assay.studies.bench import bench
from assay.studies.bench.cells import LARGE, NARROW, QUICK_ITEMS, REFERENCE, as_cell, plan_task

SMALL = {"epochs": 3, "hidden": [24, 12], "learning_rate": 5e-3}
SHORT = {**SMALL, "epochs": 1}
"""Enough for what does not ask how well it learned."""


def run(here: Any, store: Path, *names: str, **more: Any) -> Run:
    options: dict[str, Any] = {"rules": ["eqprop"], "seeds": 3, "settings": SMALL, "margin": 3.0, **more}
    return bench(*(names or ("blobs",)), store=store, executor=here, **options)


@pytest.fixture(scope="module")
def healthy(in_process: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A finished run of a rule that learns, and its store."""
    store = tmp_path_factory.mktemp("healthy")
    return store, run(in_process(), store)


def test_killing_a_run_and_issuing_it_again_repeats_nothing(here: Any, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    whole = here.run

    def dies_after_four(cells: Any, *, notify: Any) -> Any:
        for count, batch in enumerate(whole(cells, notify=notify)):
            yield batch
            if count == 3:
                raise Killed

    here.run = dies_after_four
    with pytest.raises(Killed):
        run(here, tmp_path, settings=SHORT)
    done = list(here.ran)
    here.run = whole
    first = run(here, tmp_path, settings=SHORT)
    assert len(here.ran) == len(set(here.ran)), "a finished cell ran twice"
    assert set(done) <= set(here.ran)
    count = len(here.ran)
    again = run(here, tmp_path, settings=SHORT)
    assert len(here.ran) == count
    assert [f.measurements for f in again.findings] == [f.measurements for f in first.findings]
    more = run(here, tmp_path, settings=SHORT, seeds=4)
    assert len(here.ran) == count + 2, "a fourth seed adds one cell per arm"
    assert more.findings[0].seeds == (42, 43, 44, 45)


def test_training_seeds_side_by_side_changes_the_time_and_nothing_else(here: Any, tmp_path: Path) -> None:
    grouped, apart = (
        run(here, tmp_path / name, settings=SHORT, grouping=name == "grouped") for name in ("grouped", "apart"))
    assert grouped.config["grouping"] == "9 of 13 cells computed in 3 groups; the others alone"
    assert apart.config["grouping"] == "all 13 cells computed alone"

    def facts(folder: str) -> dict[str, dict[str, Any]]:
        return {cell.key: {name: value for name, value in cell.record.items() if "seconds" not in name}
                for cell in Store(tmp_path / folder)}

    assert facts("grouped") == facts("apart")
    resumed = run(here, tmp_path / "grouped", settings=SHORT)
    assert resumed.config["grouping"] == grouped.config["grouping"], "told by a resumed run too"


def test_only_seeds_of_narrow_networks_on_small_tasks_are_siblings() -> None:
    from assay.networks.energy_mlp.population import WIDEST

    assert NARROW == WIDEST
    names = ["backprop", "eqprop", "dfa"]

    def siblings(task: str, **settings: Any) -> set[str]:
        work = plan_task(task, arms(names, ["mlp"]), budget="quick", seeds=[0, 1], overrides=settings)
        return {item.arm.name for item in work if as_cell(item, data=None).together is not None}

    assert siblings("digits") == {"backprop/mlp"}, "the bits of a relaxation differ side by side"
    assert siblings("digits", hidden=[256]) == siblings("mnist") == set()
    work = plan_task("digits", arms(names, ["mlp"]), budget="quick", seeds=[0, 1])
    families = [cell.together.family for item in work if (cell := as_cell(item, data=None)).together is not None]
    assert len(set(families)) == 3, "one arm and two controls; the third control is an arm itself"


def test_a_healthy_rule_passes_and_the_run_carries_everything_a_reader_needs(healthy: tuple[Path, Run]) -> None:
    _, found = healthy
    (finding,) = found.findings
    assert finding.verdict is Verdict.PASS, finding.reason
    assert found.kind == "bench"
    assert [t.title for t in found.tables] == ["Results matrix", "Over all tasks", "Statistical report"]
    assert finding.figures[0].kind == "slopes"
    assert len(finding.figures[0].series) == 3
    assert {c.kind for c in finding.controls} == {"known-good", "known-bad"}
    assert finding.rerun.startswith("assay bench blobs --rules eqprop")
    assert found.config["settings replaced"] == SMALL
    assert Run.from_json(found.to_json()).findings == found.findings


def test_a_rule_with_a_flipped_gradient_does_not_pass(
    here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.rules import EqProp

    whole = EqProp.backward

    def flipped(self: Any, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = whole(self, model, x, y)
        for parameter in model.parameters():
            parameter.grad.neg_()
        return loss

    monkeypatch.setattr(EqProp, "backward", flipped)
    (finding,) = run(here, tmp_path).findings
    assert finding.verdict is not Verdict.PASS


def test_missing_data_stay_in_the_run_and_the_other_tasks_go_on(
    here: Any, healthy: tuple[Path, Run], tmp_path: Path
) -> None:
    found = run(here, healthy[0], "mnist", "blobs", data=tmp_path / "nothing")
    missing, healthy = found.findings
    assert missing.verdict is Verdict.INCONCLUSIVE
    assert "assay data fetch mnist" in missing.reason
    assert healthy.verdict is Verdict.PASS
    assert found.verdict is Verdict.INCONCLUSIVE
    assert here.ran == [], "the other task was in the store"


def test_a_damaged_file_makes_its_task_an_error_that_names_it(here: Any, tmp_path: Path) -> None:
    from assay.tasks.files import DATASETS

    (tmp_path / "mnist").mkdir()
    for file in DATASETS["mnist"].files:
        (tmp_path / "mnist" / file.name).write_bytes(b"not it")
    (finding,) = run(here, tmp_path / "cells", "mnist", data=tmp_path).findings
    assert finding.verdict is Verdict.ERROR
    assert "train-images-idx3-ubyte is not the canonical file" in finding.failures[0].message


def test_control_tasks_report_the_return(here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.tasks import control

    small = tasks.cartpole(seed=0, episodes=6)
    monkeypatch.setattr(control, "cartpole", lambda seed: small)
    monkeypatch.setattr("assay.studies.bench.cells.EPISODES", 5)
    (finding,) = run(here, tmp_path, "cartpole-bc", seeds=1).findings
    assert finding.measurement("return, eqprop/mlp").value is not None
    assert finding.verdict is Verdict.INCONCLUSIVE


def test_the_place_of_the_data_and_the_role_of_a_cell_are_no_part_of_its_key() -> None:
    work = plan_task("digits", arms(["eqprop"], ["mlp"]), budget="quick", seeds=(42, 43, 44))
    cells = {item.name + str(item.seed): as_cell(item, data=None) for item in work}
    moved = {item.name + str(item.seed): as_cell(item, data="/elsewhere") for item in work}
    assert [c.key for c in cells.values()] == [c.key for c in moved.values()]
    assert cells[f"{REFERENCE}/mlp42"].key == cells["backprop/mlp42"].key
    distinct = {cell.key for name, cell in cells.items() if not name.startswith(REFERENCE)}
    assert len(distinct) == len(cells) - 3


def test_quick_budget_takes_part_of_a_large_task_and_standard_all_of_it() -> None:
    both = [Arm("backprop"), Arm("eqprop")]
    for name in LARGE:
        quick, whole = (plan_task(name, both, budget=b, seeds=(42,)) for b in ("quick", "standard"))
        assert {w.items for w in quick} == {QUICK_ITEMS}
        assert {w.items for w in whole if w.name == "eqprop/mlp"} == {None}
        assert quick[0].settings.epochs < whole[0].settings.epochs


def test_shuffled_labels_keep_their_counts_and_lose_their_pictures() -> None:
    task = tasks.digits(seed=0)
    mixed = shuffle_labels(task, seed=0)
    assert torch.equal(torch.bincount(mixed.train.y), torch.bincount(task.train.y))
    assert (mixed.train.y == task.train.y).float().mean() < 0.2
    assert mixed.test is task.test


@pytest.mark.parametrize(("options", "words"), [
    ({"seeds": 0}, "seeds >= 1"), ({"margin": 0.0}, "a margin in percentage points"), ({"seed": -1}, "seed >= 0"),
    ({"budget": "slow"}, "unknown budget"), ({"rules": ["eqprp"]}, "did you mean 'eqprop'"),
    ({"models": ["cov"]}, "did you mean 'conv'"), ({"settings": {"epoch": 2}}, "unknown setting 'epoch'"),
])
def test_bad_arguments_are_named(here: Any, tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        run(here, tmp_path, **options)
    with pytest.raises(InputError, match="did you mean 'digits'"):
        run(here, tmp_path, "digit")


def test_a_flag_may_be_followed_by_several_values() -> None:
    assert spread(["a", "--rules", "x", "y", "--seed", "1", "--models", "m"]) == [
        "a", "--rules", "x", "--rules", "y", "--seed", "1", "--models", "m"]
    assert spread(["--rules"]) == ["--rules"]
    assert assignments(["epochs=2", "hidden=[4,2]"]) == {"epochs": 2, "hidden": [4, 2]}
    with pytest.raises(InputError, match="name=value"):
        assignments(["epochs"])


def test_the_help_text_names_every_rule() -> None:
    from assay.learning.names import RULES

    assert RULE_NAMES.split(", ") == list(RULES)
