"""``assay bench``: rules on tasks, each judged against backprop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import Address, Cells, Data, Engine, FirstSeed, Grouping, Report, Seeds, Workers

RULE_NAMES = "backprop, eqprop, bptt, fa, dfa, sign, seed"
"""Written out here so that ``--help`` loads nothing; a test keeps it equal to ``assay.studies.arms.RULES``."""


def bench_command(
    tasks: Annotated[list[str] | None, typer.Argument(help="Tasks; the five of the published table if none.")] = None,
    rules: Annotated[list[str] | None, typer.Option(help=f"{RULE_NAMES} (default: backprop eqprop).")] = None,
    models: Annotated[list[str] | None, typer.Option(help="Models: mlp, conv (default: mlp).")] = None,
    budget: Annotated[str | None, typer.Option(help="quick, standard or full: seeds, size of large tasks.")] = None,
    seeds: Seeds = None,
    seed: FirstSeed = None,
    margin: Annotated[float, typer.Option(help="Largest gap called parity, in percentage points.")] = 1.0,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting for every arm: --set epochs=2.")] = None,
    data: Data = None,
    workers: Workers = None,
    out: Report = None,
    engine: Engine = None,
    address: Address = None,
    store: Cells = None,
    grouping: Grouping = True,
) -> None:
    """Compare learning rules with backprop over tasks and seeds, and write the results matrix and statistical report.

    The same command continues a killed run. Exit code: 0 all PASS, 1 FAIL, 3 undecided, 4 ERROR.
    """
    from assay.cli.common import settings
    from assay.cli.progress import watch
    from assay.cli.verify import finish
    from assay.engine import Store, choose_executor
    from assay.studies.bench import bench
    from assay.studies.bench.run import DEFAULT_ROOT, DEFAULT_RULES
    from assay.studies.verification import command_line

    place = str(data) if data else None
    chosen = settings(
        budget=budget, seeds=seeds, seed=seed, workers=workers, out=str(out) if out else None, data=place,
        engine=engine, address=address, store=store,
    )
    executor = choose_executor(chosen.engine, workers=chosen.workers, address=chosen.address)
    folder = Path(chosen.out) if chosen.out else None
    cells = chosen.store or (folder or DEFAULT_ROOT) / "cells"
    with watch(folder, workers=executor.places(), costs=Store(cells).costs()) as watcher:
        run = bench(
            *(tasks or ()),
            rules=rules or DEFAULT_RULES,
            models=models or ("mlp",),
            budget=chosen.budget,
            seeds=chosen.seeds,
            seed=chosen.seed,
            margin=margin,
            data=chosen.data,
            store=cells,
            settings=assignments(set_),
            executor=executor,
            grouping=grouping,
            watcher=watcher,
            command=command_line(),
        )
    finish(run, folder or DEFAULT_ROOT / run.id)


def assignments(texts: list[str] | None) -> dict[str, object]:
    """Settings from ``name=value`` texts; the value is JSON, or text if it is not.

    >>> assignments(["epochs=2", "hidden=[512,128]", "schedule=cosine"])
    {'epochs': 2, 'hidden': [512, 128], 'schedule': 'cosine'}
    """
    import json

    from assay.errors import expected

    found: dict[str, object] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise expected("name=value", given=f"'{text}'", do="for example --set epochs=2")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
