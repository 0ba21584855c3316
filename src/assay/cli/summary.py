"""The end of a run in the terminal: what was claimed, what holds, how sure we are, where the report is."""

from __future__ import annotations

from pathlib import Path

from assay.results import Finding, Run, Verdict


def print_summary(run: Run, folder: Path) -> None:
    """Print a table of findings, the counts and the place of the report."""
    from rich import box
    from rich.markup import escape
    from rich.panel import Panel
    from rich.table import Table

    from assay.cli.common import SIGNS, console, sign

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("claim", ratio=3)
    table.add_column("verdict", no_wrap=True)
    table.add_column("evidence", no_wrap=True)
    table.add_column("why", ratio=4)
    for finding in run.findings:
        number = "" if finding.number is None else str(finding.number)
        evidence = finding.evidence.value if finding.evidence else ""
        table.add_row(number, escape(finding.claim), sign(finding.verdict), evidence, escape(finding.reason))
    out = console()
    out.print(table)
    for finding in run.findings:
        for failure in finding.failures:
            message = escape(failure.message.splitlines()[0])
            out.print(f"[magenta]! {escape(failure.label)}[/magenta]: {failure.kind}: {message}")
    counts = "   ".join(
        f"[{SIGNS[verdict][1]}]{SIGNS[verdict][0]} {count} {verdict.value.lower()}[/{SIGNS[verdict][1]}]"
        for verdict, count in run.counts.items()
        if count or verdict in (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.ERROR)
    )
    page = folder / "index.html"
    place = f"[bold]{escape(str(page))}[/bold]   {run.seconds:.1f} s"
    lines = [f"{sign(run.verdict)}   {counts}", _weakest(run.findings), place]
    out.print(Panel("\n".join(line for line in lines if line), box=box.ROUNDED, border_style=SIGNS[run.verdict][1]))


def _weakest(findings: tuple[Finding, ...]) -> str:
    scored = [finding for finding in findings if finding.score is not None]
    if not scored:
        return ""
    lowest = min(scored, key=lambda finding: finding.score or 0.0)
    name = lowest.title or lowest.name
    return f"weakest claim: {lowest.number} {name}, score {lowest.score:.0f}/100 (50 is the boundary)"
