"""The vendored script and style are what the sources under web/ build, and name no other place."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from assay.reports.html import asset

WEB = Path(__file__).parents[3] / "web"


def test_the_vendored_files_were_built_from_these_sources() -> None:
    recorded = json.loads(asset("sources.json"))
    present = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (WEB / "src").iterdir()}
    assert recorded == present, "sources changed: cd web && npm ci && npm run build"


def test_a_rebuild_gives_the_same_files() -> None:
    if not shutil.which("node") or not (WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("node or esbuild is not installed: cd web && npm ci")
    built = subprocess.run(["node", "build.mjs", "--check"], cwd=WEB, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr


@pytest.mark.parametrize("name", ["report.js", "viewer.js", "report.css", "viewer.css"])
def test_no_asset_names_another_place_or_runs_text(name: str) -> None:
    text = asset(name).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(
        r"https?:|//[a-z]|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|</", text
    )


def test_the_lock_file_names_no_registry() -> None:
    lock = (WEB / "package-lock.json").read_text()
    assert "resolved" not in lock and "http" not in lock
