"""``assay compare-evals``: two evaluation logs, item by item."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare_evals_command(
    first: Annotated[Path, typer.Argument(metavar="A", help="A log or a folder: inspect_ai, lm-eval samples, CSV.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The log it is compared with.")],
    margin: Annotated[float | None, typer.Option(help="Largest gap called parity, in percentage points.")] = None,
    *,
    claim: Annotated[str | None, typer.Option(help="better, parity or non-inferior (default: parity with --margin, "
                                                   "else better).")] = None,
    metric: Annotated[str | None, typer.Option(help="The score to compare, such as acc or match.")] = None,
    tasks: Annotated[list[str] | None, typer.Option(help="Compare only these tasks.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Items with one value of this field belong together.")] = None,
    missing: Annotated[str, typer.Option(help="Items that one log lacks: refuse, wrong or drop.")] = "refuse",
    alpha: Annotated[float, typer.Option(help="Level of every test, over all tasks (Holm).")] = 0.05,
    out: Annotated[Path | None, typer.Option(help="Folder of the report, or one .html, .md, .json, .tex file.")] = None,
) -> None:
    """Compare two systems on the same test items: paired gap, McNemar's exact test, clusters, Holm and power.

    Reads logs of inspect_ai (.eval, .json), samples of lm-evaluation-harness (--log_samples) and CSV.
    Exit code: 0 PASS, 1 FAIL, 3 undecided.
    """
    from typing import Any, cast

    from assay.cli.finish import place
    from assay.cli.terminal.voice import say_finding, say_run
    from assay.reports import save_report
    from assay.studies.evals import compare_evals

    place(out)
    run = compare_evals(first, second, margin=margin, claim=cast(Any, claim), metric=metric, tasks=tasks or None,
                        cluster=cluster, missing=cast(Any, missing), alpha=alpha)
    page = save_report(run, out) if out is not None else None
    if len(run.findings) == 1:
        say_finding(run.findings[0], page, again=run.command)
    else:
        say_run(run, page)
    raise typer.Exit(run.verdict.exit_code)
