"""The commands do what the Python calls do, and the reproduction resumes, compares and renders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import save_file
from typer.testing import CliRunner

from assay.cli.audits.credit import audit_credit
from assay.cli.learning.reproduce import ReproduceCommand, reproduce_command
from assay.networks.feedforward.res_mlp import ResMLP
from assay.results import Verdict
from assay.studies.reproduce import experiment
from assay.studies.reproduce.cifar import augmented, load, normalised
from assay.studies.reproduce.compare import by_arm, compare, compare_all
from assay.studies.reproduce.methods import PenalisedBackprop, ProtocolTrial, packed, train, train_cell
from assay.studies.reproduce.page import read_records, render
from assay.studies.reproduce.published import PublishedNumber
from assay.studies.reproduce.table import arm_of, chosen, missing

RECORDS = Path(__file__).parents[4] / "docs" / "results" / "data" / "fa-protocol"


def app(function, **options) -> typer.Typer:
    made = typer.Typer(pretty_exceptions_enable=False)
    made.command(**options)(function)
    return made


def test_augmentation_only_shifts_and_mirrors(tiny_cifar: Path) -> None:
    data = load(str(tiny_cifar))
    plain = normalised(data.train.x[:, :, 4:-4, 4:-4])
    x = augmented(data.train.x, torch.Generator().manual_seed(0))
    assert x.shape == (100, 3, 32, 32) and len(data.train.y) == 100
    middle = x[:, :, 12:20, 12:20]
    shifts = [(a, b) for a in range(-4, 5) for b in range(-4, 5)]
    for n in range(10):
        seen = [torch.equal(middle[n], source[n, :, 12 + a : 20 + a, 12 + b : 20 + b])
                for source in (plain, plain.flip(-1)) for a, b in shifts]
        assert sum(seen) == 1


def test_a_run_is_the_same_twice_and_carries_its_diagnostics(tiny_cifar: Path, tmp_path: Path) -> None:
    payload = {"method": "dfa", "seed": 1, "epochs": 1, "data": str(tiny_cifar), "artifacts": str(tmp_path / "weights")}
    one = train_cell(payload)
    again = train(ProtocolTrial(method="dfa", seed=1, epochs=1), load(str(tiny_cifar)))
    assert one["correct"] == again["correct"] and one["train_loss"] == again["train_loss"]
    assert len(one["diagnostics"]["cosine"]) == 5 and json.dumps(one)
    assert {path.name for path in (tmp_path / "weights").iterdir()} == {
        "resmlp-dfa-block-1ep-seed1.safetensors", "resmlp-dfa-block-1ep-seed1.feedback.safetensors"}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["vit", "resnet", "resmlp-without-ln"])
def test_every_architecture_trains_by_every_method(
    tiny_cifar: Path, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = load(str(tiny_cifar))
    for method, level in (("dfa", "block"), ("bp", "block"), ("fa", "layer")):
        record = train(ProtocolTrial(method=method, level=level, arch=arch, epochs=1), data)
        assert np.isfinite(record["train_loss"]).all()
        # One diagnosis per architecture: it takes ten times as long as the training.
        monkeypatch.setattr("assay.studies.reproduce.methods.diagnose", lambda *_, **__: {})


def test_the_penalty_of_backprop_is_part_of_its_loss() -> None:
    model = ResMLP(12, width=8, depth=2, classes=3).double()
    x, y = torch.randn(6, 12, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    PenalisedBackprop(0.5).backward(model, x, y)
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    h = model.embed(x)
    total = 0
    for block in model.blocks:
        total = total + 0.5 * block.write(h).pow(2).sum(1).mean()
        h = block(h)
    (total + torch.nn.functional.cross_entropy(model.out_head(model.out_ln(h)), y)).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)


def test_the_whole_plan_holds_every_table_once() -> None:
    plan = experiment.whole_plan(epochs=30)
    names = [setting.name for setting in plan]
    assert len(set(names)) == len(names)
    assert {"resmlp-bp-30ep-seed42", "resmlp-frozen-30ep-seed456", "resmlp-dfa-block-lambda0.1-30ep-seed123",
            "resmlp-bp-lambda0.01-30ep-seed42", "resmlp-dfa-block-last2-30ep-seed42"} <= set(names)


def test_a_figure_reproduces_only_inside_its_margin() -> None:
    def runs(*accuracies: float) -> dict:
        return {s: {"setting": {"epochs": 100}, "accuracy": a, "diagnostics": {}} for s, a in enumerate(accuracies)}

    figure = PublishedNumber("bp", "accuracy", 0.615, 0.004)
    assert compare(figure, runs(0.613, 0.617, 0.612)).verdict is Verdict.PASS
    assert compare(figure, runs(0.515, 0.512, 0.517)).verdict is Verdict.FAIL
    assert compare(figure, runs(0.62, 0.58, 0.64)).verdict is Verdict.INCONCLUSIVE
    assert compare(figure, runs(0.615)).verdict is Verdict.INCONCLUSIVE
    assert compare(figure, {}).verdict is None


def test_the_committed_page_is_what_the_committed_records_render_to() -> None:
    page = RECORDS.parents[1] / "fa-protocol.md"
    assert page.read_text() == render(read_records(RECORDS), "docs/results/data/fa-protocol")


def test_another_architecture_is_compared_with_its_own_figures() -> None:
    def record(name: str, arch: str, seed: int, accuracy: float) -> dict:
        return {"name": f"{name}-seed{seed}", "accuracy": accuracy, "diagnostics": {},
                "setting": {"arch": arch, "seed": seed, "epochs": 100}}

    values = (0.236, 0.237, 0.238)
    found = compare_all(record("vit-dfa-block-100ep", "vit", seed, value) for seed, value in enumerate(values))
    assert {c.figure.arm for c in found if c.values} == {"vit-dfa-block"}
    assert next(c for c in found if c.values).verdict is Verdict.PASS


def test_packed_answers_are_small() -> None:
    assert len(packed(torch.ones(10_000, dtype=torch.bool))) < 1700


def test_reproduce_runs_cells_and_resumes(tiny_cifar: Path, tmp_path: Path) -> None:
    command = app(reproduce_command, cls=ReproduceCommand)
    arguments = ["fa-protocol", "--methods", "bp", "dfa-block", "--seeds", "1", "--epochs", "1",
                 "--data", str(tiny_cifar), "--workers", "1", "--out", str(tmp_path / "out")]
    first = CliRunner().invoke(command, arguments)
    assert first.exit_code in (1, 3), first.output
    assert sorted(p.name for p in (tmp_path / "out" / "records").iterdir()) == [
        "resmlp-bp-1ep-seed1.json", "resmlp-dfa-block-1ep-seed1.json"]
    trained = {path: path.read_bytes() for path in (tmp_path / "out" / "records").iterdir()}
    again = CliRunner().invoke(command, arguments)
    assert again.exit_code == first.exit_code
    # Each record holds the seconds its training took, which no second training repeats to the last digit.
    assert {path: path.read_bytes() for path in (tmp_path / "out" / "records").iterdir()} == trained
    assert json.loads((tmp_path / "out" / "run.json").read_text())["kind"] == "reproduce"
    elsewhere = CliRunner().invoke(
        command, [*arguments[:-1], str(tmp_path / "other"), "--store", str(tmp_path / "out" / "cells")])
    assert elsewhere.exit_code == first.exit_code and not (tmp_path / "other" / "cells").exists()
    shared = {path.name: path.read_bytes() for path in (tmp_path / "other" / "records").iterdir()}
    assert shared == {path.name: content for path, content in trained.items()}


def test_audit_credit_on_the_command_line(tmp_path: Path, monkeypatch) -> None:
    model = ResMLP(64, width=8, depth=2, seed=3)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    (tmp_path / "my_models_for_audit.py").write_text(
        "from assay.models import ResMLP\ndef build(seed=0):\n    return ResMLP(64, width=8, depth=2, seed=seed)\n")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app(audit_credit), [
        "my_models_for_audit:build", "--data", "digits", "--weights", "weights.safetensors", "--rule", "dfa-block",
        "--samples", "32", "--out", "report"])
    assert result.exit_code in (1, 3), result.output
    assert "again   assay audit credit" in result.output
    assert (tmp_path / "report" / "index.html").is_file()


def test_runs_of_two_lengths_are_not_mixed_and_most_seeds_count() -> None:
    def record(epochs: int, seed: int) -> dict:
        setting = {"arch": "resmlp", "seed": seed, "epochs": epochs}
        return {"name": f"resmlp-bp-{epochs}ep-seed{seed}", "setting": setting}

    short, long = [record(30, seed) for seed in (1, 2, 3)], [record(100, seed) for seed in (1, 2, 3)]
    for given, length in ((short + long[:1], 30), (long[:1] + short, 30), (long + short, 100), (long, 100)):
        assert {run["setting"]["epochs"] for run in by_arm(given)["bp"].values()} == {length}


def test_the_table_trains_only_what_is_not_recorded() -> None:
    plan = experiment.whole_plan(epochs=30)
    assert {"ep"}.isdisjoint(map(arm_of, plan)) and "vit-dfa-block" in map(arm_of, plan)
    left = {setting.name for setting in missing(plan, RECORDS)}
    assert "resmlp-bp-30ep-seed42" not in left and "resnet-bp-30ep-seed42" in left
    assert [s.seed for s in chosen(plan, ["bp-last1"])] == [42, 123, 456]
