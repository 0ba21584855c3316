"""``assay compare``: what changed between two runs, for a person and for CI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.terminal.common import console, sign
from assay.errors import ConfigError, unknown

if TYPE_CHECKING:
    from assay.reports.compare import ClaimChange, Comparison
    from assay.results import Verdict

FAIL_ON = ("never", "regression", "change")
_SIGN = {"same": "=", "better": "↑ better", "worse": "↓ worse", "added": "+ added", "missing": "- missing"}


def compare_command(
    before: Annotated[Path, typer.Argument(help="The earlier run: a folder or a run.json.", metavar="RUN_A")],
    after: Annotated[Path, typer.Argument(help="The later run.", metavar="RUN_B")],
    fail_on: Annotated[str, typer.Option("--fail-on", help="Exit with 1 on: regression, change or never.")] = "never",
    *,
    html: Annotated[Path | None, typer.Option("--html", help="Also write the comparison as one HTML file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare two runs: verdicts that changed, paired differences by seed, differences of environment."""
    if fail_on not in FAIL_ON:
        raise ConfigError(unknown("value of --fail-on", fail_on, FAIL_ON))
    from assay.reports.compare import compare
    from assay.results import load_run

    first, second = load_run(before), load_run(after)
    result = compare(first, second)
    if html is not None:
        from assay.reports.compare_page import compare_html
        from assay.reports.save import write_atomically

        write_atomically(html, compare_html([first, second]))
    if json:
        typer.echo(result.model_dump_json(indent=1))
    else:
        _show(result, html)
    if (fail_on == "regression" and result.regressions) or (fail_on == "change" and result.changed):
        raise typer.Exit(1)


def _show(result: Comparison, page: Path | None) -> None:
    from rich import box
    from rich.table import Table

    from assay.cli.terminal.voice import hang, safe
    from assay.reports.words import plural

    regressions, changed = len(result.regressions), len(result.changed)
    mark, colour = ("✗", "red") if regressions else ("✓", "green")
    hang(f"[{colour}]{mark} {plural(regressions, 'regression')}[/{colour}]  "
         f"[bold]{changed} of {plural(len(result.claims), 'claim')} changed[/bold]", 2)  # fmt: skip
    hang(f"[dim]from[/dim] {safe(result.before)} [dim]to[/dim] {safe(result.after)}", 4, first=2)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for column in ("claim", "before", "after", "change", "difference by seed"):
        table.add_column(column, overflow="fold", no_wrap=column in ("before", "after", "change"))
    for claim in sorted(result.claims, key=lambda c: not c.regression):
        style = "bold" if claim.regression else ""
        table.add_row(
            safe(claim.title),
            _verdict(claim.before),
            _verdict(claim.after),
            _SIGN[claim.change],
            _moved(claim),
            style=style,
        )
    console().print(table)
    for change in result.environment:
        old, new = safe(change.before or "—"), safe(change.after or "—")
        hang(f"[dim]environment[/dim] {safe(change.name)}: {old} → {new}", 14, first=2)
    if page is not None:
        console().print(f"[dim]page[/dim]  [bold]{safe(str(page))}[/bold]", soft_wrap=True)


def _verdict(verdict: Verdict | None) -> str:
    return "—" if verdict is None else sign(verdict)


def _moved(claim: ClaimChange) -> str:
    from assay.cli.terminal.voice import safe
    from assay.reports import words

    moved = [difference for difference in claim.differences if not difference.identical]
    if not claim.differences:
        return "—"
    if not moved:
        return "identical"
    shown = []
    for difference in moved[:3]:
        change = difference.mean
        if change is None and difference.before is not None and difference.after is not None:
            change = difference.after - difference.before
        n = f", n = {len(difference.seeds)}" if difference.seeds else ""
        sign = "+" if change is not None and change > 0 else ""
        shown.append(
            f"{safe(difference.name)} {sign}{words.with_unit(words.number(change), safe(difference.unit))}{n}"
        )
    return "; ".join(shown) + (f"; {len(moved) - 3} more" if len(moved) > 3 else "")
