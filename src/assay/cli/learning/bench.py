"""``assay bench``: rules on tasks, each judged against backprop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.typed.options import Address, Cells, Data, Device, Engine, FirstSeed, Grouping, Report, Seeds, Workers

RULE_NAMES = (
    "backprop, eqprop, bptt, fa-layer, fa-block, dfa-layer, dfa-block, sign-layer, kp-layer, pc, pc-errors, pc-fixed, "
    "dual, dtp, forward-forward, pepita, local-heads, node-perturbation, weight-perturbation, forward-gradient, "
    "original"
)
"""Written out here so that ``--help`` loads nothing; a test keeps it equal to ``assay.learning.names.RULES``."""


def bench_command(
    tasks: Annotated[
        list[str] | None, typer.Argument(help="Tasks by name or pkg.module:name; the published five if none.")
    ] = None,
    rules: Annotated[
        list[str] | None, typer.Option(help=f"{RULE_NAMES}, all, or pkg.module:name (default: backprop eqprop).")
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option("--models", "--model", help="mlp, conv, or pkg.module:name (default: mlp).")
    ] = None,
    *,
    budget: Annotated[str | None, typer.Option(help="quick, standard or full: seeds, size of large tasks.")] = None,
    seeds: Seeds = None,
    seed: FirstSeed = None,
    margin: Annotated[
        str, typer.Option(help="Largest gap called parity: percentage points, target units, or a share such as 2%.")
    ] = "1",
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting for every arm: --set epochs=2.")] = None,
    settings_from: Annotated[
        Path | None, typer.Option(help="Folder with the TASK.json of your own searches (assay tune --save).")
    ] = None,
    data: Data = None,
    device: Device = None,
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
    from assay.cli.session import finish, session
    from assay.cli.typed.paths import as_module_path
    from assay.learning.resolve import is_path
    from assay.studies.bench import bench
    from assay.studies.bench.run import DEFAULT_RULES

    tasks, rules, models = ([as_module_path(text) for text in texts or ()] for texts in (tasks, rules, models))
    own = [text.partition(":")[0] for text in (*tasks, *rules, *models) if is_path(text)]
    with session(
        modules=own, grouping=grouping, out=out, budget=budget, seeds=seeds, seed=seed, workers=workers, data=data,
        engine=engine, address=address, store=store,
    ) as at_work:
        chosen = at_work.settings
        run = bench(
            *tasks, rules=rules or DEFAULT_RULES, models=models or ("mlp",), budget=chosen.budget,
            seeds=chosen.seeds, seed=chosen.seed, margin=limit(margin), data=chosen.data,
            settings=assignments(set_), settings_from=settings_from, device=device, **at_work.options,
        )
    finish(run, at_work.folder_of(run))


def limit(text: str) -> float | str:
    """A margin as typed: a number, or a share such as 2%.

    >>> limit("1"), limit("2%")
    (1.0, '2%')
    """
    try:
        return float(text)
    except ValueError:
        return text


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
