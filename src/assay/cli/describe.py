"""``assay describe``: one track in full, before anything is run."""

from __future__ import annotations

from typing import Annotated

import typer


def describe_command(track: Annotated[str, typer.Argument(help="Number or name; see: assay tracks")]) -> None:
    """Say what a track claims, how it is tested, its controls and the cost of each budget."""
    from rich.markup import escape

    from assay.cli.common import console, settings
    from assay.cli.voice import hang
    from assay.protocols import BUDGETS, SEEDS
    from assay.registry import registry
    from assay.seeding import seeds_of
    from assay.studies.verification import trials_of

    settings()
    found = registry.find(track)
    out = console()
    heading = f"[bold]Track {found.number}: {escape(found.title)}[/bold]"
    out.print(f"{heading}  ({found.name}, {found.kind}, version {found.version})")
    for name, text in (("Claim", found.claim), ("Experiment", found.experiment)):
        out.print(f"\n[bold]{name}[/bold]")
        hang(escape(text), 2, first=2)
    out.print("\n[bold]Controls it must tell apart[/bold]")
    for control in found.body.controls:
        out.print(f"  {escape(control)}")
    out.print("\n[bold]Cost[/bold]")
    for budget in BUDGETS:
        seeds = seeds_of(budget, count=None, first=42)
        cells = trials_of(found, budget, seeds)
        out.print(f"  {budget:9s} {SEEDS[budget]:3d} seeds  {len(cells):4d} cells")
    out.print(f"\n[bold]Run[/bold]\n  assay verify {found.number} --budget standard")
