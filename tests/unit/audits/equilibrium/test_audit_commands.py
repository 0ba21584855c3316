"""The audits on the command line: the same calls as in Python, on the user's own model by import path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from assay.cli.audits import equilibrium as commands
from assay.cli.audits.symmetry import run as run_symmetry
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

def plain():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))

class Uphill:
    def backward(self, model, x, y):
        loss = EqProp().backward(model, x, y)
        for p in model.parameters():
            p.grad.neg_()
        return loss

uphill = Uphill()

def of_model(model):
    return Uphill()
"""

TURNED = """
import torch
from assay import symmetry as sym
model = torch.nn.Identity()
spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector())
points = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
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


def test_a_report_that_cannot_be_written_is_refused_before_the_audit(app: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    for out in ("report.pdf", "taken/report"):
        result = CliRunner().invoke(app, ["gradient", "no_such_module:model", "--out", out])
        assert isinstance(result.exception, InputError) and out in str(result.exception)


def test_the_report_of_an_audit_holds_its_command(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["stability", "cli_subject_for_audits:loop", "--sweeps", "50", "--out", "report"]
    monkeypatch.setattr("sys.argv", ["assay", "audit", *arguments])
    assert CliRunner().invoke(app, arguments).exit_code == 0
    run = json.loads((tmp_path / "report" / "run.json").read_text())
    assert run["command"] == "assay audit stability cli_subject_for_audits:loop --sweeps 50 --out report"


def test_a_symmetry_audit_is_made_again_with_every_option(app: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "turned_subject.py").write_text(TURNED)
    finding = run_symmetry(
        "turned_subject:model", "turned_subject:spec", sample="turned_subject:points", budget=0.1, rare=0.2,
        skip=("gradients", "training"),
    )  # fmt: skip
    assert finding.rerun == (
        "assay audit symmetry turned_subject:model --symmetry turned_subject:spec --sample turned_subject:points "
        "--seed 0 --budget 0.1 --rare 0.2 --skip gradients --skip training"
    )


def test_the_script_of_an_issue_runs_as_it_is(app: typer.Typer, tmp_path: Path, python: Any) -> None:
    (tmp_path / "bent_subject.py").write_text(TURNED + "bent = torch.nn.Sequential(torch.nn.Tanh())\n")
    finding = run_symmetry("bent_subject:bent", "bent_subject:spec", sample="bent_subject:points")
    (tmp_path / "again.py").write_text(finding.issues[0].script)
    done = python.run(["again.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("FAIL the first module that breaks rotation is '0' (Tanh)")


def test_every_equilibrium_audit_is_made_again_with_its_options(app: typer.Typer, tmp_path: Path) -> None:
    given = ["--sample", "cli_subject_for_audits:sample", "--limit", "0.2"]
    wanted = "cli_subject_for_audits:layered --sample cli_subject_for_audits:sample"
    for arguments, rest in (
        (["gradient"], "--rule eqprop --beta 0.1 --nudge centered --limit 0.2 --seed 0"),
        (["gradient", "--rule", "backprop"], "--rule backprop --limit 0.2 --seed 0"),
        (["memory"], "--rule eqprop --beta 0.1 --nudge centered --limit 0.2"),
    ):
        line = [*arguments, "cli_subject_for_audits:layered", *given, "--out", str(tmp_path / "again")]
        result = CliRunner().invoke(app, line)
        assert result.exit_code in (0, 1, 3), result.output
        finding = json.loads((tmp_path / "again" / "run.json").read_text())["findings"][0]
        assert finding["rerun"] == f"assay audit {arguments[0]} {wanted} {rest}"


@pytest.mark.parametrize("name", ["eqprop", "fa", "dfa", "cli_subject_for_audits:Uphill",
                                  "cli_subject_for_audits:uphill", "cli_subject_for_audits:of_model"])
def test_a_rule_is_named_alike_by_every_audit(app: typer.Typer, name: str) -> None:
    from assay.cli.typed.subjects import learning_rule, module

    model = module("cli_subject_for_audits:plain")
    assert callable(learning_rule(name, model).backward)
    assert callable(commands._rule(name, model, 0.1, nudge="centered", seed=0).backward)
