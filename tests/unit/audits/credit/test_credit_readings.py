"""The search over readings is balanced, agrees with the rules of the library, resumes, and writes its page."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

from assay.cli.learning.reproduce import ReproduceCommand, reproduce_command
from assay.errors import InputError
from assay.networks.feedforward.vit_mini import ViTMini
from assay.rules.feedback.rule import FeedbackAlignment
from assay.studies.reproduce import frozen_page
from assay.studies.reproduce.cifar import load
from assay.studies.reproduce.frozen_runs import VitBaseline, screening, train_vit
from assay.studies.reproduce.methods import ProtocolTrial, train
from assay.studies.reproduce.published import PublishedNumber
from assay.studies.reproduce.reading_runs import ReadingRun, backward, draw_feedback, make_model, train_reading
from assay.studies.reproduce.readings import CHOICES, OTHER, Reading, design, from_levels, levels_of, parse_reading
from assay.studies.reproduce.search import full_plan, recorded, run_name, run_search, screen_plan
from assay.studies.reproduce.search_check import by_accuracy, one_by_one
from assay.studies.reproduce.search_effects import JUDGED, chance, effects, explanations, spurious, wanted
from assay.studies.reproduce.search_page import our_figures, read_records, render

SMALL = {"width": 16, "depth": 2, "epochs": 1}


def test_every_choice_takes_each_level_half_the_time_and_any_two_are_balanced() -> None:
    rows = [levels_of(reading) for reading in design()]
    assert len(rows) == 16 and rows[0] == (False,) * len(CHOICES)
    for one, two in combinations(range(len(CHOICES)), 2):
        assert sorted(sum(row[one] == a and row[two] == b for row in rows) for a in (0, 1) for b in (0, 1)) == [4] * 4
    mirrored = [levels_of(reading) for reading in design(mirrored=True)]
    assert all(a != b for row, other in zip(rows, mirrored, strict=True) for a, b in zip(row, other, strict=True))
    assert set(OTHER) == set(vars(Reading()))


@pytest.mark.parametrize("penalty", [0.0, 0.01])
@pytest.mark.parametrize("arm", ["fa", "dfa"])
def test_the_trainer_by_hand_gives_the_gradient_of_the_library_rule(arm: str, penalty: float) -> None:
    run = ReadingRun(arm=arm, reading=Reading(), seed=3, penalty=penalty, **SMALL)
    model, feedback = make_model(run), draw_feedback(run)
    x, y = torch.randn(6, 3, 32, 32), torch.arange(6)
    backward(run, model, x, y, feedback=feedback)
    by_hand = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    rule = FeedbackAlignment(model, kind=arm, level="block", seed=0, penalty=penalty)
    rule.load_state_dict({f"stream.{level}": matrix for level, matrix in enumerate(feedback)
                          if arm == "dfa" or level < run.depth})
    rule.backward(model, x, y)
    for name, p in model.named_parameters():
        torch.testing.assert_close(by_hand[name], p.grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_changes_some_run(tiny_cifar: Path, choice: str) -> None:
    data = load(str(tiny_cifar))
    changed = False
    for arm in ("dfa", "frozen"):
        one, two = (train_reading(ReadingRun(arm=arm, reading=reading, **{**SMALL, "epochs": 2}), data)
                    for reading in (Reading(), replace(Reading(), **{choice: OTHER[choice]})))
        changed |= one["norms"] != two["norms"]
    assert changed


def test_the_search_continues_and_names_what_is_missing(
    tiny_cifar: Path, tmp_path: Path, in_process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[Any] = []

    def executor(workers: int) -> Any:
        began.append(in_process())
        return began[-1]

    monkeypatch.setattr("assay.studies.reproduce.search.LocalExecutor", executor)
    runs = [ReadingRun(arm="frozen", reading=Reading(), **SMALL), ReadingRun(arm="dfa", reading=Reading(), **SMALL)]
    for _ in range(2):
        assert run_search(runs, store=tmp_path / "cells", records=tmp_path / "records", data=str(tiny_cifar)) == 0
    assert [len(each.ran) for each in began] == [2, 0], "what is done is not done again"
    files = sorted((tmp_path / "records").iterdir())
    assert [file.stem for file in files] == sorted(run_name(run) for run in runs)
    page = render([json.loads(file.read_text()) for file in files], "records", {})
    assert "the design for dfa, frozen, fa, bp" in page
    assert len(dict.fromkeys(screen_plan())) == 2 * 4 * 16 + 2 * 4


def made_up(truth: Reading, ours: dict[PublishedNumber, float]) -> list[dict[str, object]]:
    """A whole design in which the reading ``truth`` gives the published figures and other choices do nothing."""
    records = []
    for arm in ("bp", "frozen", "fa", "dfa"):
        for reading in design():
            # Half of the gap for each of the two changes of ``truth`` that a reading shares.
            both = sum(a and b for a, b in zip(levels_of(reading), levels_of(truth), strict=True))
            share = both / sum(levels_of(truth))
            values = {f.quantity: ours[f] + share * (wanted(f) - ours[f]) for f in JUDGED
                      if f.arm.removesuffix("-block") == arm}
            records.append({
                "run": {"arm": arm, "reading": vars(reading), "seed": 42, "epochs": 3}, "cpu_seconds": 1.0,
                "accuracy": values["accuracy"], "norms": [10 ** values.get("|h_L|", 0)],
                "gradient": 10 ** values.get("|g_L|", 0), "growth": [10 ** values.get("largest growth", 0)]})
    return records


def test_the_reading_that_made_the_figures_is_found_and_is_not_chance() -> None:
    truth = from_levels([name in ("schedule", "pixels") for name in CHOICES])
    ours = {figure: wanted(figure) + (2.0 if figure.logarithmic else 0.1) for figure in JUDGED}
    records = made_up(truth, ours)
    found = explanations(records, ours)
    assert found[-1].reading == truth and found[-1].distance < 1e-6 < found[0].distance
    assert effects(records, JUDGED[0])["pixels"] == pytest.approx(-0.05)
    assert spurious(records, JUDGED[0]) == pytest.approx(0, abs=1e-9)
    assert chance(records, ours) < 0.05


def test_held_out_figures_are_foretold_by_one_reading_and_not_by_many() -> None:
    """Planted: one reading behind all figures. Healthy: every figure has a choice of its own, and foretells nothing."""
    truth = from_levels([name in ("schedule", "pixels") for name in CHOICES])
    ours = {figure: wanted(figure) + (2.0 if figure.logarithmic else 0.1) for figure in JUDGED}
    found = one_by_one(made_up(truth, ours), ours)
    assert found is not None and found.left < 1e-6 and found.by_chance < 0.05
    assert all(held.reading == truth and held.foretold == pytest.approx(held.published) for held in found.figures)
    choices = {figure: CHOICES[7 + i % 8] for i, figure in enumerate(JUDGED)}  # those that can act on every arm
    apart = [record for figure in JUDGED for record in made_up(
        from_levels([name == choices[figure] for name in CHOICES]), ours)]
    merged = []
    for arm in ("bp", "frozen", "fa", "dfa"):
        mine = [(i, f) for i, f in enumerate(JUDGED) if f.arm.removesuffix("-block") == arm]
        for number, reading in enumerate(design()):
            rows = {f.quantity: [r for r in apart[64 * i : 64 * i + 64] if r["run"]["arm"] == arm][number]
                    for i, f in mine}
            whole = dict(next(iter(rows.values())))
            for name, key in (("accuracy", "accuracy"), ("|h_L|", "norms"), ("|g_L|", "gradient"),
                              ("largest growth", "growth")):
                if name in rows:
                    whole[key] = rows[name][key]
            assert whole["run"]["reading"] == vars(reading)
            merged.append(whole)
    found = one_by_one(merged, ours)
    assert found is not None and found.left > 0.9 and found.by_chance > 0.05
    assert by_accuracy(merged, ours).left > 0.9


def test_a_recorded_run_is_not_trained_again_and_idle_arms_are_not_planned(tmp_path: Path) -> None:
    run = ReadingRun(arm="dfa", reading=Reading(), **SMALL)
    assert not recorded(run, tmp_path)
    (tmp_path / f"{run_name(run)}.json").write_text(json.dumps({"run": asdict(run)}))
    assert recorded(run, tmp_path) and not recorded(replace(run, width=32), tmp_path)
    planned = full_plan([Reading(length="unit"), Reading(schedule="constant")], epochs=30, seeds=[42])
    assert [p.arm for p in planned if p.reading.length == "unit"] == ["dfa", "fa"]
    assert len([p for p in planned if p.reading.schedule == "constant"]) == 4
    with pytest.raises(InputError, match="'as it comes' or 'unit'"):
        parse_reading("length: long")
    with pytest.raises(InputError, match="choice"):
        parse_reading("lenght: unit")


def test_an_arm_that_a_reading_does_not_touch_counts_as_the_same(tiny_cifar: Path) -> None:
    """The frozen baseline under another length of its signal, which it has not, is trained to the same bits."""
    data = load(str(tiny_cifar))
    one, two = (train_reading(ReadingRun(arm="frozen", reading=reading, **SMALL), data)
                for reading in (Reading(), Reading(length="unit", cut="nowhere")))
    assert one["norms"] == two["norms"] and one["accuracy"] == two["accuracy"]
    ours = dict.fromkeys(JUDGED, 0.5)
    record = {"run": {"arm": "dfa", "reading": vars(Reading(length="unit")), "seed": 42, "epochs": 30},
              "cpu_seconds": 1.0, "accuracy": 0.306, "norms": [4e8], "gradient": 4e-9, "growth": [1.9e3]}
    page = render([*made_up(Reading(length="unit"), ours), record], "records", ours)
    assert "### Length: unit" in page and "| frozen | accuracy | 0.349 | 0.500 | the same |" in page
    assert "| dfa-block | accuracy | 0.306 | 0.500 | 0.306 | 1 | within the margin |" in page
    assert "4 of 8 figures within the margin; under the reading of the main table 0 of the same" in page


def test_the_committed_page_is_what_the_committed_records_render_to() -> None:
    results = Path(__file__).parents[4] / "docs" / "results"
    ours = our_figures(results / "data" / "fa-protocol")
    found = render(read_records(results / "data" / "fa-readings"), "docs/results/data/fa-readings", ours)
    assert (results / "fa-readings.md").read_text() == found


def test_the_committed_page_of_the_frozen_baseline_is_what_its_records_render_to() -> None:
    results = Path(__file__).parents[4] / "docs" / "results"
    records, main = (read_records(results / "data" / name) for name in ("fa-frozen", "fa-protocol"))
    found = frozen_page.render(records, main, "docs/results/data/fa-frozen")
    assert (results / "fa-frozen.md").read_text() == found


def baseline(accuracy: float, **choices: Any) -> dict[str, Any]:
    settings = {name: choices.pop(name) for name in ("images", "test") if name in choices}
    run = ReadingRun(arm="frozen", reading=replace(Reading(), **choices), epochs=6, **settings)
    return {"run": asdict(run), "accuracy": accuracy, "cpu_seconds": 1.0}


def test_the_frozen_page_says_what_explains_the_figure_and_what_does_not() -> None:
    """Planted: a choice of the baseline alone explains it. Healthy: one that all arms share, or a stated setting."""
    main = [{"setting": {"arch": "resmlp", "trainable": 0, "method": "bp", "penalty": 0.0}, "accuracy": 0.397}]
    shared = [baseline(0.38), baseline(0.35, pixels="[0, 1]"), baseline(0.34, images=5000)]
    page = frozen_page.render(shared, main, "records")
    assert "it stays unexplained" in page and "| images: 5000 | 0.340 | -4.0 pp | yes | every arm, and" in page
    assert "2 of 3 readings come near" in page and "| pixels: [0, 1] | 0.350 | -3.0 pp | yes | every arm |" in page
    vit = [{"vit": asdict(VitBaseline(learns, 42, 1)), "accuracy": accuracy, "cpu_seconds": 1.0}
           for learns, accuracy in (("gradient", 0.4), ("signal", 0.24))]
    page = frozen_page.render([*shared, baseline(0.353, frozen_embedding="signal"), *vit], main, "records")
    assert "1 change nothing but the baseline, and of these 1 train its embedding by direct feedback" in page
    assert "ViT-Mini agrees" in page and "above it already: refuted" in page


def test_settings_beside_the_recipe_change_the_run_and_its_name(tiny_cifar: Path) -> None:
    data = load(str(tiny_cifar))
    plain = ReadingRun(arm="frozen", reading=Reading(), **SMALL)
    start = train_reading(plain, data)
    for settings in ({"images": 8}, {"batch": 4}, {"learning_rate": 0.1}, {"test": "crop and flip"}):
        other = replace(plain, **settings)
        assert run_name(other) != run_name(plain)
        found = train_reading(other, data)
        same = [found[key] == start[key] for key in ("norms", "accuracy")]
        assert "test" in settings or not all(same), settings
    names = [run_name(run) for run in screening(6)]
    assert len(set(names)) == len(names) == 28


@pytest.mark.parametrize("learns", ["gradient", "signal", "untrained"])
def test_a_vit_baseline_trains_its_embedding_as_it_says_and_never_its_blocks(
    tiny_cifar: Path, learns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[Any] = []

    def small(seed: int) -> ViTMini:
        trained.append(ViTMini(width=16, depth=2, heads=2, seed=seed))
        return trained[-1]

    monkeypatch.setattr("assay.studies.reproduce.frozen_runs.ViTMini", small)
    record = train_vit(VitBaseline(learns, seed=1, epochs=1), load(str(tiny_cifar)))
    fresh, model = ViTMini(width=16, depth=2, heads=2, seed=1), trained[0]
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, fresh.state_dict()[name])}
    assert not any(name.startswith("blocks") for name in moved) and "out_head.weight" in moved
    assert ("patches.weight" in moved) == (learns != "untrained") and record["vit"]["learns"] == learns


def test_a_model_without_blocks_is_the_shallow_baseline(tiny_cifar: Path) -> None:
    record = train(ProtocolTrial(method="bp", arch="resmlp-shallow", epochs=1), load(str(tiny_cifar)))
    assert record["diagnostics"] is None and record["arm"] == "resmlp-shallow-bp-1ep"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said_before_anything_runs(tiny_cifar: Path) -> None:
    made = typer.Typer(pretty_exceptions_enable=False)
    made.command(cls=ReproduceCommand)(reproduce_command)
    result = CliRunner().invoke(made, ["fa-protocol", "--gpu", "0", "--data", str(tiny_cifar)])
    assert isinstance(result.exception, InputError) and "a machine with cuda" in str(result.exception)
