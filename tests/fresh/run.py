"""A new machine, played: committed files in an empty folder, an empty HOME, few programs, and the README's commands.

    python3 tests/fresh/run.py                 the revision that is checked out, with Python, make and little else
    python3 tests/fresh/run.py --everything    the same with all programs of this machine (browser, node, git)

Nothing but the standard library is used. Settings of pip and of a proxy are passed on, everything else is not.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = (
    "sh", "make", "env", "test", "[", "touch", "rm", "mkdir", "cp", "ls", "cat", "uname", "dirname", "basename",
    "nproc",
)
"""What a machine with Python, make and nothing else is taken to have."""
PASSED_ON = re.compile(r"PIP_\w+|(?:https?|no)_proxy|SSL_CERT_\w+|LANG|LC_\w+", re.I)
LIMITS = {"make verify": (120, 240), "make test": (240, 420), "assay verify --budget smoke": (20, 40)}
"""Seconds by the clock and of processor, both after installation, on two idle cores."""


@dataclass(frozen=True)
class Seconds:
    """By the clock and of processor, children included."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.0f} s by the clock ({self.cpu:.0f} of processor)"


@dataclass(frozen=True)
class Timed:
    """One command: how it ended and how long it took, installation apart."""

    command: str
    code: int
    installation: Seconds
    itself: Seconds

    @property
    def held(self) -> bool:
        """Whether the command itself kept its limits; how long a download takes says nothing about it."""
        wall, cpu = LIMITS[self.command]
        return self.itself.wall <= wall and self.itself.cpu <= cpu

    def line(self) -> str:
        wall, cpu = LIMITS[self.command]
        return (f"{self.command:28} exit {self.code}: installation {self.installation}, then {self.itself}: "
                f"{'within' if self.held else 'OVER'} {wall} s and {cpu} s")  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run the commands; 0 if each of them succeeded."""
    options = _options(arguments)
    folder = Path(options.folder or tempfile.mkdtemp(prefix="assay-fresh-")).resolve()
    checkout = copy_committed(folder / "checkout", options.revision)
    environment = new_environment(folder, everything=options.everything, python=options.python)
    print(f"{options.revision} in {checkout}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    rows = []
    for command, marker in (("make verify", ".installed"), ("make test", ".test"), ("assay verify --budget smoke", "")):
        rows.append(run(command, checkout, environment, marker=marker))
        print(rows[-1].line(), flush=True)
    print(f"load {os.getloadavg()[0]:.1f} at the end")
    if not options.keep and not options.folder:
        shutil.rmtree(folder)
    return int(any(row.code not in (0, 3) or (row.code and row.command.startswith("make")) for row in rows))


def copy_committed(target: Path, revision: str = "HEAD") -> Path:
    """The files of a revision, nothing that lies beside them."""
    target.mkdir(parents=True)
    archive = subprocess.Popen(["git", "archive", revision], cwd=ROOT, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(target)], stdin=archive.stdout, check=True)
    if archive.wait():
        raise SystemExit(f"git archive {revision} failed")
    return target


def new_environment(folder: Path, *, everything: bool = False, python: str = sys.executable) -> dict[str, str]:
    """The variables of a new user: an empty HOME, few programs unless all are asked for, no trace of this project."""
    home, programs, scratch = folder / "home", folder / "programs", folder / "tmp"
    for one in (home, programs, scratch):
        one.mkdir(parents=True)
    for name in TOOLS:
        if (found := shutil.which(name)) is not None:
            (programs / name).symlink_to(found)
    for name in ("python3", "python"):
        (programs / name).write_text(f'#!/bin/sh\nexec {_real(python)} "$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    path = str(programs) + (os.pathsep + os.environ["PATH"] if everything else "")
    passed = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
    return {**passed, "HOME": str(home), "PATH": path, "TMPDIR": str(scratch)}


def run(command: str, checkout: Path, environment: dict[str, str], *, marker: str = "") -> Timed:
    """Run one command of the README; the marker that the Makefile leaves says when its installation ended."""
    words = command.split()
    if words[0] == "assay":
        words[0] = str(checkout / ".venv" / "bin" / "assay")
    stamp = checkout / ".venv" / marker if marker else None
    start, before = time.time(), _processor()
    process = subprocess.Popen(words, cwd=checkout, env=environment)
    installed = Seconds(0.0, 0.0)
    while process.poll() is None:
        if stamp is not None and _touched(stamp, since=start - 0.02):  # files carry the time of the last tick
            installed, stamp = Seconds(time.time() - start, _of_children(process.pid)), None
        time.sleep(0.05)
    whole = Seconds(time.time() - start, _processor() - before)
    itself = Seconds(whole.wall - installed.wall, whole.cpu - installed.cpu)
    return Timed(command, process.returncode, installed, itself)


def _touched(stamp: Path, *, since: float) -> bool:
    return stamp.exists() and stamp.stat().st_mtime >= since


def _of_children(process: int) -> float:
    """Processor seconds of the children that a running process has waited for: those of make's finished lines."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _real(python: str) -> str:
    """The interpreter behind a virtual environment or a shim: its packages must not be seen."""
    answer = subprocess.run([python, "-c", "import sys; print(getattr(sys, '_base_executable', sys.executable))"],
                            capture_output=True, text=True, check=True)  # fmt: skip
    return str(Path(answer.stdout.strip()).resolve())


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--everything", action="store_true", help="leave all programs of this machine on the PATH")
    parser.add_argument("--folder", help="where to work (must not exist yet); kept afterwards")
    parser.add_argument("--keep", action="store_true", help="leave the folder behind")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the new machine")
    parser.add_argument("--revision", default="HEAD", help="what to copy")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
