"""The command line as a page, read from the same objects that parse it."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import typer

from assay.cli import _app

EXIT_CODES = """Exit codes: 0 every claim holds, 1 a claim fails, 2 usage, 3 undecided, 4 something crashed; 130 after
Ctrl-C, 141 when nobody reads the output any more."""


def commands_page() -> str:
    """Every command with its arguments and options."""
    parts = ["# Command line", "", EXIT_CODES, "", "| command | answers |", "|---|---|"]
    found = list(commands())
    parts += [f"| [`{name}`](#{name.replace(' ', '-')}) | {_first(command)} |" for name, command in found]
    for name, command in found:
        parts += ["", f"## {name} {{#{name.replace(' ', '-')}}}", "", *_described(name, command)]
    return "\n".join([*parts, ""])


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, by the words one types."""
    yield from _walk("assay", typer.main.get_command(_app()))


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, each in inner.items():
        if not each.hidden:
            yield from _walk(f"{name} {word}", each)


def _described(name: str, command: Any) -> list[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    arguments = [param for param in command.get_params(context) if param.param_type_name == "argument"]
    options = [param for param in command.get_params(context) if param.param_type_name == "option"]
    kinds = typing.get_type_hints(command.callback)
    usage = " ".join([name, *(_shown(param) for param in arguments), "[OPTIONS]"])
    lines = ["```text", usage, "```", "", (command.help or "").split("\f")[0].strip(), ""]
    if arguments:
        lines += ["| argument | meaning |", "|---|---|"]
        lines += [f"| `{_shown(param)}` | {_cell(param.help)} |" for param in arguments]
        lines += [""]
    lines += ["| option | value | default | meaning |", "|---|---|---|---|"]
    for param in options:
        flags = ", ".join(f"`{flag}`" for flag in [*param.opts, *param.secondary_opts])
        value = "" if param.is_flag else f"`{_kind(kinds.get(param.name))}`"
        lines.append(f"| {flags} | {value} | {_default(param)} | {_cell(param.help)} |")
    return lines


def _shown(param: Any) -> str:
    word = (param.metavar or param.name or "").upper().strip("[]")
    word = f"{word}..." if param.nargs == -1 and not word.endswith("...") else word
    return word if param.required else f"[{word}]"


def _kind(hint: Any) -> str:
    """The type of a value in a word; None only says that the option may be left out."""
    inner = [each for each in typing.get_args(hint) if each is not type(None)]
    if typing.get_origin(hint) is list:
        return f"{_kind(inner[0])} ..."
    if inner:
        return " or ".join(_kind(each) for each in inner)
    words = {"int": "number", "float": "number", "Path": "path"}
    return words.get(getattr(hint, "__name__", ""), "text")


def _default(param: Any) -> str:
    nothing = param.default in (None, False, (), []) or callable(param.default)
    return "" if nothing else f"`{param.default}`"


def _first(command: Any) -> str:
    return _cell((command.help or "").strip().split("\n")[0])


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")
