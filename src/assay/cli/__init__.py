"""The command line: one file per command, each the same call as in Python with the same names and defaults.

Rooms as in ``assay --help``: ``claims/``, ``audits/``, ``learning/``, ``reading/``; ``typed/`` understands what was
typed, ``terminal/`` is all that is seen, ``session`` and ``finish`` begin and end what several commands do.

Nothing here imports torch before a command that needs it runs, so ``assay --help`` answers at once.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import typer

USAGE_ERROR = 2
CRASHED = 4
SIGNALLED = 128
NOBODY_READS = 141


def main() -> None:
    """Run the command line; the exit code is a verdict only if there is one.

    An error of the user is one line on stderr and 2. A crash is a traceback and 4, since Python's own 1 means FAIL
    here; an interruption is 130 (by SIGTERM 143, by SIGHUP 129), and output that nobody reads any more is 141, as
    shells have it.
    """
    from assay.cli.root import Interrupted
    from assay.cli.terminal import common, standing
    from assay.errors import AssayError

    standing.prepare()
    try:
        _app()()
    except AssayError as error:
        _leave(f"assay: {error}", USAGE_ERROR)
    except (Interrupted, KeyboardInterrupt):
        _leave("\nassay: stopped; finished cells, if any, are kept: the same command goes on from there",
               SIGNALLED + standing.stopped_by)
    except SystemExit as end:
        # Help, errors of usage and plain output are written by others, who end with 1 when nobody reads: FAIL here.
        if isinstance(end.__context__, BrokenPipeError):
            common.forget_reader()
        if common.reader_has_gone:
            raise SystemExit(NOBODY_READS) from None
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            common.forget_reader()
            _leave(f"assay: {error.strerror}: what was to be written is not whole; free some space", USAGE_ERROR)
        import traceback

        traceback.print_exc()
        _leave("assay: crashed, no verdict; the traceback says where", CRASHED)


def _leave(message: str, code: int) -> NoReturn:
    from assay.cli.terminal.common import clean

    sys.stderr.write(f"{_wrapped(clean(message))}\n")
    raise SystemExit(code) from None


def _wrapped(message: str) -> str:
    """A message as wide as the terminal; as it is when nobody looks."""
    import shutil
    import textwrap

    if not sys.stderr.isatty():
        return message
    width = max(40, shutil.get_terminal_size().columns)
    fill = textwrap.TextWrapper(width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False).fill
    return "\n".join(fill(line) for line in message.split("\n"))


def _app() -> typer.Typer:
    import typer

    from assay.cli.audits import credit, dependence, equilibrium, same, symmetry
    from assay.cli.claims import describe, init, plan, selftest, tracks, verify
    from assay.cli.learning import bench, data, reproduce, tune
    from assay.cli.reading import audit_run, compare, compare_evals, report, view
    from assay.cli.root import Commands, root_options
    from assay.cli.typed.flags import Command, CommandGroup
    from assay.cli.typed.many import ManyValues
    from assay.cli.typed.older import VerifyCommand

    def group(text: str) -> typer.Typer:
        return typer.Typer(
            cls=CommandGroup,
            help=text,
            no_args_is_help=True,
            add_completion=False,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
        )

    app = group("Tells how much of a claim about a neural network or a learning rule is true.")
    app.callback(cls=Commands, help=app.info.help)(root_options)
    app.command("verify", cls=VerifyCommand, rich_help_panel="Verify claims")(verify.verify_command)
    panels: dict[str, dict[str, Callable[..., Any]]] = {
        "Verify claims": {
            "init": init.init_command,
            "tracks": tracks.tracks_command,
            "describe": describe.describe_command,
            "plan": plan.plan_command,
            "selftest": selftest.selftest_command,
        },
        "Read results": {
            "report": report.report_command,
            "compare": compare.compare_command,
            "audit-run": audit_run.audit_run_command,
            "view": view.view_command,
        },
    }
    for panel, commands in panels.items():
        for name, command in commands.items():
            app.command(name, cls=Command, rich_help_panel=panel)(command)
    rules = "Compare learning rules"
    app.command("bench", cls=ManyValues, rich_help_panel=rules)(bench.bench_command)
    app.command("tune", cls=ManyValues, rich_help_panel=rules)(tune.tune_command)
    app.command("reproduce", cls=reproduce.ReproduceCommand, rich_help_panel=rules)(reproduce.reproduce_command)
    app.command("compare-evals", cls=ManyValues, rich_help_panel="Read results")(compare_evals.compare_evals_command)
    app.add_typer(data.data_app, name="data", rich_help_panel=rules)
    audit = group("Audit your own model: symmetry, same, dependence, credit, gradient, inference, stability, memory, "
                  "kernel.")
    audit.command("symmetry", cls=Command)(symmetry.audit_symmetry)
    audit.command("same", cls=Command)(same.audit_same)
    audit.command("dependence", cls=Command)(dependence.audit_dependence)
    audit.command("credit", cls=Command)(credit.audit_credit)
    audit.command("gradient", cls=Command)(equilibrium.audit_gradient)
    audit.command("inference", cls=Command)(equilibrium.audit_inference)
    audit.command("stability", cls=Command)(equilibrium.audit_stability)
    audit.command("memory", cls=Command)(equilibrium.audit_memory)
    audit.command("kernel", cls=Command)(equilibrium.audit_kernel)
    app.add_typer(audit, name="audit", rich_help_panel="Audit your own model")
    return app
