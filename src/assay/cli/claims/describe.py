"""``assay describe``: one track in full, before anything is run."""

from __future__ import annotations

from typing import Annotated

import typer


def describe_command(track: Annotated[str, typer.Argument(help="Number or name; see: assay tracks")]) -> None:
    """Say what a track claims, how it is tested, its controls and the cost of each budget."""
    from assay.cli.terminal.common import console, settings
    from assay.cli.terminal.progress import clock
    from assay.cli.terminal.voice import hang, safe
    from assay.engine import CostModel, forecast, usual
    from assay.protocols import BUDGETS, SEEDS
    from assay.registry import registry
    from assay.reports.words import plural
    from assay.seeding import seeds_of
    from assay.studies.verification import plan

    settings()
    found = registry.find(track)
    out = console()
    hang(f"[bold]{found.number}  {safe(found.title)}[/bold]  [dim]{found.name}, {found.kind}, "
         f"version {found.version}[/dim]", 4)  # fmt: skip
    for name, text in (("Claim", found.claim), ("Experiment", found.experiment)):
        out.print(f"\n[bold]{name}[/bold]")
        for paragraph in text.split("\n\n"):
            hang(safe(" ".join(paragraph.split())), 2, first=2)
    out.print("\n[bold]Controls it must tell apart[/bold]")
    for control in found.body.controls:
        hang(f"{safe(control.name.removeprefix('control: '))}  [dim]{control.kind}[/dim]", 4, first=2)
    out.print("\n[bold]Cost on one core[/bold]  [dim]by shipped times[/dim]")
    guess = usual()
    for budget in BUDGETS:
        cells = plan(found, budget, seeds_of(budget, count=None, first=42))
        costs, _ = CostModel().with_priors({cell.group for cell in cells})
        cost = forecast(cells, (), costs, otherwise=None if guess is None else guess.middle)
        sure = "a guess, " if cost.guessed == cost.cells else ""
        time = "unknown" if cost.unknown else f"{sure}about {clock(cost.core_seconds)}"
        out.print(f"  {budget:9s} {plural(SEEDS[budget], 'seed'):>8s}  {len(cells):4d} cells  {time}")
    out.print(f"\n[bold]Run[/bold]\n  assay verify {found.number} --budget standard")
