"""``assay verify``: run tracks and leave a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import Address, Cells, Engine, FirstSeed, Grouping, Report, Seeds, Workers

if TYPE_CHECKING:
    from assay.results import Run


def verify_command(
    tracks: Annotated[list[str] | None, typer.Argument(help="Numbers or names; all tracks if none is given.")] = None,
    budget: Annotated[str | None, typer.Option(help="quick, standard or full: sets the cost.")] = None,
    seeds: Seeds = None,
    seed: FirstSeed = None,
    workers: Workers = None,
    out: Report = None,
    engine: Engine = None,
    address: Address = None,
    store: Cells = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first FAIL or ERROR.")] = False,
    grouping: Grouping = True,
) -> None:
    """Verify claims: run their cells, decide, and write index.html, report.md, run.json and junit.xml.

    The same command continues a killed run. Exit code: 0 all PASS, 1 FAIL, 3 undecided, 4 ERROR.
    """
    from assay.cli.common import settings
    from assay.cli.progress import watch
    from assay.engine import Store, choose_executor
    from assay.registry import registry
    from assay.studies.verification import DEFAULT_ROOT, command_line, verify

    chosen = settings(
        budget=budget,
        seeds=seeds,
        seed=seed,
        workers=workers,
        out=str(out) if out else None,
        engine=engine,
        address=address,
        store=store,
    )
    modules = [registry.find(track).module for track in tracks] if tracks else [t.module for t in registry.ordered()]
    executor = choose_executor(chosen.engine, workers=chosen.workers, address=chosen.address, modules=modules)
    folder = Path(chosen.out) if chosen.out else None
    cells = chosen.store or (folder or DEFAULT_ROOT) / "cells"
    with watch(folder, workers=executor.places(), costs=Store(cells).costs()) as watcher:
        run = verify(
            *(tracks or ()),
            budget=chosen.budget,
            seeds=chosen.seeds,
            seed=chosen.seed,
            store=cells,
            fail_fast=fail_fast,
            executor=executor,
            grouping=grouping,
            watcher=watcher,
            command=command_line(),
        )
    finish(run, folder or DEFAULT_ROOT / run.id)


def finish(run: Run, folder: Path) -> None:
    """Write the report, print the summary, exit with the code of the verdict."""
    from assay.cli.summary import print_summary
    from assay.reports import save_report

    save_report(run, folder)
    print_summary(run, folder)
    raise typer.Exit(run.verdict.exit_code)
