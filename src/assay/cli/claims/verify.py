"""``assay verify``: run tracks and leave a report."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.cli.typed.options import Address, Cells, Device, Engine, FirstSeed, Grouping, Report, Seeds, Workers


def verify_command(
    tracks: Annotated[list[str] | None, typer.Argument(help="Numbers or names; the standing tracks if none is "
        "given.")] = None,
    budget: Annotated[str | None, typer.Option(help="smoke, quick, standard or full: sets the cost.")] = None,
    seeds: Seeds = None,
    *,
    seed: FirstSeed = None,
    workers: Workers = None,
    out: Report = None,
    engine: Engine = None,
    address: Address = None,
    store: Cells = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first FAIL or ERROR.")] = False,
    grouping: Grouping = True,
    device: Device = None,
    every: Annotated[bool, typer.Option("--all", help="Every track, those left for request too: hours.")] = False,
) -> None:
    """Verify claims: run their cells, decide, and write index.html, report.md, run.json and junit.xml.

    The same command continues a killed run. Exit code: 0 all PASS, 1 FAIL, 3 undecided, 4 ERROR.
    """
    from assay.cli.session import finish, session
    from assay.cli.terminal.common import settings
    from assay.studies.verification import chosen_tracks, verify

    settings()  # plugins first: they may define the tracks asked for
    modules = [track.module for track in chosen_tracks(tracks or (), every=every)]
    with session(
        modules=modules, grouping=grouping, out=out, budget=budget, seeds=seeds, seed=seed, workers=workers,
        engine=engine, address=address, store=store,
    ) as at_work:
        chosen = at_work.settings
        run = verify(
            *(tracks or ()), every=every, budget=chosen.budget, seeds=chosen.seeds, seed=chosen.seed,
            fail_fast=fail_fast, device=device, **at_work.options,
        )
    finish(run, at_work.folder_of(run))
