"""The shell lines of the pages, parsed by the command line's own parser: an unknown command or option is an error."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import typer

from assay.cli import _app

ROOT = Path(__file__).resolve().parents[2]
OTHERS = {"pip", "npm", "cd", "git", "apt", "sbatch", "pytest", "export", "scp", "ssh", "mkdir", "head"}
"""Programs of others, which this project cannot parse."""


def lines_of(code: str) -> list[str]:
    """The commands of a block: comments gone, continued lines joined.

    >>> lines_of("# first\\nassay tracks   # the claims\\nassay verify 2 \\\\\\n  --seeds 3\\n")
    ['assay tracks', 'assay verify 2 --seeds 3']
    """
    joined = re.sub(r"\\\n\s*", "", code)
    lines = (re.sub(r"(^|\s+)#.*", "", line).strip() for line in joined.splitlines())
    return [line for line in lines if line]


def parse(line: str) -> None:
    """Read one line as a shell would and hand each command to whoever understands it; raise if nobody does."""
    for part in re.split(r"\s*(?:&&|\|\||;|\|)\s*", line):
        words = shlex.split(re.sub(r"\s+[<>].*", "", part).removesuffix("&"))
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if words:
            _program(words)


def _program(words: list[str]) -> None:
    program, rest = Path(words[0]).name, words[1:]
    if program == "assay":
        _assay(rest)
    elif program in ("python", "python3"):
        _python(rest)
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M)
        if unknown := set(rest) - set(targets):
            raise ValueError(f"make has no target {', '.join(sorted(unknown))}")
    elif program not in OTHERS:
        raise ValueError(f"nobody here knows the program {program}")


def _assay(words: list[str]) -> None:
    command: Any = typer.main.get_command(_app())
    name = "assay"
    while getattr(command, "commands", None) is not None:
        if not words or words[0].startswith("-"):
            break
        if words[0] not in command.commands:
            raise ValueError(f"{name} has no command {words[0]}")
        name, command, words = f"{name} {words[0]}", command.commands[words[0]], words[1:]
    if words in (["--help"], ["-h"], ["--version"]):
        return
    command.make_context(name, list(words))


def _python(words: list[str]) -> None:
    if not words or words[0] == "-c":
        return
    module = words[1] if words[0] == "-m" else ""
    if module and importlib.util.find_spec(module.split(".")[0]) is None and not (ROOT / module.split(".")[0]).is_dir():
        raise ValueError(f"no module {module}")
    if not module and words[0].startswith(("docs/", "benchmarks/", "tests/")) and not (ROOT / words[0]).is_file():
        raise ValueError(f"no file {words[0]}")
