"""The commands for data, tuning and the benchmark: the same call as in Python, one line for what went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from assay.cli.learning.bench import bench_command
from assay.cli.learning.data import data_app
from assay.cli.learning.tune import tune_command
from assay.cli.typed.many import ManyValues
from assay.errors import InputError
from assay.results import load_run

SMALL = ["--set", "epochs=1", "hidden=[8,4]"]


def call(*args: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command("bench", cls=ManyValues)(bench_command)
    app.command("tune", cls=ManyValues)(tune_command)
    app.add_typer(data_app, name="data")
    result = CliRunner().invoke(app, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_bench_takes_several_rules_after_one_flag_and_leaves_a_report(
    tmp_path: Path, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.engine.choose_executor", lambda *_, **__: here)
    code, text = call("bench", "blobs", "--rules", "eqprop", "dfa", "--seeds", "1", *SMALL, "--workers", "1",
                      "--out", str(tmp_path / "run"))
    run = load_run(tmp_path / "run")
    assert [f.name for f in run.findings] == ["blobs/eqprop/mlp", "blobs/dfa-layer/mlp"]
    assert code == run.verdict.exit_code == 3
    assert (tmp_path / "run" / "index.html").exists()
    assert "blobs" in text


def test_an_unknown_task_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'blobs'"):
        call("bench", "blob", "--out", str(tmp_path))


def test_tune_prints_what_it_chose_and_writes_settings_and_report(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="needs the [tune] extra")
    code, text = call("tune", "blobs", "--trials", "2", "--storage", f"sqlite:///{tmp_path / 't.sqlite'}", *SMALL,
                      "--train-items", "200", "--save", str(tmp_path / "blobs.json"), "--out", str(tmp_path / "report"))
    assert code == 0
    assert "best of 2 trials" in text
    assert (tmp_path / "blobs.json").exists()
    assert (tmp_path / "report" / "index.html").exists()


def test_data_status_shows_what_is_missing_and_what_is_damaged(tmp_path: Path) -> None:
    code, text = call("data", "status", "--data", str(tmp_path))
    assert code == 0
    assert text.count("missing") >= 14
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(b"short")
    code, text = call("data", "status", "--data", str(tmp_path))
    assert code == 1
    assert "damaged" in text
    assert "train-images-idx3-ubyte" in text


def test_fetching_an_unknown_dataset_suggests_a_known_one() -> None:
    with pytest.raises(InputError, match="did you mean 'mnist'"):
        call("data", "fetch", "mnits")
