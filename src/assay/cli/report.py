"""``assay report``: one run in the format asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.errors import ConfigError, unknown
from assay.reports.formats import FORMATS, render
from assay.reports.save import write_atomically
from assay.results import load_run


def report_command(
    run: Annotated[Path, typer.Argument(help="A run folder or a run.json.", metavar="RUN")],
    format: Annotated[  # noqa: A002
        str, typer.Option("--format", "-f", help=f"One of: {', '.join(FORMATS)}.")
    ] = "md",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write here instead of the terminal.")] = None,
) -> None:
    """Show a finished run as Markdown, HTML, JSON, JUnit, CSV, LaTeX, checklist answers or a citation."""
    if format not in FORMATS:
        raise ConfigError(unknown("format", format, FORMATS))
    text = render(load_run(run), format)
    if out is None:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        write_atomically(out, text)
        typer.echo(f"wrote {out}")
