"""How every audit command ends: the finding printed, its report written if asked for, the code of its verdict."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from assay.results import Finding


def place(out: Path | None) -> Path | None:
    """The value of ``--out`` if a report can go there; an error before the audit, not after it."""
    if out is not None:
        from assay.reports.save import check_place

        check_place(out)
    return out


def rerun(audit: str, subject: str, **options: object) -> str:
    """The command that makes a finding again, with every option that was not left at nothing.

    >>> rerun("gradient", "mine:build", nudge="holomorphic(8)", limit=None, skip=("search", "sizes"))
    "assay audit gradient mine:build --nudge 'holomorphic(8)' --skip search --skip sizes"
    """
    words = ["assay", "audit", audit, subject]
    for name, value in options.items():
        for one in value if isinstance(value, tuple) else (value,):
            words += [] if one is None else [f"--{name}", str(one)]
    return shlex.join(words)


def finish(finding: Finding, out: Path | None) -> NoReturn:
    """Print the finding, write its report to ``out`` (a folder, or a file by its ending), leave with its exit code."""
    from assay.cli.terminal.voice import say_finding

    page = None
    if out is not None:
        from assay.reports import save_report
        from assay.reports.save import as_run
        from assay.studies.study import command_line

        run = as_run(finding).model_copy(update={"command": command_line()})
        page = save_report(run, out)
        page = page / "index.html" if page.is_dir() else page
    say_finding(finding, page, again=finding.rerun)
    raise typer.Exit(finding.verdict.exit_code)
