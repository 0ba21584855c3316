"""Where a run was made: versions, processor, threads, determinism flags, git revision."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from assay import __version__

if TYPE_CHECKING:
    from assay.results import Environment

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "gymnasium", "e3nn", "ray")


def capture(folder: Path | None = None) -> Environment:
    """The environment of this process; git facts are those of ``folder`` (the current one by default)."""
    from assay.results import Environment  # not above: the template of workers asks for facts and stays small

    revision, dirty = _git(folder or Path.cwd())
    return Environment(
        python=platform.python_version(),
        platform=platform.platform(),
        cpu=_cpu(),
        cores=os.cpu_count() or 0,
        threads=1,
        packages=_versions(),
        determinism=_determinism(),
        git_revision=revision,
        git_dirty=dirty,
    )


@cache
def of_cell() -> dict[str, str]:
    """Where a cell was computed, in a few words stored with its result; ``machine`` tells machines apart, not whose."""
    found = {name: version for name, version in _versions().items() if name in ("assay", "torch", "numpy", "scipy")}
    return {"python": platform.python_version(), **found, "platform": platform.platform(), "machine": machine()}


@cache
def machine() -> str:
    """Eight digits that are the same on this machine and its reboots, and on hardly any other."""
    for file in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            name = Path(file).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if name:
            break
    else:
        name = platform.node()
    return hashlib.sha256(f"assay {name} {_cpu()}".encode()).hexdigest()[:8]


def _versions() -> dict[str, str]:
    found = {"assay": __version__}  # not from the metadata: another distribution is called assay
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _determinism() -> dict[str, str]:
    flags = {name: os.environ[name] for name in ("PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG") if name in os.environ}
    if (torch := sys.modules.get("torch")) is not None:
        flags["torch.deterministic_algorithms"] = str(torch.are_deterministic_algorithms_enabled())
    return {**flags, "threads per worker": "1"}


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git(folder: Path) -> tuple[str, bool | None]:
    def ask(*arguments: str) -> str | None:
        try:
            answer = subprocess.run(
                ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return answer.stdout.strip() if answer.returncode == 0 else None

    revision = ask("rev-parse", "HEAD")
    if not revision:
        return "", None
    status = ask("status", "--porcelain")
    return revision, None if status is None else bool(status)
