"""One voice in the terminal: inert whatever a run says, wrapped to the terminal, the verdict first."""

from __future__ import annotations

import unicodedata

import pytest
from rich.cells import cell_len

from assay.cli.terminal import common, voice
from assay.results import Check, Control, Failure, Finding, Interval, Issue, Measurement, Region, Run, Table, Verdict

EVIL = "\u202egnirts\u202c \x1b[31mred\x1b]0;title\x07 \u200b[bold]not bold[/bold] \ud800 \x9b2J"
LONG = f"{EVIL} " + "a sentence that is far longer than any terminal is wide and must be wrapped at its words " * 3


def evil_finding() -> Finding:
    interval = Interval(low=-0.7, high=1.2, confidence=0.9, method=EVIL)
    gap = Measurement(name=f"gap {EVIL}", value=0.2, unit="pp", n=3, of="seeds", interval=interval,
                      region=Region(low=-1.0, high=1.0))  # fmt: skip
    return Finding(
        subject=EVIL, name=f"name {EVIL}", title=f"Title {EVIL}", claim=LONG, verdict=Verdict.FAIL, reason=LONG,
        headline=gap.name, measurements=(gap,), limitations=(LONG,), rerun="assay verify 1",
        checks=(Check(name=EVIL, verdict=Verdict.FAIL, reason=LONG),
                Check(name="fine", verdict=Verdict.PASS, reason="yes")),
        controls=(Control(name=EVIL, kind="known-bad", expected=EVIL, observed=EVIL, separated=False),),
        issues=(Issue(title=EVIL, severity="high", location=EVIL, cause=LONG, fix=LONG),),
        failures=(Failure(label=EVIL, kind=EVIL, message=LONG),) * 8,
        tables=(Table(title=EVIL, columns=("a", EVIL), rows=((1.5, EVIL),)),),
    )  # fmt: skip


@pytest.fixture(params=[80, 140])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    monkeypatch.setenv("NO_COLOR", "1")
    common.console.cache_clear()
    request.addfinalizer(common.console.cache_clear)
    return int(request.param)


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    text = capsys.readouterr().out
    active = {c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs")}
    assert active == set(), "no control, direction or lone surrogate reaches the terminal"
    assert "[bold]not bold[/bold]" in text.replace("\n", " "), "markup of a run is text"
    return text.splitlines()


def test_a_finding_is_inert_wrapped_and_begins_with_its_verdict(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    voice.say_finding(evil_finding())
    lines = said(capsys)
    assert lines[0].startswith("✗ FAIL")
    assert max(map(cell_len, lines)) <= width
    assert max(map(cell_len, lines)) > width - 20, "the terminal is used"


def test_what_an_audit_advises_beside_its_fixes_is_said(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    fix = evil_finding().issues[0].fix
    voice.say_finding(evil_finding().model_copy(update={"improvements": (fix, f"declare it: {EVIL}")}))
    hints = [line for line in said(capsys) if line.strip().startswith("hint")]
    assert len(hints) == 1 and "declare it" in hints[0], "a fix stands with its issue and is not repeated"


def test_a_run_is_inert_and_says_eight_identical_failures_once(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    two = (evil_finding(), evil_finding())
    voice.say_run(Run(id="1", created="2026-11-17T00:00:00+00:00", findings=two, command=EVIL, title=EVIL), None)
    lines = said(capsys)
    assert lines[0].startswith("✗ FAIL") and "2 fail" in lines[0]
    assert "0 " not in lines[0], "counts of nothing are left out"
    assert sum("and 7 more" in line for line in lines) == 2, "one line for eight of a kind, in each claim"
    assert max(map(cell_len, (line for line in lines if "assay" not in line))) <= width


def test_a_command_is_never_broken_so_that_it_can_be_copied(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    again = "assay audit symmetry " + " ".join(f"--option-{k} value" for k in range(20))
    voice.say_finding(evil_finding(), again=again)
    assert any(line.endswith(again) for line in said(capsys))


def test_healthy_text_of_any_script_is_left_alone() -> None:
    for text in ("plain", "naïve ± 3 µs → 2", "日本語", "α β", "two\nlines\tand a tab"):
        assert common.clean(text) == text
    assert common.clean("a\u202eb\x1b[0m\ud800") == "a\ufffdb\ufffd[0m\ufffd"
