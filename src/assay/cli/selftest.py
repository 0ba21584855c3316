"""``assay selftest``: do the checks tell known-good from known-bad?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import Workers


def selftest_command(
    tracks: Annotated[list[str] | None, typer.Argument(help="Tracks; track 0 by default, 'all' for every one.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds.")] = None,
    workers: Workers = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the cells and the report.")] = None,
    every: Annotated[bool, typer.Option("--all", help="List every control, not only those not told apart.")] = False,
) -> None:
    """Run planted faults and their healthy twins; print sensitivity and specificity with exact bounds."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from assay import stats
    from assay.cli.common import console, sign
    from assay.cli.session import session
    from assay.reports import save_report
    from assay.results import Verdict
    from assay.studies.verification import verify

    names = tracks or ["0"]
    with session(out=out, seeds=seeds, workers=workers) as at_work:
        every = names == ["all"]
        run = verify(*(() if every else names), every=every, seeds=at_work.settings.seeds, **at_work.options)
    run = run.model_copy(update={"kind": "selftest", "title": "Self-test"})
    save_report(run, at_work.folder_of(run))
    controls = [(finding, control) for finding in run.findings for control in finding.controls]
    out_console = console()
    failed = not controls or any(not control.separated for _, control in controls)
    verdict = Verdict.FAIL if failed else Verdict.PASS
    told = sum(control.separated for _, control in controls)
    out_console.print(f"{sign(verdict)}  {told} of {len(controls)} controls told apart")
    shown = controls if every else [(finding, control) for finding, control in controls if not control.separated]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("track", "control", "kind", "expected", "observed", "told apart"):
        table.add_column(column)
    for finding, control in shown:
        mark = "[green]✓ yes[/green]" if control.separated else "[red]✗ no[/red]"
        table.add_row(
            str(finding.number),
            escape(control.name),
            control.kind,
            escape(control.expected),
            escape(control.observed),
            mark,
        )
    if shown:
        out_console.print(table)
    known = [control for _, control in controls]
    for measurement in (stats.sensitivity(known), stats.specificity(known)):
        out_console.print(f"{measurement.name}: {measurement.value:.1%} of {measurement.n}, {measurement.interval}")
    if not every and not failed:
        out_console.print("every control one by one: assay selftest --all")
    errors = any(finding.failures for finding in run.findings)
    raise typer.Exit(4 if errors else 1 if failed else 0)
