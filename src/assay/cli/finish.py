"""How every audit command ends: the report written if asked for, and the exit code of the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import typer

from assay.results import Finding


def finish(finding: Finding, out: Path | None) -> NoReturn:
    """Write the finding's report to ``out`` (a folder, or a file by its ending) and leave with its exit code."""
    if out is not None:
        from assay.reports import save_report

        typer.echo(f"written to {save_report(finding, out)}")
    raise typer.Exit(finding.verdict.exit_code)
