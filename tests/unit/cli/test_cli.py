"""The command line as a user meets it: real processes, exit codes, one-line errors, nothing lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

UNIT = Path(__file__).parents[1]
Command = Callable[..., subprocess.CompletedProcess[str]]

BESIDE = """
@track(9190, "beside", claim="seeds are positive", kind="deterministic", sources=())
class Beside(Toy):
    pass
"""


@pytest.fixture(scope="module")
def assay(python: Any) -> Command:
    """The command in a process of its own."""

    def run(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_")}
        environment |= {"PYTHONPATH": str(UNIT), "COLUMNS": "200", "NO_COLOR": "1", **variables}
        return python.run(["-m", "assay", *arguments], cwd=cwd, env=environment, timeout=120)

    return run


def imported(*arguments: str, cwd: Path) -> set[str]:
    """Top-level modules loaded by a command."""
    code = (
        "import sys\nfrom assay.cli import main\nsys.argv = ['assay', *sys.argv[1:]]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write('\\nMODULES ' + ' '.join({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=cwd, capture_output=True, text=True, check=True)
    return set(done.stderr.rpartition("MODULES ")[2].split())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, assay: Command) -> Path:
    """A folder in which one verification has been run."""
    folder = tmp_path_factory.mktemp("work")
    done = assay(
        "verify", "toy-good", "toy-fails", "--seeds", "3", "--out", "run", cwd=folder, ASSAY_PLUGINS="toy_tracks"
    )
    assert done.returncode == 1, done.stderr
    return folder


def test_importing_assay_imports_no_torch() -> None:
    code = "import assay, sys; assay.Verdict, assay.track, assay.load_run; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["tracks"], ["verify", "--help"], ["report", "run"], ["compare", "run", "run"]]
)
def test_light_commands_never_import_torch(arguments: list[str], finished: Path) -> None:
    modules = imported(*arguments, cwd=finished)
    assert "torch" not in modules
    if "--help" in arguments:
        assert not modules & {"scipy", "numpy", "sklearn"}


def test_a_verification_leaves_its_four_files(finished: Path) -> None:
    assert {"index.html", "report.md", "run.json", "junit.xml"} <= {p.name for p in (finished / "run").iterdir()}
    run = json.loads((finished / "run" / "run.json").read_text())
    assert [finding["verdict"] for finding in run["findings"]] == ["PASS", "FAIL"]
    assert run["command"] == "assay verify toy-good toy-fails --seeds 3 --out run"
    assert run["environment"]["packages"]["assay"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["toy-good"], 0), (["toy-fails"], 1), (["toy-statistical", "--seeds", "1"], 3), (["toy-raises"], 4)],
)
def test_the_exit_code_is_the_verdict(tmp_path: Path, arguments: list[str], code: int, assay: Command) -> None:
    done = assay("verify", *arguments, "--workers", "1", "--out", "run", cwd=tmp_path, ASSAY_PLUGINS="toy_tracks")
    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["verify", "toy-god"], "did you mean 'toy-good'"),
        (["verify", "777"], "unknown track 777"),
        (["verify", "toy-good", "--seeds", "-3"], "seeds >= 1"),
        (["verify", "toy-good", "--seed", "-1"], "seed >= 0"),
        (["verify", "toy-good", "--workers", "0"], "workers >= 1"),
        (["verify", "toy-good", "--budget", "quik"], "did you mean 'quick'"),
        (["verify", "toy-good", "--out", "occupied/run"], "is a file"),
        (["describe", "nothing"], "unknown track 'nothing'"),
        (["report", "absent"], "cannot read"),
        (["report", "corrupt.json"], "not valid JSON"),
        (["report", "future.json"], "upgrade"),
        (["compare", "corrupt.json", "future.json"], "not valid JSON"),
        (["plan"], "given neither"),
        (["plan", "--spread", "-1"], "expected --spread > 0; given -1"),
        (["plan", "--spread", "1", "--power", "2"], "expected --power between 0 and 1; given 2"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_two(
    tmp_path: Path, arguments: list[str], complaint: str, assay: Command
) -> None:
    (tmp_path / "occupied").write_text("a file, not a folder")
    (tmp_path / "corrupt.json").write_text('{"schema_version": 1, "findi')
    (tmp_path / "future.json").write_text('{"schema_version": 999}')
    before = sorted(p.name for p in tmp_path.iterdir())
    done = assay(*arguments, cwd=tmp_path, ASSAY_PLUGINS="toy_tracks")
    assert done.returncode == 2, done.stdout + done.stderr
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_the_same_command_continues_and_repeats_nothing(tmp_path: Path, assay: Command) -> None:
    log = tmp_path / "log"
    for seeds in ("2", "3", "3"):
        done = assay(
            "verify",
            "toy-good",
            "--seeds",
            seeds,
            "--workers",
            "1",
            "--out",
            "run",
            cwd=tmp_path,
            ASSAY_PLUGINS="toy_tracks",
            TOY_LOG=str(log),
        )
        assert done.returncode == 0, done.stderr
    assert sorted(log.read_text().splitlines()) == ["control: empty 0", "subject 42", "subject 43", "subject 44"]


def test_a_broken_plugin_is_listed_as_error(tmp_path: Path, assay: Command) -> None:
    (tmp_path / "assay.toml").write_text('plugins = ["no_such_plugin_module"]\n')
    done = assay("tracks", cwd=tmp_path)
    assert done.returncode == 4
    assert "no_such_plugin_module" in done.stdout and "ERROR" in done.stdout


def test_a_track_of_this_folder_runs_by_the_installed_command(tmp_path: Path, python: Any) -> None:
    """``python -m assay`` sees the current folder by itself, the console script does not: main() from elsewhere."""
    (tmp_path / "tracks_beside.py").write_text("from toy_tracks import Toy\nfrom assay import track\n\n" + BESIDE)
    (tmp_path / "assay.toml").write_text('plugins = ["tracks_beside"]\n')
    script = "import sys; sys.path.remove(''); from assay.cli import main; main()"
    words = ["-c", script, "verify", "9190", "--workers", "1", "--out", "run"]
    done = python.run(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(UNIT)})
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_unknown_track_names_the_plugins_that_could_not_be_loaded(tmp_path: Path, assay: Command) -> None:
    (tmp_path / "assay.toml").write_text('plugins = ["no_such_plugin_module"]\n')
    for track in ("100", "my-claim"):
        done = assay("verify", track, cwd=tmp_path)
        assert done.returncode == 2
        assert "tracks of 'no_such_plugin_module' could not be loaded" in done.stderr


def test_tracks_as_json_can_be_read_by_a_program(tmp_path: Path, assay: Command) -> None:
    listed = json.loads(assay("tracks", "--json", cwd=tmp_path, ASSAY_PLUGINS="toy_tracks").stdout)
    assert (9100, "toy-good") in [(track["number"], track["name"]) for track in listed["tracks"]]
    assert listed["broken"] == []


def test_describe_tells_claim_controls_and_cost(tmp_path: Path, assay: Command) -> None:
    done = assay("describe", "toy-good", cwd=tmp_path, ASSAY_PLUGINS="toy_tracks")
    for part in ("seeds are positive", "empty  known-bad", "standard", "assay verify 9100"):
        assert part in done.stdout


def test_describe_sets_every_line_of_the_experiment_in(tmp_path: Path, assay: Command) -> None:
    text = assay("describe", "parity", cwd=tmp_path).stdout
    experiment = text.partition("Experiment\n")[2].partition("\n\nControls")[0]
    assert len(experiment.splitlines()) > 2
    assert all(line.startswith("  ") for line in experiment.splitlines() if line)


def test_a_cost_nobody_knows_is_not_zero_core_hours(tmp_path: Path, assay: Command) -> None:
    done = assay("plan", "toy-good", cwd=tmp_path, ASSAY_PLUGINS="toy_tracks")
    assert "a guess" in done.stdout and "0.00 core-hours" not in done.stdout, done.stderr


def test_plan_says_how_many_seeds_are_needed(tmp_path: Path, assay: Command) -> None:
    done = assay("plan", "--margin", "3", "--spread", "1.5", cwd=tmp_path)
    assert "4 seeds for parity within ±3" in done.stdout and "10 seeds: 1.5" in done.stdout, done.stderr


def test_selftest_is_short_and_lists_every_control_when_asked(tmp_path: Path, assay: Command) -> None:
    def told(*more: str) -> list[str]:
        asked = ("selftest", "toy-good", "--seeds", "1", "--out", "out", *more)
        done = assay(*asked, cwd=tmp_path, ASSAY_PLUGINS="toy_tracks")
        assert "told apart" in done.stdout, done.stderr
        return done.stdout.splitlines()

    short, long = told(), told("--all")
    assert len(short) <= 12 and any("assay selftest toy-good --all" in line for line in short)
    assert sum("known-" in line for line in long) >= 1 and len(long) > len(short)
