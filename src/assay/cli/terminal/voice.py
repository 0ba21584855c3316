"""One voice for the terminal: verdict first, why in words, what to mend, the numbers, the page, the next command.

Every command that ends in a finding or a run prints it here, wrapped to the terminal. Texts of a run are made inert
first: no markup of theirs is obeyed, and no control or direction character of theirs reaches the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.cli.terminal.common import SIGNS, clean, console, sign
from assay.reports import words
from assay.reports.next_steps import next_steps
from assay.reports.plain import plain, says_more
from assay.reports.truth import contradictions, warnings
from assay.results import Failure, Finding, Run, Table, Verdict

if TYPE_CHECKING:
    from rich.table import Table as RichTable

MOST_ROWS = 12
"""Longer tables are left to the page."""
MOST_NUMBERS = 6
MOST_HINTS = 2


def safe(text: str) -> str:
    """``text`` with nothing in it that a terminal or a markup reader would act on.

    >>> safe("[red]a[/red] b\\u202e\\x1b[31m")
    '\\\\[red]a\\\\[/red] b\\ufffd\\ufffd[31m'
    """
    from rich.markup import escape

    return escape(clean(text))


def say_run(run: Run, page: Path | None) -> None:
    """A run of several claims: the count of each verdict, every claim in a few lines, the page, what to type next."""
    out = console()
    counts = "   ".join(
        f"[{SIGNS[verdict][1]}]{SIGNS[verdict][0]} {count} {verdict.value.lower()}[/{SIGNS[verdict][1]}]"
        for verdict, count in run.counts.items()
        if count
    )
    out.print(f"[bold]{sign(run.verdict)}[/bold]   {counts}" if len(run.findings) != 1 else sign(run.verdict))
    for finding in run.findings:
        _say_claim(finding)
    for text in warnings(run):
        hang(f"[red]✗ {safe(text)}[/red]", 2)
    weakest = _weakest(run.findings)
    if weakest:
        hang(weakest, 0)
    _ending(page, run)


def say_finding(finding: Finding, page: Path | None = None, *, again: str = "") -> None:
    """One finding in full: what an audit command prints."""
    out = console()
    hang(f"{sign(finding.verdict)}  [bold]{safe(words.capital(finding.claim))}[/bold]", 2)
    hang(safe(plain(finding)), 2, first=2)
    if says_more(finding):
        hang(safe(words.capital(finding.reason)), 2, first=2)
    for text in contradictions(finding):
        hang(f"[red]✗ {safe(text)}[/red]", 4, first=2)
    for issue in finding.issues:
        out.print()
        hang(f"  [red]✗[/red] [bold]{safe(issue.title)}[/bold]  [dim]{issue.severity} severity[/dim]", 4)
        for name, value in (("where", issue.location), ("cause", issue.cause), ("fix", issue.fix)):
            hang(f"    [dim]{name:5s}[/dim]  {safe(value)}", 11)
    _say_failures(finding.failures)
    _numbers(finding)
    _checks(finding)
    _first_table(finding)
    _controls(finding)
    fixes = {issue.fix for issue in finding.issues}
    for text in [text for text in finding.improvements if text not in fixes][:MOST_HINTS]:
        hang(f"[dim]hint[/dim]    {safe(text)}", 10, first=2)
    for text in finding.limitations[:1]:
        hang(f"[dim]limits[/dim]  {safe(text)}", 10, first=2)
    if page is not None:
        hang(f"[dim]page[/dim]    [bold]{safe(str(page))}[/bold]", 10, first=2)
    if again:
        # On one line whatever the terminal: a command is there to be copied.
        out.print(f"  [dim]again[/dim]   {safe(again)}", soft_wrap=True)


def say_table(table: Table) -> None:
    """A table of a run, as wide as the terminal."""
    console().print(_drawn(table))


def _say_claim(finding: Finding) -> None:
    number = "" if finding.number is None else f"{finding.number}  "
    evidence = f"  [dim]{finding.evidence.value}[/dim]" if finding.evidence else ""
    hang(f"{sign(finding.verdict)}  [bold]{number}{safe(words.named(finding))}[/bold]{evidence}", 2)
    hang(safe(words.capital(finding.claim)), 4, first=4)
    hang(f"[dim]{safe(plain(finding))}[/dim]", 4, first=4)
    for text in contradictions(finding):
        hang(f"[red]✗ {safe(text)}[/red]", 6, first=4)
    _say_failures(finding.failures)


def _say_failures(failures: Sequence[Failure]) -> None:
    for failure, count in words.grouped(failures):
        times = f" and {count - 1} more" if count > 1 else ""
        message = (failure.message.splitlines() or [""])[0]
        hang(f"[magenta]! {safe(failure.label)}{times}[/magenta]: {safe(failure.kind)}: {safe(message)}", 6, first=4)


def _numbers(finding: Finding) -> None:
    """The deciding measurement and the others with a limit or an interval."""
    from rich import box
    from rich.table import Table as Drawn

    order = sorted(finding.measurements, key=lambda m: m.name != finding.headline)
    chosen = [m for m in order if m.region is not None or m.interval is not None or m.name == finding.headline]
    if not chosen:
        return
    table = Drawn(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("measured", overflow="fold", min_width=16)
    for name in ("value", "interval", "n", "claim allows"):
        table.add_column(name, justify="right")
    for m in chosen[:MOST_NUMBERS]:
        interval = "—" if m.interval is None else "[{}, {}]".format(*words.ends(m))
        value = words.with_unit(words.centre(m), m.unit)
        allows = words.allowed(m) if m.region is not None else "—"
        table.add_row(safe(m.name), safe(value), safe(interval), f"{m.n} {words.counted(m)}", safe(allows))
    out = console()
    out.print()
    out.print(table)
    if len(chosen) > MOST_NUMBERS:
        out.print(f"  [dim]{len(chosen) - MOST_NUMBERS} more numbers on the page (--out)[/dim]")


def _checks(finding: Finding) -> None:
    held = sum(check.verdict is Verdict.PASS for check in finding.checks)
    for check in finding.checks:
        if check.verdict is not Verdict.PASS:
            aside = f" [dim](does not count: {safe(check.aside)})[/dim]" if check.aside else ""
            hang(f"{sign(check.verdict)}  {safe(check.name)}: {safe(check.reason)}{aside}", 6, first=2)
    if held:
        hang(f"[dim]checks[/dim]  {held} of {len(finding.checks)} hold", 10, first=2)


def _controls(finding: Finding) -> None:
    if not finding.controls:
        return
    confused = [control for control in finding.controls if not control.separated]
    told = len(finding.controls) - len(confused)
    hang(f"[dim]control[/dim] {told} of {words.plural(len(finding.controls), 'control')} told apart", 10, first=2)
    for control in confused:
        text = f"{control.kind} {control.name}: expected {control.expected}, observed {control.observed}"
        hang(f"[red]✗ {safe(text)}[/red]", 6, first=4)


def _first_table(finding: Finding) -> None:
    """The first table, if the terminal holds it without breaking its numbers."""
    from rich.measure import Measurement as Extent

    table = next((t for t in finding.tables if 0 < len(t.rows) <= MOST_ROWS), None)
    if table is None:
        return
    out, drawn = console(), _drawn(table)
    if Extent.get(out, out.options.update(width=10_000), drawn).maximum > out.width:
        hang(f"[dim]table[/dim]   \u201c{safe(table.title)}\u201d is on the page (--out)", 10, first=2)
        return
    out.print()
    out.print(drawn)


def _drawn(table: Table) -> RichTable:
    from rich import box
    from rich.table import Table as Drawn

    drawn = Drawn(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), title=safe(table.title), title_justify="left")
    for index, column in enumerate(table.columns):
        numeric = all(isinstance(row[index], int | float) or row[index] is None for row in table.rows)
        drawn.add_column(safe(column), justify="right" if numeric else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(safe(_cell(value)) for value in row))
    return drawn


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return words.number(value) if value is None or isinstance(value, int | float) else str(value)


def _ending(page: Path | None, run: Run) -> None:
    out = console()
    if page is not None:
        out.print(
            f"[dim]page[/dim]  [bold]{safe(str(page))}[/bold]  [dim]{words.duration(run.seconds)}[/dim]", soft_wrap=True
        )
    for step in next_steps(run):
        cost = f" About {words.duration(step.seconds)}." if step.seconds else ""
        hang(f"[dim]next[/dim]  {safe(step.why)}{cost}", 6)
        out.print(f"      [bold]{safe(step.command)}[/bold]", soft_wrap=True)


def _weakest(findings: Iterable[Finding]) -> str:
    """The claim that is furthest from its boundary on the wrong side; nothing while something could not be measured."""
    found = list(findings)
    scored = [finding for finding in found if finding.score is not None]
    if len(scored) < 2 or any(finding.verdict is Verdict.ERROR for finding in found):
        return ""
    lowest = min(scored, key=lambda finding: finding.score or 0.0)
    if lowest.score == 100.0:
        return ""  # none is weaker than another
    number = "" if lowest.number is None else f"{lowest.number} "
    score = f"score {lowest.score:.0f} of 100 (50 is the boundary)"
    return f"[dim]weakest[/dim] {number}{safe(words.heading(lowest))}, {score}"


def hang(markup: str, indent: int, *, first: int = 0) -> None:
    """Print ``markup`` wrapped to the terminal, ``first`` columns in and every further line ``indent`` columns in."""
    from rich.text import Text

    out = console()
    for index, line in enumerate(Text.from_markup(markup).wrap(out, max(20, out.width - indent))):
        line.rstrip()
        out.print(Text(" " * (first if index == 0 else indent)) + line, soft_wrap=True)
