"""``assay init`` writes what runs, and never over what is there; the Action's script does what its inputs say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli import _app
from assay.cli.claims.init import MODULE, NUMBER, start
from assay.config import load

ROOT = Path(__file__).parents[4]


def test_a_new_repository_gets_settings_a_claim_and_ci_that_agree(tmp_path: Path) -> None:
    assert [file.what for file in start(tmp_path)] == ["wrote"] * 3
    assert load(tmp_path, environment={}).plugins == (MODULE,)
    workflow = (tmp_path / ".github" / "workflows" / "assay.yml").read_text()
    assert f'tracks: "{NUMBER}"' in workflow
    compile((tmp_path / f"{MODULE}.py").read_text(), MODULE, "exec")


def test_what_is_there_is_kept_to_the_byte(tmp_path: Path) -> None:
    (tmp_path / ".github" / "workflows").mkdir(parents=True)
    for name in ("assay.toml", f"{MODULE}.py", ".github/workflows/assay.yml"):
        (tmp_path / name).write_text("# mine\n")
    assert [file.what for file in start(tmp_path)] == ["kept"] * 3
    assert all((tmp_path / file).read_text() == "# mine\n" for file in ("assay.toml", f"{MODULE}.py"))


def test_a_section_is_added_to_pyproject_once_and_only_when_asked(tmp_path: Path) -> None:
    shared = tmp_path / "pyproject.toml"
    shared.write_text('[project]\nname = "x"\n')
    start(tmp_path / ".", pyproject=True)
    content = tomllib.loads(shared.read_text())
    assert content["tool"]["assay"]["plugins"] == [MODULE] and content["project"]["name"] == "x"
    before = shared.read_text()
    assert next(iter(start(tmp_path, pyproject=True))).what == "kept"
    assert shared.read_text() == before and not (tmp_path / "assay.toml").exists()


def test_settings_that_do_not_name_the_claim_are_left_alone_and_the_line_is_told(tmp_path: Path) -> None:
    (tmp_path / "assay.toml").write_text('plugins = ["theirs"]\n')
    done = CliRunner().invoke(_app(), ["init", str(tmp_path)])
    assert done.exit_code == 0 and MODULE in done.output and "add to your settings" in done.output
    assert (tmp_path / "assay.toml").read_text() == 'plugins = ["theirs"]\n'


@pytest.mark.slow
def test_the_claim_is_verified_at_once(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "assay", "init"], cwd=tmp_path, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0 and "PASS" in done.stdout, done.stdout + done.stderr
    assert list(tmp_path.glob("assay-runs/*/index.html"))


@pytest.mark.skipif(shutil.which("bash") is None, reason="the script of the action is written for bash")
@pytest.mark.parametrize(
    ("code", "undecided", "ends"), [(0, "pass", 0), (3, "pass", 0), (3, "fail", 3), (1, "pass", 1)])
def test_the_script_of_the_action_hands_on_verdicts(tmp_path: Path, code: int, undecided: str, ends: int) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with ray")
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (script,) = [step["run"] for step in action["runs"]["steps"] if step.get("id") == "verify"]
    assert "${{" not in script, "inputs are variables, never text of the script"
    fake = tmp_path / "bin" / "assay"
    fake.parent.mkdir()
    said = f'echo "$@" > {tmp_path}/words; mkdir -p out; echo verdicts > out/report.md'
    fake.write_text(f"#!/bin/bash\n{said}\nexit {code}\n")
    fake.chmod(0o755)
    inputs = {"TRACKS": "1 2; touch evil", "BUDGET": "quick", "SEEDS": "5", "REPORT": "out", "UNDECIDED": undecided}
    files = {"GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, check=False,
                          env={**inputs, **files, "PATH": f"{fake.parent}:{os.environ['PATH']}"})  # fmt: skip
    assert done.returncode == ends
    words = (tmp_path / "words").read_text().strip()
    assert words == "verify 1 2; touch evil --budget quick --seeds 5 --out out"
    assert not (tmp_path / "evil").exists()
    assert (tmp_path / "output").read_text() == f"code={code}\n" and "verdicts" in (tmp_path / "summary").read_text()
