"""The audits on the command line: the same calls as in Python, on the user's own model by import path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from assay.cli import audit_equilibrium as commands
from assay.errors import InputError

SUBJECT = """
import torch
from assay.models import EnergyMLP, LoopedMLP
from assay.rules import EqProp

def layered():
    return EnergyMLP([4, 8, 8, 3], seed=0)

def loop():
    return LoopedMLP(4, 8, 3, seed=0)

def sample():
    return torch.linspace(-1, 1, 24).reshape(6, 4), torch.arange(6) % 3

class Uphill:
    def backward(self, model, x, y):
        loss = EqProp().backward(model, x, y)
        for p in model.parameters():
            p.grad.neg_()
        return loss
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    (tmp_path / "cli_subject_for_audits.py").write_text(SUBJECT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    app = typer.Typer()
    for name in ("gradient", "stability", "memory", "kernel"):
        app.command(name)(getattr(commands, f"audit_{name}"))
    return app


def test_gradient_tells_eqprop_from_its_opposite_by_exit_code(app: typer.Typer, tmp_path: Path) -> None:
    good = CliRunner().invoke(app, ["gradient", "cli_subject_for_audits:layered", "--out", str(tmp_path / "report")])
    assert good.exit_code == 0, good.output
    assert "PASS" in good.output and "told apart" in good.output
    finding = json.loads((tmp_path / "report" / "run.json").read_text())["findings"][0]
    assert finding["rerun"].startswith("assay audit gradient cli_subject_for_audits:layered")
    bad = CliRunner().invoke(
        app, ["gradient", "cli_subject_for_audits:layered", "--rule", "cli_subject_for_audits:Uphill"]
    )
    assert bad.exit_code == 1 and "FAIL" in bad.output


def test_stability_reads_the_sample_beside_the_model(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["stability", "cli_subject_for_audits:loop", "--sweeps", "50"])
    assert result.exit_code == 0, result.output


def test_errors_say_what_to_do(app: typer.Typer) -> None:
    for arguments, complaint in (
        (["gradient", "cli_subject_for_audits:layered", "--rule", "eqprp"], "did you mean 'eqprop'"),
        (["gradient", "cli_subject_for_audits:sample"], "a torch.nn.Module"),
        (["memory", "cli_subject_for_audits:layered", "--sample", "cli_subject_for_audits:loop"], r"a sample \(x, y\)"),
    ):
        result = CliRunner().invoke(app, arguments)
        assert isinstance(result.exception, InputError)
        with pytest.raises(InputError, match=complaint):
            raise result.exception
