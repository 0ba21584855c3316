"""``assay report``: one run in the format asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.common import console
from assay.errors import ConfigError, unknown

FORMAT_NAMES = ("md", "html", "json", "junit", "csv", "latex", "checklist", "citation")
"""Written out here so that ``--help`` loads no renderer; a test keeps it equal to ``assay.reports.formats``."""


def report_command(
    run: Annotated[Path, typer.Argument(help="A run folder or a run.json.", metavar="RUN")],
    format: Annotated[  # noqa: A002
        str, typer.Option("--format", "-f", help=f"One of: {', '.join(FORMAT_NAMES)}.")
    ] = "md",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write here instead of the terminal.")] = None,
) -> None:
    """Show a finished run as Markdown, HTML, JSON, JUnit, CSV, LaTeX, checklist answers or a citation."""
    if format not in FORMAT_NAMES:
        raise ConfigError(unknown("format", format, FORMAT_NAMES))
    from assay.reports.formats import render
    from assay.reports.save import write_atomically
    from assay.results import load_run

    loaded = load_run(run)
    text = render(loaded, format)
    if out is None and format == "md" and console().is_terminal:
        from rich.markdown import Markdown

        from assay.cli.voice import clean

        console().print(Markdown(clean(text)))
    elif out is None:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        write_atomically(out, text)
        typer.echo(f"written to {out}")
