"""Options that take several values after one flag: ``--rules backprop eqprop``, as well as one flag per value."""

from __future__ import annotations

from typing import Any

from assay.cli.typed.flags import Command
from assay.errors import expected

SEVERAL = ("--rules", "--models", "--set", "--use")


class ManyValues(Command):
    """A command whose options in SEVERAL take all values up to the next option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args))


def spread(args: list[str], *, several: tuple[str, ...] = SEVERAL) -> list[str]:
    """Arguments with a flag repeated before each of its values; a flag without any is an InputError.

    >>> spread(["digits", "--rules", "backprop", "eqprop", "--seeds", "3"])
    ['digits', '--rules', 'backprop', '--rules', 'eqprop', '--seeds', '3']
    """
    result: list[str] = []
    flag: str | None = None
    waiting = False
    for arg in args:
        if arg.startswith("-") and arg != "-" and not (flag is not None and _is_number(arg)):
            if waiting:
                raise expected(f"at least one value after {flag}", given=arg, do=f"give values, or leave out {flag}")
            flag = arg if arg in several else None
            waiting = flag is not None
            if flag is None:
                result.append(arg)
            continue
        result += [flag, arg] if flag is not None else [arg]
        waiting = False
    return [*result, flag] if waiting and flag is not None else result


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
