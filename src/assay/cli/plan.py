"""``assay plan``: how many seeds a claim needs before anyone runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.errors import InputError


def plan_command(
    margin: Annotated[float, typer.Option(help="Margin of the parity claim, in the unit of the spread (pp).")] = 1.0,
    spread: Annotated[float | None, typer.Option(help="Assumed SD of the paired difference.")] = None,
    pilot: Annotated[Path | None, typer.Option(help="A run whose paired seeds give the spread.")] = None,
    gap: Annotated[float, typer.Option(help="True gap the claim should survive.")] = 0.0,
    power: Annotated[float, typer.Option(help="Wanted probability of a PASS.")] = 0.8,
) -> None:
    """Say how many seeds are needed, and the smallest margin that 3, 5, 10 and 20 seeds can show."""
    from assay import stats
    from assay.cli.common import console
    from assay.results import load_run

    if (spread is None) == (pilot is None):
        raise InputError("expected either --spread SD or --pilot RUN; given " + ("both" if spread else "neither"))
    out = console()
    spreads: dict[str, float] = {}
    if pilot is not None:
        import statistics

        for finding in load_run(pilot).findings:
            if finding.headline is None:
                continue
            values = finding.measurement(finding.headline).values
            if len(values) >= 2:
                spreads[f"{finding.number} {finding.name}".strip()] = statistics.stdev(values)
        if not spreads:
            raise InputError(f"{pilot} holds no headline with two or more seeds; run at least two seeds as a pilot")
    elif spread is not None:
        spreads["assumed"] = spread
    for name, sd in spreads.items():
        if sd <= 0:
            out.print(f"{name}: the pilot shows no spread at all; judge it by test items, not seeds")
            continue
        needed = stats.seeds_needed(margin, sd, gap=gap, target=power)
        reach = ", ".join(f"n={n}: {stats.minimal_margin(sd, n, target=power):.3g}" for n in (3, 5, 10, 20))
        out.print(f"{name}: SD {sd:.3g} -> {needed} seeds for parity within {margin:g} at gap {gap:g}, power {power:g}")
        out.print(f"  smallest margin shown with that power: {reach}")
