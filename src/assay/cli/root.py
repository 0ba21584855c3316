"""The root of the command line: ``assay --version``, and endings that the framework would have in its own way."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup


class Interrupted(Exception):
    """Ctrl-C inside a command; the framework would end it without a word."""


class NobodyReads(Exception):
    """The reader of our output has gone; the framework would end with 1, which means FAIL here."""


class PlainFlags:
    """Help that shows a flag as a flag: a yes-or-no option takes no value, so it shows no type."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class Command(PlainFlags, TyperCommand):
    """One command."""


class Group(PlainFlags, TyperGroup):
    """Commands under one name."""


class Commands(Group):
    """All commands; hands interruptions and broken pipes to ``assay.cli.main`` under names the framework ignores."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None
        except BrokenPipeError:
            raise NobodyReads from None


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
