"""Defects that people met by using it, each kept out by a claim."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import assay
from assay.cli import main
from assay.cli.typed import older
from assay.errors import InputError, MissingData
from assay.reports import save_report
from assay.results import Finding, Interval, Measurement, Region, Run, Verdict

ROOT = Path(__file__).parents[3]


def command(line: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command line, run here."""
    from assay.cli.terminal.common import console

    console.cache_clear()
    monkeypatch.setattr(sys, "argv", line.split())
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# A broken pipe ----------------------------------------------------------------------------------------------------


def test_a_reader_that_leaves_early_is_141_and_loses_no_run(here: Path) -> None:
    words = [sys.executable, "-m", "assay", "verify", "toy-good", "--seeds", "3", "--out", "run"]
    plugin = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "ASSAY_PLUGINS": "toy_tracks"}
    with (here / "told").open("w") as told:
        writer = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=told, cwd=here, env=plugin)
        assert writer.stdout is not None and writer.stdout.read(5)
        writer.stdout.close()
        assert writer.wait() == 141
    assert (here / "told").read_text() == "" and assay.load_run(here / "run" / "run.json").findings


# Places -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["assay verify 0 --store cells", "assay selftest", "assay bench digits --store cells"])
@pytest.mark.parametrize("out", ["taken", "taken/below"])
def test_a_report_that_cannot_be_written_is_one_line_before_the_work(line, out, here, monkeypatch, capsys) -> None:
    (here / "taken").write_text("a file")
    assert command(f"{line} --out {out}", monkeypatch) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "taken is a file" in told and not (here / "cells").exists()


def test_a_report_may_go_to_a_new_folder_or_an_old_one(here: Path) -> None:
    from assay.reports.save import check_folder

    assert check_folder("new/below") == Path("new/below") and check_folder(here) == here


# Data -------------------------------------------------------------------------------------------------------------


def test_reproduce_reads_where_data_fetch_writes_and_says_how_to_fetch(here: Path, monkeypatch) -> None:
    import numpy as np

    from assay.studies.reproduce.experiment import make_cells, methods_plan
    from assay.tasks.files import data_root

    plan = methods_plan("resmlp", ("bp",), (1,), 1)
    monkeypatch.delenv("ASSAY_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    with pytest.raises(MissingData, match=r"run: assay data fetch cifar10"):
        make_cells(plan)
    folder = data_root() / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        np.zeros((4, 3073), dtype=np.uint8).tofile(folder / name)
    assert len(make_cells(plan)) >= 1, "what was fetched is found without a word about where"


# Titles and scores ------------------------------------------------------------------------------------------------


def finding(verdict: Verdict = Verdict.PASS, **changes: object) -> Finding:
    decided = Measurement(name="gap", value=0.5, n=3, region=Region(low=-3, high=3),
                          interval=Interval(low=-0.5, high=1.5, confidence=0.9, method="t"))  # fmt: skip
    settings = {"subject": "digits", "claim": "It holds.", "verdict": verdict, "reason": "inside", "number": 2,
                "name": "eqprop-parity", "title": "EqProp vs Backprop Parity", "headline": "gap",
                "measurements": (decided,)}  # fmt: skip
    return Finding.model_validate({**settings, **changes})


def test_the_title_of_a_track_stands_in_every_report(here: Path) -> None:
    from assay.protocols import Outcomes
    from assay.studies.verification import decide, plan

    parity = assay.registry.registry.find(2)  # type: ignore[attr-defined]
    assert decide(parity, Outcomes(()), ()).title == "EqProp vs Backprop Parity" and plan(parity, "quick", (42,))
    run = Run(id="r", created="2026-01-01T00:00:00+00:00", findings=(finding(),))
    save_report(run, here / "run")
    for name in ("index.html", "report.md", "junit.xml", "run.json"):
        assert "EqProp vs Backprop Parity" in (here / "run" / name).read_text(encoding="utf-8"), name


SPREAD = Measurement(name="gap", value=-1.0, n=3, values=(-2.0, -1.0, 0.0), region=Region(high=0))
OUTSIDE = Measurement(name="gap", value=4.0, n=9, region=Region(high=3))


@pytest.mark.parametrize(("change", "score"), [
    ({}, 75.0), ({"verdict": Verdict.INCONCLUSIVE}, 50.0), ({"verdict": Verdict.ERROR}, None),
    ({"headline": "other"}, None),
    ({"measurements": (Measurement(name="gap", value=1.5, n=9, region=Region(high=3)),)}, 75.0),
    ({"measurements": (Measurement(name="gap", value=0.5, n=9),)}, None),
    ({"measurements": (SPREAD,)}, 100.0), ({"measurements": (OUTSIDE,), "verdict": Verdict.FAIL}, 100 / 3),
])
def test_every_claim_with_a_deciding_number_has_a_score(change: dict, score: float | None) -> None:
    found = assay.stats.headline_score(finding(**change))
    assert found == (score if score is None else pytest.approx(score))


# Flags of the original --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [
    ("--quick", "--budget quick"), ("--intermediate", "--budget standard"), ("--full", "--budget full"),
    ("--track 2", "2"), ("-t 1 2 --quick", "1 2 --budget quick"), ("--track=14", "14"), ("-t2", "2"),
    ("1 --seeds 3 --out x", "1 --seeds 3 --out x"), ("eqprop-parity --fail-fast", "eqprop-parity --fail-fast"),
])
def test_old_flags_are_understood_and_the_new_spelling_is_told(old: str, new: str, capsys) -> None:
    assert older.translated(old.split()) == new.split()
    assert bool(capsys.readouterr().err) == (old != new)


def test_old_flags_without_a_command_find_theirs(here: Path, monkeypatch, capsys) -> None:
    assert command("assay --list", monkeypatch) == 0 and "parity" in capsys.readouterr().out
    assert command("assay -t 999 --quick", monkeypatch) == 2
    told = capsys.readouterr().err
    assert "--quick is now --budget quick" in told and "unknown track 999" in told
    assert older.spelt_out(["verify", "--quick"]) == ["verify", "--quick"] and older.spelt_out([]) == []


@pytest.mark.parametrize(("flags", "told"), [
    ("--list", "assay tracks"), ("--export", "assay report"), ("--export=x.json", "--out FOLDER"),
])
def test_flags_that_have_no_place_any_more_say_what_to_do(flags: str, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        older.translated(flags.split())


# Documentation ----------------------------------------------------------------------------------------------------


def test_the_guide_names_every_method_that_a_model_of_your_own_must_have() -> None:
    from assay.networks.equilibrium import EquilibriumModule

    words = {4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}
    text = (ROOT / "docs" / "explanations" / "equilibrium.md").read_text(encoding="utf-8")
    needed = sorted(EquilibriumModule.__abstractmethods__)
    sentence = re.search(r"EquilibriumModule` leaves (\w+) to write \(([^)]*)\)", text)
    assert sentence is not None and sentence[1] == words[len(needed)]
    assert sorted(re.findall(r"`(\w+)`", sentence[2])) == needed
