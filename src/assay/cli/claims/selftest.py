"""``assay selftest``: do the checks tell known-good from known-bad?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.typed.options import Workers

if TYPE_CHECKING:
    from assay.results import Control, Finding


def selftest_command(
    tracks: Annotated[list[str] | None, typer.Argument(help="Tracks; track 0 by default, 'all' for every one.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds.")] = None,
    workers: Workers = None,
    *,
    out: Annotated[Path | None, typer.Option(help="Folder for the cells and the report.")] = None,
    every: Annotated[bool, typer.Option("--all", help="List every control, not only those not told apart.")] = False,
) -> None:
    """Run planted faults and their healthy twins; print sensitivity and specificity with exact bounds."""
    from assay import stats
    from assay.cli.session import session
    from assay.cli.terminal.common import console, sign
    from assay.cli.terminal.voice import hang, safe
    from assay.reports import save_report
    from assay.reports.words import duration
    from assay.results import Verdict
    from assay.studies.verification import verify

    names = tracks or ["0"]
    with session(out=out, seeds=seeds, workers=workers) as at_work:
        whole = names == ["all"]
        run = verify(*(() if whole else names), every=whole, seeds=at_work.settings.seeds, **at_work.options)
    run = run.model_copy(update={"kind": "selftest", "title": "Self-test"})
    folder = at_work.folder_of(run)
    save_report(run, folder)
    controls = [(finding, control) for finding in run.findings for control in finding.controls]
    confused = [(finding, control) for finding, control in controls if not control.separated]
    failed = bool(confused) or not controls
    told = f"{len(controls) - len(confused)} of {len(controls)} controls told apart"
    hang(f"{sign(Verdict.FAIL if failed else Verdict.PASS)}  [bold]{told}[/bold]", 2)
    known = [control for _, control in controls]
    for measurement in (stats.sensitivity(known), stats.specificity(known)):
        share = "none" if measurement.value is None else f"{measurement.value:.1%}"
        ends = measurement.interval
        between = "" if ends is None else f", 95 % interval {ends.low:.1%} to {ends.high:.1%} ({ends.method})"
        hang(f"{measurement.name:11s}  {share} of {measurement.n} controls{between}", 15, first=2)
    if every or confused:
        _list(controls if every else confused)
    out_console = console()
    page = safe(str(folder / "index.html"))
    out_console.print(f"[dim]page[/dim]  [bold]{page}[/bold]  [dim]{duration(run.seconds)}[/dim]", soft_wrap=True)
    if not every and not confused:
        again = " ".join(["assay selftest", *(tracks or ()), "--all"])
        hang("[dim]next[/dim]  Every control one by one.", 6)
        out_console.print(f"      [bold]{safe(again)}[/bold]", soft_wrap=True)
    errors = any(finding.failures for finding in run.findings)
    raise typer.Exit(4 if errors else 1 if failed else 0)


def _list(shown: Sequence[tuple[Finding, Control]]) -> None:
    """Each control: what it is, what was expected of it and what was seen."""
    from rich import box
    from rich.table import Table

    from assay.cli.terminal.common import console
    from assay.cli.terminal.voice import safe

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for column in ("#", "control", "kind", "expected", "observed", ""):
        table.add_column(column, overflow="fold")
    for finding, control in shown:
        mark = "[green]✓[/green]" if control.separated else "[red]✗[/red]"
        table.add_row(
            str(finding.number), safe(control.name), control.kind, safe(control.expected), safe(control.observed), mark
        )
    console().print(table)
