"""``assay report``: one run in the format asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.terminal.common import clean, console
from assay.errors import ConfigError, unknown

FORMAT_NAMES = ("md", "html", "json", "junit", "csv", "latex", "checklist", "citation")
TRACKER_NAMES = ("wandb", "mlflow", "tensorboard")
"""Both written out here so that ``--help`` loads no renderer; a test keeps them equal to ``assay.reports``."""


def report_command(
    run: Annotated[Path, typer.Argument(help="A run folder or a run.json.", metavar="RUN")],
    format: Annotated[  # noqa: A002
        str, typer.Option("--format", "-f", help=f"One of: {', '.join((*FORMAT_NAMES, *TRACKER_NAMES))}.")
    ] = "md",
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Write here instead of the terminal; a tracker's folder or URI.")
    ] = None,
) -> None:
    """Show a finished run: in words in a terminal, elsewhere as Markdown, HTML, JSON, JUnit, CSV, LaTeX, ...

    A pipe or a file gets Markdown: assay report RUN > report.md
    Or send it to a tracker: wandb, mlflow or tensorboard (event files).
    """
    from rich.markup import escape

    if format not in (*FORMAT_NAMES, *TRACKER_NAMES):
        raise ConfigError(unknown("format", format, (*FORMAT_NAMES, *TRACKER_NAMES)))
    from assay.reports.formats import render
    from assay.reports.save import write_atomically
    from assay.results import load_run

    loaded = load_run(run)
    if format in TRACKER_NAMES:
        from assay.reports.trackers import send

        typer.echo(f"sent to {format}: {send(loaded, format, out)}")
        return
    text = render(loaded, format)
    if out is not None:
        write_atomically(Path(out), text)
        console().print(f"[dim]page[/dim]  [bold]{escape(str(out))}[/bold]", soft_wrap=True)
    elif format == "md" and console().is_terminal:
        from assay.cli.terminal.voice import say_run

        say_run(loaded, _page(run))
    else:
        # For a file or a pipe exactly as it is; for a terminal nothing that it would act on.
        typer.echo(clean(text) if console().is_terminal else text, nl=not text.endswith("\n"))


def _page(run: Path) -> Path | None:
    page = (run if run.is_dir() else run.parent) / "index.html"
    return page if page.is_file() else None
