"""A new machine has what the Makefile installs and nothing else: no test may need more, and CI may not lend it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "egnn_pytorch": "egnn-pytorch", "griffe": "mkdocstrings"}
"""Where the name of the import is not the name of the distribution."""
SLOW = "make test-slow"
"""What CI runs beyond the README: tests that nobody runs to their end go stale unseen."""


def commands(script: str) -> list[str]:
    """The lines of a shell script that do something, continued lines joined."""
    joined = script.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def faults_of_ci(script: str, readme: str) -> list[str]:
    """What keeps the CI script from being a new machine that follows the README."""
    lines = commands(script)
    faults = [f"installs by hand: {line}" for line in lines if re.search(r"\bpip3?\b|\buv\b|\bconda\b", line)]
    faults += [f"reaches into the environment: {line}" for line in lines if ".venv" in line]
    if "make clean" not in lines:
        return [*faults, "starts from an earlier environment: no make clean"]
    after = lines[lines.index("make clean") + 1 :]
    wanted = [*readme_commands(readme), SLOW]
    return faults + [f"never runs: {line}" for line in wanted if line not in after]


def readme_commands(readme: str) -> list[str]:
    block = readme.split("## Two commands")[1].split("```")[1]
    return [line.split("#")[0].strip() for line in block.splitlines()[1:] if line.strip()]


def declared(extra: str, project: dict) -> set[str]:
    """Distributions that an extra brings: the dependencies, its own list, and the extras that it names."""
    found = set()
    for line in [*project["dependencies"], *project["optional-dependencies"][extra]]:
        name, inner = re.match(r"([\w.-]+)(?:\[([\w, -]+)\])?", line).groups()
        if name == project["name"]:
            found |= set().union(*(declared(part.strip(), project) for part in inner.split(",")))
        else:
            found.add(name.lower().replace("_", "-"))
    return found


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def undeclared(sources: Iterable[str], known: set[str], own: set[str]) -> set[str]:
    """Roots of imports that neither Python, the project nor a declared distribution offers."""
    roots = {name.split(".")[0] for source in sources for name in imported(ast.parse(source))}
    roots -= set(sys.stdlib_module_names) | own
    return {root for root in roots if DISTRIBUTIONS.get(root, root).lower().replace("_", "-") not in known}


def test_what_the_tests_import_is_in_the_extra_that_make_test_installs() -> None:
    files = [path for folder in ("tests", "docs", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    # A worker with a leading underscore runs in an environment that its benchmark makes itself.
    files = [path for path in files if not path.name.startswith("_dependence")]
    own = {path.stem for path in files} | {path.parent.name for path in files} | {"assay", "assay_ml", "assay_pytest"}
    assert undeclared((path.read_text(encoding="utf-8") for path in files), declared("test", PROJECT), own) == set()


@pytest.mark.parametrize(("source", "missing"), [
    ("import pandas", {"pandas"}), ("from PIL import Image", set()), ("def f():\n    from jax import numpy", {"jax"}),
    ("import json, torch, sklearn.base", set()),
])
def test_an_import_that_nothing_installs_is_named(source: str, missing: set[str]) -> None:
    assert undeclared([source], declared("test", PROJECT), set()) == missing


def test_the_makefile_installs_the_extras_that_the_tests_and_the_tracks_need() -> None:
    assert re.findall(r"\$\(PIP\)\s+(.*)", MAKEFILE) [:2] == ['-e ".[control]"', '-e ".[test]"']
    assert {"e3nn", "pillow", "ray", "optuna", "gymnasium", "mkdocs-material"} <= declared("test", PROJECT)


def test_ci_is_a_new_machine_that_follows_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme_commands(readme) == ["make verify", "make test"]
    assert faults_of_ci(CI, readme) == []


def test_every_test_is_run_by_one_of_the_targets() -> None:
    """Marks of clusters and browsers stand only where ``make test-clusters`` looks for them."""
    looked = re.search(r"pytest -m \"\(ray or browser or site\) and not slow\" (.+)", MAKEFILE)[1].split()
    mark = re.compile(r"\bpytest\.mark\.(?:ray|browser|site)\b")
    marked = [path for path in (ROOT / "tests").rglob("*.py") if mark.search(path.read_text(encoding="utf-8"))]
    marked = [path.relative_to(ROOT) for path in marked if path != Path(__file__)]
    assert marked and all(any(path.is_relative_to(place) for place in looked) for path in marked)
    (alone,) = re.findall(r"pytest -m \"slow and ray\" (\S+)", MAKEFILE)
    assert all(path.is_relative_to(alone) for path in marked if "pytest.mark.ray" in (ROOT / path).read_text())


@pytest.mark.parametrize(("change", "fault"), [
    (("make test\n", "make .venv/.test\n.venv/bin/python -m pip install pillow\nmake test\n"), "installs by hand"),
    (("make test\n", "make .venv/.test\nmake test\n"), "reaches into"),
    (("make clean\n", ""), "earlier environment"),
    (("make verify\n", "make verify || true\n"), "never runs: make verify"),
    (("make test\n", "make lint\n"), "never runs: make test"),
    (("make test-slow\n", ""), "never runs: make test-slow"),
])
def test_a_ci_script_that_lends_a_hand_is_noticed(change: tuple[str, str], fault: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert any(fault in found for found in faults_of_ci(CI.replace(*change), readme))


SEVERAL = re.findall(r"pytest (-n .*) -m", MAKEFILE)
"""What the targets that use several processes give to pytest-xdist."""


def test_a_test_process_that_is_killed_is_not_replaced() -> None:
    assert len(SEVERAL) == 3 and all("--max-worker-restart=0" in options for options in SEVERAL)


@pytest.mark.slow
def test_a_test_process_that_is_killed_fails_the_run_at_once(tmp_path: Path) -> None:
    """pytest-xdist replaces a dead worker by default, and waits for ever once the replacement dies as well."""
    options = SEVERAL[0].replace("auto", "2").split()
    for name in ("first", "second", "third"):
        (tmp_path / f"test_{name}.py").write_text(
            "import os\ndef test_a(): pass\ndef test_dies(): os.kill(os.getpid(), 9)\ndef test_b(): pass\n")
    # Without the settings of this project: what ends the run is pytest-xdist alone.
    command = [sys.executable, "-m", "pytest", *options, "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run([*command, "."], cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "crashed while running" in ended.stdout, ended.stdout
