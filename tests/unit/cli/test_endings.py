"""How a command ends when there is no verdict: its exit code is never mistaken for one, and it says what happened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import assay

ENDS = """
import sys
from assay.cli import main
from assay.registry import registry

def ordered():
    raise {error}

registry.ordered = ordered
sys.argv = ["assay", "tracks"]
main()
"""


def ended(error: str) -> subprocess.CompletedProcess[str]:
    """A command inside which ``error`` was raised."""
    return subprocess.run([sys.executable, "-c", ENDS.format(error=error)], capture_output=True, text=True, check=False)


def test_a_crash_is_an_error_and_not_a_failed_claim() -> None:
    done = ended("RuntimeError('boom')")
    assert done.returncode == 4
    assert "Traceback" in done.stderr and "boom" in done.stderr
    assert done.stderr.splitlines()[-1] == "assay: crashed, no verdict; the traceback says where"


def test_an_interrupted_command_says_what_is_kept() -> None:
    done = ended("KeyboardInterrupt")
    assert done.returncode == 130
    assert "finished cells, if any, are kept" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["tracks", "--json"], ["--help"], ["audit", "--help"], ["--version"]], ids=" ".join)
def test_output_that_nobody_reads_is_neither_a_pass_nor_a_fail(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    script = f"from assay.cli import main; import sys; sys.argv = {['assay', *words]}; main()"
    done = subprocess.run([sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.returncode == 141 and done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_behind_the_output_is_a_sentence() -> None:
    script = "from assay.cli import main; import sys; sys.argv = ['assay', '--version']; main()"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", script], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "assay: No space left on device: what was to be written is not whole; free some space\n"


def test_the_version_is_told_and_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    from assay.cli import main

    arguments, sys.argv = sys.argv, ["assay", "--version"]
    try:
        with pytest.raises(SystemExit) as left:
            main()
    finally:
        sys.argv = arguments
    assert left.value.code == 0
    told = capsys.readouterr()
    assert told.out == f"assay {assay.__version__} (assay-ml) from {Path(assay.__file__).parent}\n" and not told.err


def test_a_stopped_run_is_not_seen_running_for_ever(tmp_path: Path) -> None:
    from assay.cli.terminal.progress import watch

    with watch(tmp_path) as watcher:
        watcher.planned({"1": "a claim"}, {"1": []})
        assert (tmp_path / "progress.json").exists()
    assert (tmp_path / "progress.json").exists(), "the viewer goes on from it to run.json"
    with pytest.raises(KeyboardInterrupt), watch(tmp_path) as watcher:
        watcher.planned({"1": "a claim"}, {"1": []})
        raise KeyboardInterrupt
    assert not (tmp_path / "progress.json").exists()
