"""Which state of the code a measurement was made with."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def revision_of(paths: Iterable[str]) -> str:
    """The last commit that changed these files, and whether they differ from it now."""

    def git(*words: str) -> str:
        command = ["git", *words, "--", *paths]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return (git("log", "-1", "--format=%h") or "unknown") + (" with changes" if git("status", "--porcelain") else "")
