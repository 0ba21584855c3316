"""Environments for published models whose requirements contradict each other; the tests marked `subjects` in each.

    python tests/subjects/environments.py               # makes every environment, then runs the tests in each
    python tests/subjects/environments.py mace escnn    # these only
    python tests/subjects/environments.py --make        # makes them, runs nothing

Each is a layer over the environment of this interpreter: torch and the tools of the tests are shared, what is installed
into the layer goes before. An environment that cannot be made is named at the end with pip's last line, and the others
go on. A test whose package is not in the environment is skipped there; the summary lists what ran where.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "subjects"
ENVIRONMENTS = {
    "e3nn-0.5": [["e3nn==0.5.1"]],
    "mace": [["mace-torch==0.3.16"]],  # pins e3nn 0.4.4, TorchScript throughout
    "nequip": [["nequip==0.19.1", "transformers==5.23.0"]],
    # Its requirement of sympy is older than the one of torch: its own requirements are left out.
    "schnetpack": [
        ["--no-deps", "schnetpack==2.1.1"],
        ["ase", "h5py", "fasteners", "dirsync", "torch-ema", "matscipy", "hydra-core", "hydra-colorlog"],
        ["pytorch-lightning", "tensorboardX", "torchmetrics"],
    ],
    # py3nj, for Clebsch-Gordan coefficients of SO(3), wants a Fortran compiler: groups of the plane do without it.
    "escnn": [["--no-deps", "escnn==1.0.11"], ["lie-learn", "joblib", "pymanopt", "autograd"]],
}
"""What pip is asked for, one call after the other."""
SETTINGS = {"mace": {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}}
"""e3nn 0.4.4 loads its constants in a way that torch refuses since 2.6; MACE allows it in the same words."""


def main() -> int:
    """Makes the environments asked for and runs the tests in them; 1 if one could not be made or a test failed."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ENVIRONMENTS)}; default: all")
    arguments.add_argument("--make", action="store_true", help="make the environments and run nothing")
    options = arguments.parse_args()
    if unknown := set(options.names) - set(ENVIRONMENTS):
        arguments.error(f"unknown environment {', '.join(sorted(unknown))}; there are {', '.join(ENVIRONMENTS)}")
    outcomes = {}
    for name in options.names or ENVIRONMENTS:
        problem = make(name)
        outcomes[name] = problem or ("made" if options.make else tested(name))
        print(f"{name}: {outcomes[name]}", flush=True)
    return 0 if all(re.match(r"made|\d+ passed(?!.*failed)", outcome) for outcome in outcomes.values()) else 1


def make(name: str) -> str:
    """Makes an environment unless it is there; the empty string, or pip's last line if it cannot be made."""
    place, wanted = PLACE / name, "\n".join(" ".join(call) for call in ENVIRONMENTS[name])
    marker = place / "requirements.txt"
    if marker.exists() and marker.read_text(encoding="utf-8") == wanted:
        return ""
    venv.create(place, with_pip=True, clear=True)
    paths = {"base": str(place), "platbase": str(place)}
    layer = Path(sysconfig.get_path("purelib", scheme="venv", vars=paths))
    below = [path for path in sys.path if path.endswith("site-packages")]
    lines = [f"import site; site.addsitedir({path!r})" for path in below]
    (layer / "zz_below.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    constraints = ["-c", str(ROOT / "constraints.txt")]
    for call in ENVIRONMENTS[name]:
        command = [place / "bin" / "python", "-m", "pip", "install", "-q", *constraints, *call]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line.lower()] or ["pip failed"]
            return f"cannot be installed: {lines[-1].strip()}"
    marker.write_text(wanted, encoding="utf-8")
    return ""


def tested(name: str) -> str:
    """The last line of pytest, run on the tests marked `subjects` in the environment."""
    command = [PLACE / name / "bin" / "python", "-m", "pytest", "-m", "subjects", "tests/subjects", "-rs"]
    environment = {**os.environ, **SETTINGS.get(name, {}), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout if done.returncode else "", end="")
    return re.sub(r"[=\s]+$|^[=\s]+", "", done.stdout.strip().splitlines()[-1]) if done.stdout else done.stderr


if __name__ == "__main__":
    sys.exit(main())
