"""What a command stands on: three open standard streams, and signals that all end it the way Ctrl-C does."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType

stopped_by: int = signal.SIGINT
"""The signal that ended the command, if one did; its exit code is 128 more, as shells have it."""


def prepare() -> None:
    """Open what is closed and listen to what ends us."""
    _open_streams()
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # Somebody who has it ignored (nohup) or handled knows why; and only a main thread may set a handler.
        with contextlib.suppress(ValueError):
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    global stopped_by
    stopped_by = number
    raise KeyboardInterrupt


def _open_streams() -> None:
    """Under ``>&-`` the next file opened, perhaps a cell's, would get the number of the closed stream and our output.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", errors="replace", closefd=False))
