"""``assay data``: fetch datasets and see which are here."""

from __future__ import annotations

from typing import Annotated

import typer

from assay.cli.typed.options import Data

data_app = typer.Typer(no_args_is_help=True, help="Fetch datasets and check the ones that are here.")


@data_app.command("fetch")
def fetch_command(
    names: Annotated[list[str], typer.Argument(help="mnist, fashion-mnist, cifar10.")],
    data: Data = None,
    mirror: Annotated[str | None, typer.Option(help="Another address that has the same files.")] = None,
) -> None:
    """Download datasets; a broken download goes on where it stopped, every file is checked by its sha256."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from assay.cli.terminal.common import console
    from assay.tasks.fetch import fetch
    from assay.tasks.files import find_dataset

    screen = console()
    for name in names:
        find_dataset(name)
    for name in names:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
        with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bars:
            rows: dict[str, object] = {}

            def show(file: str, received: int, total: int | None, rows: dict[str, object] = rows) -> None:
                if file not in rows:
                    rows[file] = bars.add_task(file, total=total)
                bars.update(rows[file], completed=received, total=total)  # type: ignore[arg-type]

            paths = fetch(name, root=data, base_url=mirror, progress=show)
        screen.print(f"{name}: {len(paths)} files, all hashes right, under {paths[0].parent}", markup=False)


@data_app.command("status")
def status_command(
    data: Data = None,
) -> None:
    """Every file of every dataset: here and whole, missing, or damaged. Exit code 1 if a file is damaged."""
    from assay.cli.terminal.common import console
    from assay.tasks.fetch import status
    from assay.tasks.files import data_root

    screen = console()
    screen.print(f"datasets under {data_root(data)}", markup=False)
    found = status(root=data)
    for row in found:
        rest = f"  {row.reason}" if row.reason else ""
        screen.print(f"{row.state:8s} {row.dataset:14s} {row.file}{rest}", markup=False)
    raise typer.Exit(1 if any(row.state == "damaged" for row in found) else 0)
