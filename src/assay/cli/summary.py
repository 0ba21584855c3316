"""The end of a run in the terminal: what was claimed, what holds, how sure we are, where the report is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.results import Run


def print_summary(run: Run, folder: Path) -> None:
    """Print the verdicts, the claims, the place of the report and what to type next."""
    from assay.cli.voice import say_run

    say_run(run, folder / "index.html")
