"""An audit accepts an honest run and finds every planted lie, each under the check that is meant for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli import _app
from assay.engine import Store, StoredCell
from assay.errors import InputError
from assay.registry import registry
from assay.reports import save_report
from assay.results import Control, Finding, Run, Verdict, load_run
from assay.studies.audit_run import audit_run, find_store
from assay.studies.verification import verify

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its cells, made once."""
    import sys

    sys.path.insert(0, str(HERE))
    registry.load_module("audited_track")
    assert "audited_track" not in registry.broken, registry.broken
    folder = tmp_path_factory.mktemp("honest") / "run"
    save_report(verify(9300, seeds=4, workers=1, store=folder / "cells"), folder)
    return folder


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    shutil.copytree(honest, tmp_path / "run")
    return tmp_path / "run"


def audited(run: Path, *, rerun: float = 0.0) -> dict[str, Finding]:
    return {finding.name: finding for finding in audit_run(run, rerun=rerun, seed=1, workers=1).findings}


def failed(finding: Finding) -> set[str]:
    return {check.name for check in finding.checks if check.verdict is Verdict.FAIL}


def lie(run: Path, **changes: object) -> None:
    """Change the first finding on the page, and seal the run anew as somebody would who knows how."""
    page = load_run(run)
    finding = page.findings[0].model_copy(update=changes)
    save_report(page.model_copy(update={"findings": (finding,), "digest": ""}), run)


def test_an_honest_run_holds_and_its_sample_comes_out_again(run: Path) -> None:
    found = audit_run(run, rerun=0.3, workers=1)
    assert found.verdict is Verdict.PASS, [f.reason for f in found.findings]
    assert [finding.name for finding in found.findings] == ["audited", "files", "sample"]
    sample = found.findings[-1]
    assert sample.measurements[0].n == 4 and sample.measurements[0].value == 0.0, "30 % of 12 cells"
    assert "same" in sample.tables[0].rows[0]
    assert found.config["run"] == load_run(run).id and len(found.findings[0].checks) == 6


def test_a_better_verdict_and_better_numbers_than_the_cells_give_are_found(run: Path) -> None:
    finding = load_run(run).findings[0]
    measured = finding.measurements[0]
    lie(run, verdict=Verdict.FAIL)
    assert failed(audited(run)["audited"]) >= {"decided again"}
    lie(run, verdict=finding.verdict, measurements=(measured.model_copy(update={"value": 1e-3}),))
    found = audited(run)["audited"]
    assert failed(found) == {"decided again"} and found.tables[0].rows[0][0] == measured.name
    never = Control(name="control: never run", kind="known-bad", expected="FAIL", observed="FAIL", separated=True)
    lie(run, measurements=(measured,), controls=(*finding.controls, never))
    assert "was not run" in str(audited(run)["audited"].tables[0].rows)


def test_a_cell_written_under_the_users_own_key_but_never_measured_is_found_by_computing_it_again(run: Path) -> None:
    store = Store(run / "cells")
    for cell in list(store):
        store.put(StoredCell(cell.key, cell.label, cell.group, cell.seconds, {**cell.record, "gap": 0.5}, at=cell.at,
                             environment=cell.environment))
    found = audited(run, rerun=0.01)
    assert found["sample"].verdict is Verdict.FAIL and "gap: stored 0.5" in found["sample"].reason


def test_times_may_differ_and_nothing_else_on_the_same_machine(run: Path) -> None:
    store = Store(run / "cells")
    for cell in list(store):
        store.put(StoredCell(cell.key, cell.label, cell.group, 9.0, {**cell.record, "seconds": -1}, at=cell.at,
                             environment=cell.environment))
    assert audited(run, rerun=0.1)["sample"].verdict is Verdict.PASS
    for cell in list(store):
        record = {**cell.record, "gap": cell.record["gap"] * (1 + 1e-12)}
        store.put(StoredCell(cell.key, cell.label, cell.group, 9.0, record, at=cell.at, environment=cell.environment))
    rounded = audited(run, rerun=1.0)
    assert rounded["sample"].verdict is Verdict.FAIL, "a last digit is a difference on the same machine"
    for cell in list(store):
        store.put(StoredCell(cell.key, cell.label, cell.group, 9.0, cell.record, at=cell.at,
                             environment={**cell.environment, "machine": "another"}))
    elsewhere = audited(run, rerun=1.0)["sample"]
    assert elsewhere.verdict is Verdict.PASS and "12 were stored by another machine" in elsewhere.tables[0].note


def test_cells_that_are_gone_leave_the_finding_undecided_not_passed(run: Path) -> None:
    gone = next(iter(Store(run / "cells"))).key
    Store(run / "cells").path(gone).unlink()
    found = audited(run)["audited"]
    assert found.verdict is Verdict.INCONCLUSIVE and "1 of 12 cells" in found.reason


def test_cells_computed_before_they_were_planned_are_found(run: Path) -> None:
    store = Store(run / "cells")
    cell = next(iter(store))
    long_ago = "2001-01-01T00:00:00.000+00:00"
    store.put(StoredCell(cell.key, cell.label, cell.group, cell.seconds, cell.record, at=long_ago,
                         environment=cell.environment))
    assert failed(audited(run)["audited"]) == {"planned before"}
    shutil.rmtree(run / "cells" / "plans")
    undated = audited(run)["audited"]
    assert undated.verdict is Verdict.INCONCLUSIVE and "no plan" in undated.reason


def test_seeds_on_the_page_that_were_not_run_are_found(run: Path) -> None:
    lie(run, seeds=(*load_run(run).findings[0].seeds, 99))
    found = audited(run)["audited"]
    assert found.verdict is not Verdict.PASS and "99" in str([check.reason for check in found.checks])


def test_an_edited_file_is_found_and_shown(run: Path) -> None:
    report = run / "report.md"
    report.write_text(report.read_text().replace("PASS", "SURE", 1) + "proven\n")
    assert failed(audited(run)["files"]) == {"report.md says what run.json says"}
    data = json.loads((run / "run.json").read_text())
    data["findings"][0]["verdict"] = "PARTIAL"
    (run / "run.json").write_text(json.dumps(data))
    assert "run.json is as it was written" in failed(audited(run)["files"])


def test_code_that_has_changed_since_is_said_and_the_cells_are_still_found(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.studies.verification.fingerprint", lambda *args, **kwargs: "other code")
    found = audited(run)["audited"]
    assert found.verdict is Verdict.PASS and "computed by other code than is here" in found.reason


def test_the_command_prints_the_verdict_and_leaves_a_page(run: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(_app(), ["audit-run", str(run), "--rerun", "0", "--out", str(tmp_path / "audit")])
    assert result.exit_code == 3, result.output  # nothing computed again: not everything was checked
    assert load_run(tmp_path / "audit").kind == "audit" and (tmp_path / "audit" / "index.html").stat().st_size > 10_000
    refused = CliRunner().invoke(_app(), ["audit-run", str(run), "--rerun", "500%"])
    assert isinstance(refused.exception, InputError)


def test_a_run_without_cells_is_one_clear_line(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    shutil.rmtree(run / "cells")
    with pytest.raises(InputError, match=r"no cells found.*--store"):
        find_store(run)
    with pytest.raises(InputError, match="between 0 and 1"):
        audit_run(run, rerun=5.0)


def test_a_finding_without_a_track_cannot_be_decided_again(run: Path) -> None:
    page = load_run(run)
    other = page.findings[0].model_copy(update={"number": 99999, "name": "elsewhere"})
    save_report(Run(**{**dict(page), "findings": (other,), "digest": ""}), run)
    found = audited(run)["elsewhere"]
    assert found.verdict is Verdict.INCONCLUSIVE and "unknown track 99999" in found.reason
