"""Exports carry every measurement, at full precision, and nothing in them can act."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from assay.cli.reading.compare import compare_command
from assay.cli.reading.report import FORMAT_NAMES, report_command
from assay.errors import AssayError
from assay.reports import save_report
from assay.reports.checklist import answers
from assay.reports.citation import citation
from assay.reports.formats import FORMATS, render
from assay.results import Finding, Measurement, Run, Verdict


def test_csv_holds_every_measurement_and_every_seed_exactly(rich: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(render(rich, "csv"))))
    for finding in rich.findings:
        for measurement in finding.measurements:
            mine = [r for r in rows if r["track"] == str(finding.number) and r["measurement"] == measurement.name]
            assert [float(r["value"]) for r in mine] == [measurement.value, *measurement.values]
            assert [r["seed"] for r in mine] == ["", *map(str, measurement.seeds)]
    assert sum(r["seed"] == "" for r in rows) == sum(len(f.measurements) for f in rich.findings)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_csv_text_cannot_become_a_formula(text: str) -> None:
    finding = Finding(
        subject=text, claim="c", verdict=Verdict.PASS, reason="r", measurements=(Measurement(name=text, value=-1.0),)
    )
    (row,) = csv.DictReader(io.StringIO(render(Run(id="r", created="c", findings=(finding,)), "csv")))
    assert row["subject"] == row["measurement"] == "'" + text and row["value"] == "-1.0"


def test_latex_escapes_and_balances(rich: Run, hostile: Run) -> None:
    for run in (rich, hostile):
        table = render(run, "latex")
        assert table.count("\\begin{") == table.count("\\end{") == 2
        rows = [line for line in table.splitlines() if line.endswith("\\\\")]
        assert len(rows) == len(run.findings) + 1
        assert all(len(re.findall(r"(?<!\\)&", row)) == 5 for row in rows)
    assert "$1.79 \\times 10^{-7}$" in render(rich, "latex")


def test_the_citation_names_the_very_file(rich: Run, tmp_path: Path) -> None:
    save_report(rich, tmp_path)
    digest = hashlib.sha256((tmp_path / "run.json").read_bytes()).hexdigest()
    assert citation(rich).fingerprint == digest and digest in citation(rich).bibtex
    assert citation(rich).bibtex.count("{") == citation(rich).bibtex.count("}")


def test_the_checklist_never_says_yes_without_evidence(rich: Run) -> None:
    empty = {answer.question: answer.answer for answer in answers(Run(id="r", created="c"))}
    assert "Yes" not in empty.values()
    full = {answer.question: answer for answer in answers(rich)}
    assert full["Claims"].answer == "No" and "Credit reaches depth: FAIL" in full["Claims"].justification
    significance = full["Experiment statistical significance"]
    assert significance.answer == "Yes" and "n = 10" in significance.justification


def test_the_command_line_offers_exactly_the_formats_there_are() -> None:
    assert tuple(FORMATS) == FORMAT_NAMES


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_a_pure_function_of_the_run(rich: Run, hostile: Run, name: str) -> None:
    assert render(rich, name) == render(Run.from_json(rich.to_json()), name)
    assert render(hostile, name)


def test_markdown_text_adds_no_markup(hostile: Run) -> None:
    """Outside code, where nothing acts, no tag, link or cell border of a run's text is left unescaped."""
    outside = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", render(hostile, "md"), flags=re.S | re.M)
    for line in outside.splitlines():
        plain = re.sub(r"(`+)(?:(?!\1).)*?\1(?!`)", "", line)
        assert not re.search(r"<\w", plain), line
        assert not re.search(r"(?<!\\)\]\(", plain), line


@pytest.fixture
def app() -> typer.Typer:
    result = typer.Typer()
    result.command("report")(report_command)
    result.command("compare")(compare_command)
    return result


def test_the_report_command_prints_or_writes(rich: Run, tmp_path: Path, app: typer.Typer) -> None:
    save_report(rich, tmp_path)
    shown = CliRunner().invoke(app, ["report", str(tmp_path), "--format", "citation"])
    assert shown.exit_code == 0 and "@misc" in shown.output
    CliRunner().invoke(app, ["report", str(tmp_path), "-f", "csv", "-o", str(tmp_path / "x.csv")])
    assert (tmp_path / "x.csv").read_text() == render(rich, "csv")
    wrong = CliRunner().invoke(app, ["report", str(tmp_path), "--format", "htlm"])
    assert isinstance(wrong.exception, AssayError) and "did you mean 'html'" in str(wrong.exception)


def test_the_compare_command_fails_on_a_regression_only_when_asked(rich: Run, tmp_path: Path, app: typer.Typer) -> None:
    worse = rich.model_dump()
    worse["findings"][0]["verdict"] = "FAIL"
    save_report(rich, tmp_path / "a")
    save_report(Run.model_validate(worse), tmp_path / "b")
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    run = CliRunner()
    assert run.invoke(app, ["compare", a, b]).exit_code == 0
    failed = run.invoke(app, ["compare", a, b, "--fail-on", "regression", "--html", str(tmp_path / "c.html")])
    assert failed.exit_code == 1 and "1 regression" in failed.output
    assert "1 regression" in (tmp_path / "c.html").read_text()
    assert run.invoke(app, ["compare", b, a, "--fail-on", "regression"]).exit_code == 0
    assert run.invoke(app, ["compare", b, a, "--fail-on", "change"]).exit_code == 1
