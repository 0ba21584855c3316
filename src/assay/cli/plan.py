"""``assay plan``: what a run will cost and how many seeds a claim needs, before anyone starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import Address, Cells, Engine, FirstSeed, Seeds, Workers
from assay.errors import InputError, expected

if TYPE_CHECKING:
    from assay.config import Settings
    from assay.engine import Forecast, Store
    from assay.protocols import Cell


def plan_command(
    tracks: Annotated[list[str] | None, typer.Argument(help="Tracks whose cost to tell, by number or name.")] = None,
    budget: Annotated[str | None, typer.Option(help="smoke, quick, standard or full, as for verify.")] = None,
    seeds: Seeds = None,
    seed: FirstSeed = None,
    workers: Workers = None,
    engine: Engine = None,
    address: Address = None,
    store: Cells = None,
    margin: Annotated[float, typer.Option(help="Margin of the parity claim, in the unit of the spread (pp).")] = 1.0,
    spread: Annotated[float | None, typer.Option(help="Assumed SD of the paired difference.")] = None,
    pilot: Annotated[Path | None, typer.Option(help="A run whose paired seeds give the spread.")] = None,
    gap: Annotated[float, typer.Option(help="True gap the claim should survive.")] = 0.0,
    power: Annotated[float, typer.Option(help="Wanted probability of a PASS.")] = 0.8,
) -> None:
    """Say what tracks will cost in core-hours, or how many seeds a claim of parity needs.

    assay plan 1 2 --budget full --engine ray --address auto\n
    assay plan --spread 0.8 --margin 1
    """
    from assay.cli.common import settings

    if not tracks and spread is None and pilot is None:
        raise InputError("expected tracks (their cost), or --spread SD or --pilot RUN (seeds needed); given neither")
    if spread is not None and pilot is not None:
        raise InputError("expected either --spread SD or --pilot RUN; given both")
    for option, value, fine in (("--spread > 0", spread, spread is None or spread > 0),
                                ("--power between 0 and 1", power, 0 < power < 1)):
        if not fine:
            raise expected(option, given=f"{value:g}")
    if tracks:
        _cost(tracks, settings(budget=budget, seeds=seeds, seed=seed, workers=workers, engine=engine, address=address,
                               store=store))
    if spread is not None or pilot is not None:
        _seeds_needed(margin, spread, pilot, gap, power)


def _cost(tracks: list[str], chosen: Settings) -> None:
    from assay.cli.common import console
    from assay.cli.progress import clock
    from assay.engine import Store, bundle, choose_executor, forecast
    from assay.protocols import BUDGETS
    from assay.registry import registry
    from assay.seeding import seeds_of
    from assay.studies.study import DEFAULT_ROOT
    from assay.studies.verification import plan

    out = console()
    level = next(known for known in BUDGETS if known == chosen.budget)
    seeds = seeds_of(level, count=chosen.seeds, first=chosen.seed)
    place = Store(chosen.store or DEFAULT_ROOT / "cells")
    costs = place.costs()
    places = choose_executor(chosen.engine, workers=chosen.workers, address=chosen.address).places()
    cells = []
    for name in tracks:
        track = registry.find(name)
        planned = plan(track, level, seeds)
        cells += planned
        stored = _stored(place, planned)
        cost = forecast(planned, stored, costs)
        out.print(f"{track.number} {track.name}: {cost.cells} cells, {cost.stored} done, {_to_go(cost)}")
    stored = _stored(place, cells)
    cost = forecast(cells, stored, costs)
    pieces = bundle(list({cell.key: cell for cell in cells if cell.key not in stored}.values()), places=places)
    grouped = [piece for piece in pieces if len(piece) > 1]
    if grouped:
        alone = len(pieces) - len(grouped)
        out.print(f"{sum(map(len, grouped))} cells in {len(grouped)} groups, {alone} alone")
    hours = "an unknown number of" if cost.unknown else f"{cost.core_seconds / 3600:.2f}"
    span = "an unknown time" if cost.unknown else f"about {clock(cost.seconds(places))}"
    out.print(
        f"in all: {cost.cells - cost.stored} of {cost.cells} cells to run, {hours} core-hours, "
        f"{span} on {places} {'core' if places == 1 else 'cores'} ({chosen.engine})"
    )
    if cost.unknown:
        out.print("no times are recorded for this plan yet: run it once with --seeds 1, then ask again")


def _stored(place: Store, cells: list[Cell]) -> set[str]:
    return {stored.key for stored in place.get_all(cell.key for cell in cells) if stored is not None}


def _to_go(cost: Forecast) -> str:
    if cost.unknown:
        return f"{cost.unknown} without a recorded time: cost unknown"
    doubt = f" ({cost.guessed} cells have no recorded time and are taken to cost what the others do)"
    return f"{cost.core_seconds / 3600:.2f} core-hours to go{doubt if cost.guessed else ''}"


def _seeds_needed(margin: float, spread: float | None, pilot: Path | None, gap: float, power: float) -> None:
    from assay import stats
    from assay.cli.common import console
    from assay.results import load_run

    out = console()
    spreads: dict[str, float] = {}
    if pilot is not None:
        import statistics

        for finding in load_run(pilot).findings:
            if finding.headline is None:
                continue
            values = finding.measurement(finding.headline).values
            if len(values) >= 2:
                number = "" if finding.number is None else f"{finding.number} "
                spreads[f"{number}{finding.name}"] = statistics.stdev(values)
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
