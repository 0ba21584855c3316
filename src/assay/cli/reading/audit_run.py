"""``assay audit-run``: what a reviewer does with a run of somebody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.typed.options import Address, Cells, Engine, Report, Workers


def audit_run_command(
    run: Annotated[Path, typer.Argument(help="A run folder, or its run.json.")],
    rerun: Annotated[str, typer.Option(help="Share of the cells to compute again: 5%, 0.05, or 0 for none.")] = "5%",
    seed: Annotated[int | None, typer.Option(help="Seed of the sample; drawn anew by default.")] = None,
    *,
    store: Cells = None,
    trust: Annotated[
        list[str] | None, typer.Option(help="Name of a key in ~/.config/assay/keys whose cells count as signed.")
    ] = None,
    workers: Workers = None,
    engine: Engine = None,
    address: Address = None,
    out: Report = None,
) -> None:
    """Audit a run: decide every finding again from its cells, compute a sample of them again, report each difference.

    A run of somebody else's needs no key: what an unknown key signed is doubted until it is computed again.
    The run and its store are left as they are.

    Exit code: 0 everything holds, 1 something does not, 3 something could not be checked.\n
    assay audit-run assay-runs/20260101-120000-abc123 --rerun 10%
    """
    from assay.cli.terminal.common import console, settings
    from assay.cli.terminal.progress import watch
    from assay.cli.terminal.voice import say_run
    from assay.engine import choose_executor
    from assay.registry import registry
    from assay.reports import save_report
    from assay.studies.audit_run import audit_run
    from assay.studies.study import DEFAULT_ROOT, command_line

    share = _share(rerun)
    chosen = settings(
        workers=workers, engine=engine, address=address, store=store, out=str(out) if out else None,
        trust=tuple(trust) if trust else None,
    )
    modules = [track.module for track in registry.ordered()]
    executor = choose_executor(chosen.engine, workers=chosen.workers, address=chosen.address, modules=modules)
    folder = Path(chosen.out) if chosen.out else None
    with watch(folder, workers=executor.places()) as watcher:
        found = audit_run(
            run, store=chosen.store, rerun=share, seed=seed, executor=executor, watcher=watcher, command=command_line())
    place = folder or DEFAULT_ROOT / found.id
    save_report(found, place)
    say_run(found, place / "index.html")
    for finding in found.findings:
        for table in finding.tables if not finding.passed else ():
            for row in table.rows[:3]:
                console().print(f"  {finding.name}: " + " | ".join(map(str, row[:4])), markup=False)
    raise typer.Exit(found.verdict.exit_code)


def _share(text: str) -> float:
    """A share of 1 from ``5%`` or ``0.05``.

    >>> _share("5%"), _share("0.25")
    (0.05, 0.25)
    """
    from assay.errors import expected

    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise expected("--rerun as a share of the cells, as 5% or 0.05", given=text)
    return share
