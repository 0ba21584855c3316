"""Builds the sdist and the wheel, looks inside, installs the wheel into an empty environment and uses it from there.

    .venv/bin/python tests/fresh/dist.py       leaves dist/; 0 if everything held
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
OWN = ("assay/", "assay_ml.py", "assay_pytest.py")
"""What the wheel may put into site-packages, its own metadata apart."""
NEEDED = (
    "README.md", "LICENSE", "CITATION.cff", "SECURITY.md", "Makefile", "constraints.txt", ".ci/run",
    "tests/conftest.py", "docs/index.md", "mkdocs.yml",
)
"""What somebody needs to build and test from the sdist."""


def main() -> int:
    """Build, check, install, use."""
    shutil.rmtree(DIST, ignore_errors=True)
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(ROOT))
    wheel, sdist = next(DIST.glob("*.whl")), next(DIST.glob("*.tar.gz"))
    call(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    committed = listed.stdout.splitlines()
    with zipfile.ZipFile(wheel) as archive:
        faults = faults_of_wheel(archive.namelist(), committed)
    with tarfile.open(sdist) as archive:
        faults += faults_of_sdist(archive.getnames(), committed)
    for fault in faults:
        print(f"dist: {fault}")
    if faults:
        return 1
    use(wheel)
    print("dist: held", *(f"{one.name} ({one.stat().st_size / 1e6:.1f} MB)" for one in (wheel, sdist)))
    return 0


def faults_of_wheel(names: list[str], committed: list[str]) -> list[str]:
    """What is missing from a wheel, or in it without being the package."""
    wanted = {path.removeprefix("src/") for path in committed if path.startswith("src/")}
    # The recorded trainings of the published table travel with the package.
    kept, there = "docs/results/data/fa-protocol/", "assay/studies/reproduce/fa-protocol/"
    wanted |= {path.replace(kept, there) for path in committed if path.startswith(kept)}
    found = {name for name in names if ".dist-info/" not in name}
    faults = [f"the wheel lacks {name}" for name in sorted(wanted - found)]
    faults += [f"the wheel carries {name}" for name in sorted(found - wanted) or () if not name.endswith("/")]
    faults += [f"the wheel installs {name} beside the package" for name in sorted(found) if not name.startswith(OWN)]
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        faults.append("the wheel lacks the licence")
    return faults


def faults_of_sdist(names: list[str], committed: list[str]) -> list[str]:
    """What a reader of the sdist would miss, or should never see."""
    found = {name.partition("/")[2] for name in names}
    wanted = {*NEEDED, *(path for path in committed if path.startswith(("src/", "tests/")))}
    faults = [f"the sdist lacks {name}" for name in sorted(wanted - found)]
    strange = ("__pycache__", "node_modules", ".venv", "assay-runs", ".pyc", ".mypy_cache")
    return faults + [f"the sdist carries {name}" for name in sorted(found) if any(part in name for part in strange)]


def use(wheel: Path) -> None:
    """Install the wheel where nothing else is, verify the framework and render a report, far from the checkout."""
    with tempfile.TemporaryDirectory(prefix="assay-dist-") as text:
        folder = Path(text)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ASSAY"))}
        there: dict[str, Any] = {"cwd": folder, "env": {**kept, "HOME": str(folder)}}
        call(sys.executable, "-m", "venv", str(folder / "env"), **there)
        python, command = str(folder / "env" / "bin" / "python"), str(folder / "env" / "bin" / "assay")
        call(python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel), **there)
        told = call(command, "--version", quiet=True, **there)
        if str(folder / "env") not in told:
            raise SystemExit(f"dist: expected assay from the new environment; given {told}")
        call(command, "verify", "0", "--out", "run", **there)
        page = call(command, "report", "run", "--format", "md", quiet=True, **there)
        if "PASS" not in page or not (folder / "run" / "index.html").exists():
            raise SystemExit("dist: expected a report of a passed track 0 from the installed wheel")


def call(*words: str, quiet: bool = False, **settings: Any) -> str:
    """Run a command that must succeed; its output."""
    print("dist:", *(Path(words[0]).name, *words[1:]), flush=True)
    done = subprocess.run(words, check=False, text=True, stdout=subprocess.PIPE if quiet else None, **settings)
    if done.returncode:
        raise SystemExit(f"dist: {' '.join(words)} ended with {done.returncode}")
    return str(done.stdout or "")


if __name__ == "__main__":
    raise SystemExit(main())
