"""``assay tracks``: the numbered claims that can be verified here."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def tracks_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the tracks: number, name, claim. A plugin that cannot be loaded is listed as ERROR."""
    from assay.cli.terminal.common import console, settings
    from assay.registry import registry

    settings()
    found = registry.ordered()
    if as_json:
        rows = [
            {"number": t.number, "also": t.also, "name": t.name, "title": t.title, "claim": t.claim, "kind": t.kind,
             "on_request": t.on_request}
            for t in found
        ]
        broken = [{"plugin": name, "error": failure.message} for name, failure in registry.broken.items()]
        typer.echo(json.dumps({"tracks": rows, "broken": broken}, indent=1))
    else:
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("#", justify="right")
        table.add_column("name", style="bold", no_wrap=True)
        table.add_column("claim", ratio=1)
        for track in found:
            table.add_row("/".join(map(str, track.numbers)), track.name, escape(track.claim))
        for name, failure in registry.broken.items():
            message = f"[magenta]ERROR[/magenta] {escape(failure.message)}"
            table.add_row("!", f"[magenta]{escape(name)}[/magenta]", message)
        console().print(table)
        if any(track.on_request for track in found):
            standing = " ".join(str(track.number) for track in registry.standing())
            console().print(f"assay verify runs {standing}; the others when named, or with --all")
    if registry.broken:
        raise typer.Exit(4)
