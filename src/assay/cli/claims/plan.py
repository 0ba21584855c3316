"""``assay plan``: what a run will cost and how many seeds a claim needs, before anyone starts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.typed.options import Address, Cells, Engine, FirstSeed, Seeds, Workers
from assay.errors import InputError, expected

if TYPE_CHECKING:
    from assay.config import Settings
    from assay.engine import Forecast, Store
    from assay.protocols import Cell
    from assay.results import Region


def plan_command(
    tracks: Annotated[list[str] | None, typer.Argument(help="Tracks whose cost to tell, by number or name.")] = None,
    budget: Annotated[str | None, typer.Option(help="smoke, quick, standard or full, as for verify.")] = None,
    seeds: Seeds = None,
    *,
    seed: FirstSeed = None,
    workers: Workers = None,
    engine: Engine = None,
    address: Address = None,
    store: Cells = None,
    margin: Annotated[
        float | None, typer.Option(help="Margin of the claim, in the unit of the spread (default: the claim's own).")
    ] = None,
    spread: Annotated[float | None, typer.Option(help="Assumed SD of the paired difference.")] = None,
    pilot: Annotated[Path | None, typer.Option(help="A run whose paired seeds give the spread.")] = None,
    gap: Annotated[float, typer.Option(help="True gap the claim should survive.")] = 0.0,
    power: Annotated[float, typer.Option(help="Wanted probability of a PASS.")] = 0.8,
) -> None:
    """Say what tracks will cost in core-hours, or how many seeds a claim of parity needs.

    assay plan 1 2 --budget full --engine ray --address auto\n
    assay plan --spread 0.8 --margin 1
    """
    from assay.cli.terminal.common import settings

    if not tracks and spread is None and pilot is None:
        raise InputError("expected tracks (their cost), or --spread SD or --pilot RUN (seeds needed); given neither")
    if spread is not None and pilot is not None:
        raise InputError("expected either --spread SD or --pilot RUN; given both")
    for option, value, fine in (("--spread > 0", spread, spread is None or 0 < spread < math.inf),
                                ("--power between 0 and 1", power, 0 < power < 1),
                                ("--margin > 0", margin, margin is None or 0 < margin < math.inf),
                                ("a finite --gap", gap, math.isfinite(gap))):
        if not fine:
            raise expected(option, given=f"{value:g}")
    chosen = settings(budget=budget, seeds=seeds, seed=seed, workers=workers, engine=engine, address=address,
                      store=store)  # fmt: skip
    asked = f"--seeds {chosen.seeds}" if chosen.seeds else f"--budget {chosen.budget}"
    if tracks:
        _cost(tracks, chosen)
    if (spread is not None or pilot is not None) and (needed := _seeds_needed(_spreads(tracks, spread, pilot, margin),
                                                                             gap, power)):  # fmt: skip
        asked = f"--seeds {needed}"
    if tracks:
        _next(tracks, asked)


def _cost(tracks: list[str], chosen: Settings) -> None:
    from rich import box
    from rich.table import Table

    from assay.cli.terminal.common import console
    from assay.cli.terminal.progress import clock
    from assay.cli.terminal.voice import hang, safe
    from assay.engine import Store, bundle, choose_executor, forecast, usual
    from assay.protocols import BUDGETS
    from assay.registry import registry
    from assay.reports import words
    from assay.seeding import seeds_of
    from assay.studies.study import DEFAULT_ROOT
    from assay.studies.verification import plan

    out = console()
    level = next(known for known in BUDGETS if known == chosen.budget)
    seeds = seeds_of(level, count=chosen.seeds, first=chosen.seed)
    place = Store(chosen.store or DEFAULT_ROOT / "cells")
    places = choose_executor(chosen.engine, workers=chosen.workers, address=chosen.address).places()
    found = [registry.find(name) for name in tracks]
    planned = {track.number: plan(track, level, seeds) for track in found}
    cells = [cell for several in planned.values() for cell in several]
    costs, shipped = place.costs().with_priors({cell.group for cell in cells})
    stored = _stored(place, cells)
    guess = usual()
    otherwise = None if guess is None else guess.middle
    cost = forecast(cells, stored, costs, otherwise=otherwise)
    spent = cost.core_seconds / 3600
    hours = "an unknown number of" if cost.unknown else f"{spent:.2f}" if spent > 0.01 or not spent else "under 0.01"
    span = "an unknown time" if cost.unknown else f"about {clock(cost.seconds(places))}"
    cores = words.plural(places, "core")
    hang(f"[bold]{span} on {cores}[/bold] ({chosen.engine}): {cost.cells - cost.stored} of {cost.cells} cells to run, "
         f"{hours} core-hours", 2)  # fmt: skip
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name, justify in (("#", "right"), ("claim", "left"), ("cells", "right"), ("done", "right"), ("to go", "right")):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for track in found:
        mine = forecast(planned[track.number], _stored(place, planned[track.number]), costs,
                        otherwise=otherwise)  # fmt: skip
        table.add_row(str(track.number), safe(track.title), str(mine.cells), str(mine.stored), _to_go(mine))
    out.print(table)
    pieces = bundle(list({cell.key: cell for cell in cells if cell.key not in stored}.values()), places=places)
    grouped = [piece for piece in pieces if len(piece) > 1]
    if grouped:
        alone = len(pieces) - len(grouped)
        together = f"{sum(map(len, grouped))} cells in {words.plural(len(grouped), 'group')}"
        hang(f"[dim]groups[/dim]  {together}, {alone} alone", 10, first=2)
    if shipped & {cell.group for cell in cells if cell.key not in stored}:
        hang("[dim]times[/dim]   measured when this version was made, for cells never run here; yours will differ", 10,
             first=2)  # fmt: skip
    if cost.unknown:
        hang("[dim]times[/dim]   none are known for this plan yet: run it once with --seeds 1, then ask again", 10,
             first=2)  # fmt: skip
    elif guess and cost.guessed and cost.guessed == cost.cells - cost.stored:
        hang(f"[dim]times[/dim]   a guess: no cell of this plan was ever timed, and cells of the claims that ship take "
             f"{guess.low:.2g} to {guess.high:.2g} s each; run it once with --seeds 1, then ask again", 10,
             first=2)  # fmt: skip


def _next(tracks: list[str], asked: str) -> None:
    from assay.cli.terminal.common import console
    from assay.registry import registry

    numbers = " ".join(str(registry.find(name).number) for name in tracks)
    console().print(f"[dim]next[/dim]  [bold]assay verify {numbers} {asked}[/bold]", soft_wrap=True)


def _stored(place: Store, cells: list[Cell]) -> set[str]:
    return {stored.key for stored in place.get_all(cell.key for cell in cells) if stored is not None}


def _to_go(cost: Forecast) -> str:
    from assay.cli.terminal.progress import clock

    if cost.unknown:
        return f"unknown for {cost.unknown}"
    guessed = f", {cost.guessed} guessed" if cost.guessed else ""
    return f"{clock(cost.core_seconds)} of one core{guessed}" if cost.cells > cost.stored else "nothing"


@dataclass(frozen=True)
class Spread:
    """The spread of a paired difference, the margin it is held against, and the unit of both."""

    name: str
    deviation: float
    margin: float
    unit: str = ""


def _spreads(
    tracks: list[str] | None, assumed: float | None, pilot: Path | None, margin: float | None
) -> list[Spread]:
    """The spread that was assumed, or that of each claim of the pilot (only of those asked for, if any were)."""
    if pilot is None:
        assert assumed is not None
        return [Spread("assumed", assumed, margin or 1.0)]
    import statistics

    from assay.registry import registry
    from assay.reports import words
    from assay.results import load_run

    asked = {registry.find(name).number for name in tracks or ()}
    found = []
    for finding in load_run(pilot).findings:
        decided = words.headline(finding)
        if decided is None or len(decided.values) < 2 or (asked and finding.number not in asked):
            continue
        own = _margin(decided.region)
        if margin is None and own is None:
            continue  # a bound on one side is no parity, and a margin in another unit would mean nothing
        number = "" if finding.number is None else f"{finding.number}  "
        name = f"{number}{words.heading(finding)}, {decided.name}"
        deviation, unit = statistics.stdev(decided.values), words.unit_words(decided.unit)
        found.append(Spread(name, deviation, margin or own or 1.0, unit))
    if not found:
        which = f" among {', '.join(map(str, sorted(asked)))}" if asked else ""
        raise InputError(f"{pilot} holds no claim{which} with a margin on both sides and two or more seeds; give "
                         "--margin, or run at least two seeds of it as a pilot")  # fmt: skip
    return found


def _margin(region: Region | None) -> float | None:
    if region is None or region.low is None or region.high is None:
        return None
    return (region.high - region.low) / 2


def _seeds_needed(spreads: list[Spread], gap: float, power: float) -> int:
    """Print what each claim needs; the most of them, or 0 if none could be told."""
    from assay import stats
    from assay.cli.terminal.voice import hang, safe

    most = 0
    for one in spreads:
        name, unit = safe(one.name), safe(one.unit)
        if one.deviation <= 0:
            hang(f"[bold]{name}[/bold]: the pilot shows no spread at all; judge it by test items, not seeds", 2)
            continue
        needed = stats.seeds_needed(one.margin, one.deviation, gap=gap, target=power)
        most = max(most, needed)
        reach = ", ".join(
            f"{n} seeds: {stats.minimal_margin(one.deviation, n, target=power):.3g}{unit}" for n in (3, 5, 10, 20)
        )
        hang(f"[bold]{name}[/bold]: {needed} seeds for parity within ±{one.margin:g}{unit} (standard deviation "
             f"{one.deviation:.3g}{unit}, gap {gap:g}{unit}, power {power:g})", 2)  # fmt: skip
        hang(f"[dim]smallest margin shown with that power[/dim]  {reach}", 4, first=2)
    return most
