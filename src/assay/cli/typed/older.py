"""Flags of the original project, which its users will type: understood, with the new spelling told once."""

from __future__ import annotations

import re
import sys
from typing import Any

from assay.cli.typed.flags import Command
from assay.errors import InputError

BUDGETS = {"--quick": "quick", "--intermediate": "standard", "--full": "full"}
FLAGS = (*BUDGETS, "--track", "-t", "--list", "--export")


class VerifyCommand(Command):
    """``assay verify`` that also takes --quick, --intermediate, --full, --track and -t."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, translated(args))


def spelt_out(args: list[str]) -> list[str]:
    """The arguments of ``assay`` with the command that the original did not have: ``--list``, ``--quick -t 2``."""
    if not args or not _is_old(args[0]):
        return args
    return ["tracks"] if "--list" in args else ["verify", *args]


def translated(args: list[str]) -> list[str]:
    """The arguments of ``assay verify`` in its own spelling; what changed is told on stderr.

    >>> translated(["--track", "2", "--quick"])
    ['2', '--budget', 'quick']
    """
    new: list[str] = []
    told: list[str] = []
    for arg in args:
        if arg in BUDGETS:
            new += ["--budget", BUDGETS[arg]]
            told.append(f"{arg} is now --budget {BUDGETS[arg]}")
        elif track := re.fullmatch(r"(?:--track|-t)(?:=?(.+))?", arg):
            new += [track[1]] if track[1] else []
            told.append("--track is not needed: assay verify 1 2")
        elif arg == "--list":
            raise InputError("--list is a command of its own now; run: assay tracks")
        elif re.fullmatch(r"--export(=.*)?", arg):
            raise InputError(
                "--export is not needed: every run leaves run.json, report.md and index.html in its folder; "
                "run: assay verify --out FOLDER, then for other formats: assay report FOLDER --format csv"
            )
        else:
            new.append(arg)
    if told:
        sys.stderr.write("".join(f"assay: {line}\n" for line in dict.fromkeys(told)))
    return new


def _is_old(arg: str) -> bool:
    return arg in FLAGS or arg.startswith(("--track=", "--export="))
