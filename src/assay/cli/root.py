"""The root of the command line: ``assay --version``, and endings that the framework would have in its own way."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from assay.cli.typed.flags import CommandGroup
from assay.cli.typed.older import spelt_out


class Interrupted(Exception):
    """Ctrl-C inside a command; the framework would end it without a word."""


class Commands(CommandGroup):
    """All commands; hands interruptions to ``assay.cli.main`` under a name the framework ignores."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spelt_out(args))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None


def _show_version(asked: bool) -> None:
    if asked:
        import assay
        from assay_ml import DO_THIS, HOME, replaced, rivals

        typer.echo(f"assay {assay.__version__} (assay-ml) from {HOME}")
        if others := rivals():
            typer.echo(f"{', '.join(others)} installs a package named assay here too. {DO_THIS}", err=True)
        if files := replaced():
            typer.echo(f"{len(files)} files are not as installed, the first is {files[0]}. {DO_THIS}", err=True)
        raise typer.Exit


def root_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of ``assay`` itself, before any command."""
