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
    assert found.config["run"] == load_run(run).id and len(found.findings[0].checks) == 7


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


def verdicts(finding: Finding) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in finding.checks}


def test_a_run_of_an_unknown_key_is_decided_again_and_holds_once_all_of_it_was_computed_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_KEY", "the key of a reviewer")
    doubted = audited(run, rerun=0.1)["audited"]
    assert doubted.verdict is Verdict.INCONCLUSIVE
    assert [name for name, verdict in verdicts(doubted).items() if verdict is not Verdict.PASS] == [
        "signed by somebody known"
    ]
    proven = audited(run, rerun=1.0)
    assert proven["audited"].verdict is Verdict.PASS and proven["sample"].verdict is Verdict.PASS
    lie(run, verdict=Verdict.FAIL)
    assert failed(audited(run)["audited"]) >= {"decided again"}, "a lie is found without the key of who told it"


def test_cells_that_an_unknown_key_forged_come_out_differently(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_KEY", "the key of a forger")
    store = Store(run / "cells")
    for cell in list(Store(run / "cells", doubting=True)):
        store.put(StoredCell(cell.key, cell.label, cell.group, cell.seconds, {**cell.record, "gap": 0.5}, at=cell.at,
                             environment=cell.environment))
    monkeypatch.setenv("ASSAY_KEY", "the key of a reviewer")
    found = audited(run, rerun=1.0)
    assert found["sample"].verdict is Verdict.FAIL
    assert verdicts(found["audited"])["signed by somebody known"] is Verdict.INCONCLUSIVE


def test_an_altered_cell_is_a_failure_and_the_store_is_left_as_it_is(run: Path) -> None:
    file = Store(run / "cells").path(next(iter(Store(run / "cells"))).key)
    file.write_text(file.read_text().replace('"gap": ', '"gap": 1', 1))
    before = {path: path.stat().st_mtime_ns for path in (run / "cells").rglob("*")}
    found = audited(run)["audited"]
    assert "cells are there" in failed(found) and "1 of 12 cells are not what was written" in found.reason
    assert {path: path.stat().st_mtime_ns for path in (run / "cells").rglob("*")} == before


def test_a_page_names_the_seeds_that_were_run(run: Path) -> None:
    page = load_run(run)
    assert page.findings[0].seeds == tuple(page.config["seeds"])
    lie(run, seeds=(*page.findings[0].seeds, 99))
    assert "seeds were run" in failed(audited(run)["audited"])


def test_the_store_with_the_plan_of_the_run_comes_before_others(run: Path) -> None:
    shutil.move(run / "cells", run.parent / "cells")
    (run / "cells").mkdir()
    assert find_store(run, load_run(run)) == run.parent / "cells"
    assert find_store(run) == run / "cells"


def test_a_benchmark_is_decided_again_and_a_lie_in_it_is_found(tmp_path: Path) -> None:
    from assay.studies.arms.brought import Here
    from assay.studies.bench import bench

    folder = tmp_path / "run"
    made = bench("blobs", rules=["eqprop"], seeds=3, settings={"epochs": 1}, store=folder / "cells", executor=Here())
    save_report(made, folder)
    name = made.findings[0].name
    honest = audited(folder)[name]
    assert honest.verdict is Verdict.PASS, honest.reason
    better = made.findings[0].measurements[0].model_copy(update={"value": 0.0})
    lie(folder, measurements=(better, *made.findings[0].measurements[1:]))
    assert failed(audited(folder)[name]) >= {"decided again"}


def test_a_single_audit_keeps_no_cells_and_names_the_command_that_made_it(tmp_path: Path) -> None:
    finding = Finding(subject="a model", claim="c", verdict=Verdict.PASS, reason="r", name="symmetry")
    lone = Run(id="x", kind="audit", title="t", created="2026-01-01T00:00:00+00:00", command="assay audit symmetry m:f",
               findings=(finding,))
    save_report(lone, tmp_path / "run")
    found = audited(tmp_path / "run")
    assert found["symmetry"].verdict is Verdict.INCONCLUSIVE
    assert "assay audit symmetry m:f" in found["symmetry"].reason
    assert found["files"].verdict is Verdict.PASS
