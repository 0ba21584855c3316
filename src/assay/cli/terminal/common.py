"""What several commands share: the console, settings with plugins loaded, verdicts in words, signs and colour."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from assay.config import Settings
    from assay.results import Verdict

PIPED_WIDTH = 120
reader_has_gone = False
"""Whether the reader of our output has closed it: ``assay verify | head -3``."""

SIGNS: dict[str, tuple[str, str]] = {
    "PASS": ("✓", "green"),
    "PARTIAL": ("◐", "yellow"),
    "STUB": ("○", "bright_black"),
    "INCONCLUSIVE": ("?", "yellow"),
    "FAIL": ("✗", "red"),
    "ERROR": ("!", "magenta"),
}


@cache
def console() -> Console:
    """The console of this process; plain text when it is not a terminal, no colour under NO_COLOR."""
    from rich.console import Console
    from rich.segment import Segment

    class Patient(Console):
        """Goes on without a word when nobody reads any more: the run is kept, and ``main`` ends with 141.

        Whatever is printed is made inert here, last of all: names come from files of others and from tracebacks.
        """

        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(clean(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            self.quiet = True
            forget_reader()

        def _check_buffer(self) -> None:
            try:
                super()._check_buffer()
            except OSError:  # a full disk, a terminal that is gone: what cannot be said does not stop what is computed
                self.on_broken_pipe()

    piped = not sys.stdout.isatty()
    width = PIPED_WIDTH if piped and "COLUMNS" not in os.environ else None
    return Patient(highlight=False, soft_wrap=piped, width=width, no_color="NO_COLOR" in os.environ or None)


def clean(text: str) -> str:
    """``text`` without control characters, direction overrides and lone surrogates; line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs") else "\ufffd" for c in text)


def forget_reader() -> None:
    """Send what is still to be printed into nothing; Python would fail over it at its end."""
    global reader_has_gone
    reader_has_gone = True
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def sign(verdict: Verdict) -> str:
    """A verdict as sign and word in rich markup: never colour alone."""
    mark, colour = SIGNS[verdict]
    return f"[{colour}]{mark} {verdict.value}[/{colour}]"


def see_this_folder() -> None:
    """Let modules of the current folder be imported: a console script, unlike ``python -m``, does not look there."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def settings(**flags: Any) -> Settings:
    """Settings of this invocation, with the plugins they name imported into the registry."""
    from assay.config import load
    from assay.registry import registry

    loaded = load(**flags)
    if loaded.trust:
        from assay.engine.store.keys import trust

        trust(loaded.trust)
    if loaded.out is not None:
        from assay.reports.save import check_folder

        check_folder(loaded.out)
    if loaded.plugins:
        see_this_folder()
    for plugin in loaded.plugins:
        registry.load_module(plugin)
    return loaded
