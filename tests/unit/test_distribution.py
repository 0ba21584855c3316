"""The distribution is assay-ml, the package assay: another assay is told and not run, and what is shipped is whole."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from types import ModuleType

import pytest

import assay
import assay_ml
from assay.errors import MissingExtra

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"assay_fresh_{name}", ROOT / "tests" / "fresh" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def install(folder: Path, name: str, record: str) -> None:
    (folder / f"{name}.dist-info").mkdir(parents=True)
    (folder / f"{name}.dist-info" / "RECORD").write_text(record, encoding="utf-8")


def test_every_pip_install_names_this_distribution() -> None:
    assert PROJECT["name"] == "assay-ml" and "'assay-ml[ray]'" in str(MissingExtra("ray", "ray", "the Ray engine"))
    docs = [path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".yml", ".sbatch")]
    for path in (ROOT / "README.md", *docs, *(ROOT / "src").rglob("*.py")):
        for line in re.findall(r"pip install[^\n`]*", path.read_text(encoding="utf-8")):
            assert not re.search(r"\bassay(?![\w-])(?!/)", re.sub(r"github\.com/\S+", "", line)), f"{path.name}: {line}"


def test_the_command_starts_outside_the_package_and_finds_this_one() -> None:
    assert PROJECT["scripts"] == {"assay": "assay_ml:main"}
    assert assay_ml.hidden_by() is None and assay_ml.rivals() == []


@pytest.mark.parametrize("kind", ["package", "module", "folder"])
def test_another_assay_in_front_is_named_and_not_run(tmp_path: Path, kind: str) -> None:
    loud = "raise SystemExit('somebody else was run')\n"
    if kind == "module":
        (tmp_path / "assay.py").write_text(loud)
    else:
        (tmp_path / "assay").mkdir()
        if kind == "package":
            (tmp_path / "assay" / "__init__.py").write_text(loud)
    paths = os.pathsep.join([str(tmp_path)] if kind == "folder" else [str(tmp_path), str(ROOT / "src")])
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); import assay_ml; sys.path[:1] = []; assay_ml.main()"
    done = subprocess.run([sys.executable, "-S", "-c", code, "--version"], env={**os.environ, "PYTHONPATH": paths},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 2 and not done.stdout, done
    assert done.stderr.count("\n") == 1 and "assay-ml" in done.stderr
    if kind != "folder":
        assert str(tmp_path) in done.stderr


def test_a_package_that_was_overwritten_in_place_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "assay").mkdir()
    (tmp_path / "assay" / "__init__.py").write_text("from .client import Client\n")
    monkeypatch.setattr(assay_ml, "HOME", tmp_path / "assay")
    monkeypatch.setattr(assay, "__file__", str(tmp_path / "assay" / "__init__.py"))
    assert "overwritten" in (assay_ml.hidden_by() or "")


def test_another_distribution_in_the_same_folder_is_a_warning_at_import(tmp_path: Path, monkeypatch) -> None:
    install(tmp_path, "assay_ml-0.1.0", "assay/__init__.py,sha256=x,1\n")
    install(tmp_path, "assay_helpers-2.0", "assay_helpers/__init__.py,sha256=x,1\n")
    assert assay_ml.rivals(tmp_path) == []
    install(tmp_path, "assay_it-1.0.0", "README,,\nassay/__init__.py,sha256=x,1\n")
    assert assay_ml.rivals(tmp_path) == ["assay-it-1.0.0"]
    monkeypatch.setattr(assay_ml, "rivals", lambda: ["assay-it-1.0.0"])
    with pytest.warns(RuntimeWarning, match=r"assay-it-1\.0\.0 and assay-ml"):
        assay_ml.warn_of_rivals()
    monkeypatch.setattr(assay_ml, "rivals", list)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assay_ml.warn_of_rivals()


def test_replaced_files_are_told_apart_from_installed_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import base64
    import hashlib
    from importlib.metadata import PathDistribution

    def row(name: str, content: bytes) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        return f"assay/{name},sha256={digest},{len(content)}\n"

    (tmp_path / "assay").mkdir()
    (tmp_path / "assay" / "same.py").write_bytes(b"1")
    (tmp_path / "assay" / "errors.py").write_bytes(b"theirs")
    install(tmp_path, "assay_ml-0.1.0", row("same.py", b"1") + row("errors.py", b"ours") + row("gone.py", b"2"))
    found = PathDistribution(tmp_path / "assay_ml-0.1.0.dist-info")
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: found)
    # A list that leaves a missing file out of Distribution.files is also right: what is there must be as installed.
    assert set(assay_ml.replaced()) - {"assay/gone.py"} == {"assay/errors.py"}


def test_one_version_and_one_address_everywhere() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert PROJECT["version"] == assay.__version__ and f"\nversion: {assay.__version__}\n" in citation
    address = PROJECT["urls"]["Repository"]
    assert f"repository-code: {address}\n" in citation
    assert f"git+{address}" in (ROOT / "docs" / "examples" / "github-actions.yml").read_text(encoding="utf-8")
    assert PROJECT["license"] == "MIT" and PROJECT["authors"]
    for name in ("LICENSE", "SECURITY.md", "CODE_OF_CONDUCT.md"):
        assert (ROOT / name).is_file()


def test_the_workflow_runs_the_targets_of_the_makefile_on_every_supported_python() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"run: make ([\w-]+)", text):
        assert re.search(rf"^{target}:", makefile, flags=re.M), target
    pythons = [line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert pythons == re.findall(r'"(3\.\d+)"', re.search(r"python: \[(.*)\]", text).group(1))  # type: ignore[union-attr]
    assert "pip install" not in text, "the Makefile installs"


def test_a_wheel_with_too_little_or_too_much_is_refused() -> None:
    dist = script("dist")
    committed = ["src/assay/__init__.py", "src/assay/reports/page.html", "src/assay_ml.py", "tests/conftest.py"]
    whole = ["assay/__init__.py", "assay/reports/page.html", "assay_ml.py", "assay_ml-0.1.0.dist-info/licenses/LICENSE"]
    assert dist.faults_of_wheel(whole, committed) == []
    assert dist.faults_of_wheel(whole[:1] + whole[2:], committed) == ["the wheel lacks assay/reports/page.html"]
    assert any("carries" in fault for fault in dist.faults_of_wheel([*whole, "tests/conftest.py"], committed))
    assert dist.faults_of_wheel(whole[:-1], committed) == ["the wheel lacks the licence"]
    names = [f"assay_ml-0.1.0/{name}" for name in {*committed, *dist.NEEDED}]
    assert dist.faults_of_sdist(names, committed) == []
    assert dist.faults_of_sdist([*names, "assay_ml-0.1.0/web/node_modules/x"], committed)
    without = [one for one in names if "Makefile" not in one]
    assert dist.faults_of_sdist(without, committed) == ["the sdist lacks Makefile"]


def test_the_new_machine_has_few_programs_an_empty_home_and_no_trace_of_this_one(tmp_path: Path, monkeypatch) -> None:
    fresh = script("run")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("ASSAY_DATA", "/somewhere")
    monkeypatch.setenv("PIP_INDEX_URL", "https://example.org")
    given = fresh.new_environment(tmp_path)
    assert set(given) <= {"HOME", "PATH", "TMPDIR"} | {name for name in given if fresh.PASSED_ON.fullmatch(name)}
    assert "PYTHONPATH" not in given and "ASSAY_DATA" not in given and given["PIP_INDEX_URL"]
    assert list(Path(given["HOME"]).iterdir()) == [] and os.pathsep not in given["PATH"]
    assert not {"chromium", "node", "git", "gcc"} & {path.name for path in Path(given["PATH"]).iterdir()}
    (tmp_path / "Makefile").write_text("verify:\n\texit 7\n")
    assert fresh.run("make verify", tmp_path, given).code not in (0, 3), "a command that fails is not overlooked"


def test_what_installing_costs_is_told_apart_from_the_command_itself(tmp_path: Path) -> None:
    fresh = script("run")
    given = fresh.new_environment(tmp_path)
    burn = "import time\nwhile time.process_time() < {}: pass"
    for name, seconds in (("install", 0.6), ("itself", 0.2)):
        (tmp_path / f"{name}.py").write_text(burn.format(seconds))
    (tmp_path / ".venv").mkdir()
    (tmp_path / "Makefile").write_text(
        "verify: .venv/.installed\n\tpython3 itself.py\n.venv/.installed:\n\tpython3 install.py\n\ttouch $@\n"
    )
    first = fresh.run("make verify", tmp_path, given, marker=".installed")
    again = fresh.run("make verify", tmp_path, given, marker=".installed")
    tick = 2 / os.sysconf("SC_CLK_TCK")  # the kernel tells of a running make in whole ticks, of user and of system
    assert first.installation.cpu >= 0.6 - tick > first.itself.cpu >= 0.2, "each second is counted once, and belongs"
    assert first.installation.wall >= 0.6 and first.itself.wall >= 0.2
    assert again.installation == fresh.Seconds(0.0, 0.0), "what was installed before costs nothing now"
    assert "within" in first.line()
    slow = fresh.Timed("make verify", 0, fresh.Seconds(0, 0), fresh.Seconds(100, 250))
    long = fresh.Timed("make verify", 0, fresh.Seconds(900, 900), fresh.Seconds(100, 200))
    assert "OVER" in slow.line() and not slow.held and long.held


def test_the_lowest_versions_are_those_of_the_project_each_said_once() -> None:
    lowest = script("lowest").lowest
    lines = lowest(PROJECT)
    assert {line.split("==")[0] for line in lines} >= {"torch", "numpy", "scipy", "ray", "e3nn"}
    twice = {"name": "x", "dependencies": ["a>=1"], "optional-dependencies": {"e": ["a>=2"]}}
    with pytest.raises(SystemExit, match="one lower bound for a"):
        lowest(twice)
