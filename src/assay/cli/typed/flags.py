"""Commands whose help shows a flag as a flag."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class PlainFlags:
    """Help that shows a flag as a flag: a yes-or-no option takes no value, so it shows no type."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
            elif param.metavar is None and getattr(param, "multiple", False):
                param.metavar = "<str> ..."
        return params


class Command(PlainFlags, TyperCommand):
    """One command."""


class CommandGroup(PlainFlags, TyperGroup):
    """Commands under one name."""
