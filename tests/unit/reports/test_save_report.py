"""save_report writes whole files, by suffix or as a folder, and says plainly what it cannot do."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from assay.errors import InputError
from assay.reports import save_report
from assay.reports.save import check_place
from assay.results import Finding, Run, Verdict, load_run


def test_a_folder_gets_all_four_renderings(rich: Run, tmp_path: Path) -> None:
    save_report(rich, tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["index.html", "junit.xml", "report.md", "run.json"]
    assert load_run(tmp_path / "run").to_json() == rich.to_json()


@pytest.mark.parametrize(
    ("name", "start"), [("a.html", "<!doctype"), ("a.md", "# "), ("a.json", "{"), ("a.xml", "<?xml")]
)
def test_the_suffix_chooses_the_rendering(rich: Run, tmp_path: Path, name: str, start: str) -> None:
    path = save_report(rich, tmp_path / "deep" / name)
    assert path.read_text().lower().startswith(start)


def test_a_bare_finding_is_wrapped_as_an_audit(rich: Run, tmp_path: Path) -> None:
    save_report(rich.findings[0], tmp_path / "audit.json")
    run = load_run(tmp_path / "audit.json")
    assert run.kind == "audit" and run.findings == (rich.findings[0],) and run.seconds == rich.findings[0].seconds


def test_an_unknown_suffix_is_refused_with_the_known_ones(rich: Run, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.html, \.md, \.json, \.xml.*; given .*report\.docx"):
        save_report(rich, tmp_path / "report.docx")


def test_something_else_than_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a Finding or a Run; given dict"):
        save_report({}, tmp_path / "a.md")  # type: ignore[arg-type]


def test_a_failed_write_leaves_the_old_report_and_no_litter(
    rich: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report.md"
    target.write_text("old")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(InputError, match="No space left on device"):
        save_report(rich, target)
    assert target.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["report.md"]


def test_a_file_where_a_folder_is_needed_is_one_clear_line(rich: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*taken"):
        save_report(rich, tmp_path / "taken" / "run")


def test_a_place_is_judged_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    for name, complaint in (("r.pdf", r"\.html, \.md"), ("taken/run", "is a file"), ("taken/r.html", "is a file")):
        with pytest.raises(InputError, match=complaint):
            check_place(tmp_path / name)
    assert check_place(tmp_path / "new" / "run") == tmp_path / "new" / "run"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["taken"]


def test_junit_never_shows_an_unproven_claim_as_green(rich: Run, tmp_path: Path) -> None:
    suite = ElementTree.fromstring(save_report(rich, tmp_path / "j.xml").read_text())[0]
    green = {case.get("name") for case in suite.iter("testcase") if {child.tag for child in case} == {"system-out"}}
    passed = {f"Track {f.number}: {f.name}" for f in rich.findings if f.verdict is Verdict.PASS}
    assert green == passed
    kinds = {child.get("type") for case in suite.iter("testcase") for child in case} - {None}
    assert kinds == {"PARTIAL", "STUB", "INCONCLUSIVE", "FAIL", "ERROR"}
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) == (
        "9",
        "4",
        "1",
        "1",
    )


def test_junit_survives_characters_xml_cannot_hold(tmp_path: Path) -> None:
    finding = Finding(subject="s\x00\x1b[31m", claim="c\ud800", verdict=Verdict.FAIL, reason="\x07\uffff")
    text = save_report(Run(id="r", created="now", findings=(finding,)), tmp_path / "j.xml").read_text()
    assert ElementTree.fromstring(text) is not None
