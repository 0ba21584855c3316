"""``assay tune``: choose settings on the validation split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.typed.options import Data, Device


def tune_command(
    task: Annotated[str, typer.Argument(help="The task: a name such as digits, or pkg.module:name.")],
    rule: Annotated[str, typer.Option(help="The rule to tune: a name, or pkg.module:name.")] = "eqprop",
    model: Annotated[str, typer.Option(help="The model: mlp, conv, or pkg.module:name.")] = "mlp",
    *,
    trials: Annotated[int, typer.Option(help="Settings to try; give every rule the same number.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of split, weights and search.")] = 1000,
    storage: Annotated[str | None, typer.Option(help="Optuna storage URL (default: assay-runs/tuning.sqlite).")] = None,
    train_items: Annotated[int | None, typer.Option(help="Search on this many training items.")] = None,
    search: Annotated[list[str] | None, typer.Option(help="Search only this setting; may be repeated.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Fixed during the search: --set epochs=5.")] = None,
    use: Annotated[list[str] | None, typer.Option(help="Replace a setting in the outcome: --use epochs=12.")] = None,
    data: Data = None,
    device: Device = None,
    save: Annotated[Path | None, typer.Option(help="Settings file to write the outcome into.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for a report of the search.")] = None,
) -> None:
    """Search settings of a rule on a task by its validation score; the test set is out of reach. Resumes by itself."""
    from assay.cli.learning.bench import assignments
    from assay.cli.terminal.common import console, see_this_folder
    from assay.studies.tune import save_settings, tune, tuning_run

    see_this_folder()
    found = tune(
        task, rule=rule, model=model, trials=trials, seed=seed, storage=storage, train_items=train_items,
        search=search, settings=assignments(set_), use=assignments(use), data=data, device=device,
    )
    screen = console()
    trials_done = "1 trial" if len(found.trials) == 1 else f"{len(found.trials)} trials"
    screen.print(f"{found.arm} on {found.task}: best of {trials_done}, "
                 f"validation {found.told}", markup=False)
    for name, value in found.settings.as_record().items():
        weight = found.importance.get(name)
        share = f"   explains {weight:.0%}" if weight is not None else ""
        screen.print(f"  {name:15s} {value}{share}", markup=False)
    if save is not None:
        screen.print(f"settings written to {save_settings(save, [found])}", markup=False)
    if out is not None:
        from assay.reports import save_report

        save_report(tuning_run(found), out)
        screen.print(f"report written to {out / 'index.html'}", markup=False)
