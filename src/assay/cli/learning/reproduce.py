"""``assay reproduce``: published experiments, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.typed.flags import Command
from assay.cli.typed.options import Address, Cells, Engine, Report, Workers

EXPERIMENTS = ("fa-protocol",)
STEPS: dict[str, tuple[str, ...]] = {
    "methods": ("--methods",), "frozen": ("--ladder", "--shallow"), "penalty": ("--lambdas",), "all": (),
    "recorded": (),
}
"""Each step, and the options that it alone uses."""


class ReproduceCommand(Command):
    """Takes several values after one flag: ``--seeds 42 123 456``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        from assay.cli.typed.many import spread

        return super().parse_args(ctx, spread(args, several=("--methods", "--seeds", "--lambdas")))


def reproduce_command(
    experiment: Annotated[str, typer.Argument(help="The published experiment: fa-protocol.")],
    step: Annotated[str, typer.Argument(help="methods, frozen, penalty, all, or recorded (no training).")] = "methods",
    arch: Annotated[str, typer.Option(help="resmlp, resmlp-without-ln, vit or resnet.")] = "resmlp",
    *,
    methods: Annotated[list[str] | None, typer.Option(help="backprop, fa-block, dfa-block, fa-layer ...")] = None,
    seeds: Annotated[list[int] | None, typer.Option(help="Seeds (default: 42 123 456).")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs (default: 100; 30 for the penalty).")] = None,
    lambdas: Annotated[list[float] | None, typer.Option(help="Penalties (default: 0 1e-4 1e-3 1e-2 1e-1).")] = None,
    ladder: Annotated[bool, typer.Option("--ladder", help="With frozen: also train the last 1, 2, 3 blocks.")] = False,
    shallow: Annotated[bool, typer.Option("--shallow", help="With frozen: also the model without its blocks.")] = False,
    gpu: Annotated[int | None, typer.Option(help="Train on this GPU (default: the CPU).")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with cifar-10-batches-bin (default: ASSAY_DATA).")] = None,
    artifacts: Annotated[Path | None, typer.Option(help="Folder for the weights of every run.")] = None,
    records: Annotated[Path | None, typer.Option(help="With recorded: a folder of records of your own.")] = None,
    workers: Workers = None,
    out: Report = None,
    engine: Engine = None,
    address: Address = None,
    store: Cells = None,
) -> None:
    """Train the published arms as cells, put every figure beside the published one, and write the report.

    The same command continues a killed run. Exit code: 0 all reproduce, 1 one does not, 3 undecided, 4 ERROR.
    """
    import json

    from assay.cli.session import finish, session
    from assay.errors import InputError, expected, unknown
    from assay.learning.device import chosen_device
    from assay.studies.reproduce import experiment as plans
    from assay.studies.reproduce.published import SEEDS

    for kind, name, known in (("experiment", experiment, EXPERIMENTS), ("step", step, STEPS)):
        if name not in known:
            raise InputError(unknown(kind, name, known))
    for option, given in (("--methods", methods), ("--ladder", ladder), ("--shallow", shallow), ("--lambdas", lambdas)):
        if given and option not in STEPS[step]:
            raise expected(f"options that '{step}' uses", given=option, do="leave it out, or run its own step")
    if step == "recorded":
        _show_recorded(records, out)
    if gpu is not None:
        chosen_device(f"cuda:{gpu}")  # a missing GPU is said before anything runs
    used = tuple(seeds or SEEDS)
    length = plans.EPOCHS if epochs is None else epochs
    penalised = plans.PENALTY_EPOCHS if epochs is None else epochs
    if step == "methods":
        plan = plans.methods_plan(arch, methods or plans.METHODS, used, length)
    elif step == "frozen":
        plan = plans.frozen_plan(arch, used, length, ladder=ladder, shallow=shallow)
    elif step == "penalty":
        plan = plans.penalty_plan(arch, lambdas or plans.LAMBDAS, used, penalised)
    else:
        plan = plans.whole_plan(arch, used, length, penalised)
    if data is not None:
        plans.make_cells((), data=str(data))  # missing files are said before a folder is made
    with session(out=out, workers=workers, data=data, engine=engine, address=address, store=store) as at_work:
        run, made = plans.reproduce(
            plan, data=at_work.settings.data, artifacts=str(artifacts) if artifacts else None, place=at_work.place,
            command=at_work.command, device=None if gpu is None else f"cuda:{gpu}",
        )
    place = at_work.folder_of(run)
    (place / "records").mkdir(parents=True, exist_ok=True)
    for record in made:
        text = json.dumps(record, indent=1) + "\n"
        (place / "records" / f"{record['name']}.json").write_text(text, encoding="utf-8")
    finish(run, place)


def _show_recorded(records: Path | None, out: Path | None) -> None:
    """The verdicts of trainings made before, on the terminal and, if asked for, as a page."""
    from assay.cli.terminal.common import console
    from assay.cli.terminal.voice import say_run, say_table
    from assay.reports import save_report
    from assay.studies.reproduce.recorded import recorded

    run = recorded(records)
    page = save_report(run, out) / "index.html" if out is not None else None
    say_run(run, page)
    console().print()
    say_table(run.tables[0])
    raise typer.Exit(run.verdict.exit_code)
