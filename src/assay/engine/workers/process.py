"""One worker process seen from its keeper: start a cell, wait for its outcome, stop it when it hangs or eats memory.

The local executor keeps several; on Ray each Ray worker keeps one. So a crash kills one cell and nothing else, and both
engines tell the same story about it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from assay.engine.workers.worker import IN_WORKER, THREAD_VARIABLES, without_paths
from assay.protocols import Cell, CellResult
from assay.results import Failure

LOOK_SECONDS = 0.1
"""How often deadlines and memory are looked at; a cell over its memory limit may grow for this long."""
LOST_SIGNALS = (signal.SIGKILL, signal.SIGTERM)
"""Signals that come from outside (an operator, a scheduler, the kernel out of memory): no fault of the cell's code."""


class WorkerProcess:
    """A worker process and the cell it runs, if any."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}
        environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        environment[IN_WORKER] = _main_script() or os.environ.get(IN_WORKER, "")
        with theirs:
            program = f"from assay.engine.workers.worker import main; main({theirs.fileno()})"
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", program, *sys.argv[1:]],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output,
                env=environment, start_new_session=True,
            )
        ours.setblocking(False)
        self._channel = ours
        self._received = bytearray()
        self.cell: Cell | None = None
        self._started = 0.0
        self._looked = 0.0

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """For ``multiprocessing.connection.wait``: readable when there may be an outcome."""
        return self._channel.fileno()

    def start(self, cell: Cell) -> None:
        """Hand a cell over; the time it may take counts from now."""
        self.cell = cell
        self._started = self._looked = time.monotonic()
        line = json.dumps({"target": cell.target, "payload": dict(cell.payload)}).encode() + b"\n"
        self._channel.setblocking(True)
        with contextlib.suppress(OSError):  # a worker that died while idle: poll() tells
            self._channel.sendall(line)
        self._channel.setblocking(False)

    def poll(self) -> dict[str, Any] | None:
        """The outcome of the running cell, or None while it runs.

        Besides what ``run_cell`` returns, ``lost`` says that the worker was killed from outside, through no fault of
        the cell's code as far as anyone can tell.
        """
        if self.cell is None:
            return None
        hung_up = self._receive()
        if (end := self._received.find(b"\n")) >= 0:
            outcome: dict[str, Any] = json.loads(self._received[:end])
            self._received.clear()
            self.cell = None
            return outcome
        if hung_up or self._process.poll() is not None:
            return self._dead()
        now = time.monotonic()
        if now - self._started > self.cell.timeout:
            return self._stopped("Timeout", f"no result within {self.cell.timeout:g} s; the worker was stopped")
        if self.cell.memory is not None and now - self._looked >= LOOK_SECONDS / 2:
            self._looked = now
            if (used := self.memory()) > self.cell.memory:
                return self._stopped("MemoryLimit", (
                    f"used {used / 2**20:.0f} MiB, more than its limit of {self.cell.memory / 2**20:.0f} MiB; "
                    "the worker was stopped"
                ))
        return None

    def memory(self) -> int:
        """Resident bytes of the worker; 0 where the system does not say (only Linux does here)."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        except (OSError, ValueError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """End the worker and everything it started, at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._channel.close()
        self._output.close()

    def _receive(self) -> bool:
        """Take what has arrived; True when the worker hung up."""
        while True:
            try:
                data = self._channel.recv(1 << 16)
            except BlockingIOError:
                return False
            except OSError:
                return True
            if not data:
                return True
            self._received += data

    def _dead(self) -> dict[str, Any]:
        try:
            code = self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:  # it closed the channel and lives on
            self._process.kill()
            code = self._process.wait()
        how = f"killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"ended with code {code}"
        message = f"the worker process was {how} while running this cell"
        if code == -signal.SIGKILL:
            message += "; someone killed it, or the machine ran out of memory"
        return self._outcome("WorkerDied", message, lost=-code in LOST_SIGNALS)

    def _stopped(self, kind: str, message: str) -> dict[str, Any]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        return self._outcome(kind, message)

    def _outcome(self, kind: str, message: str, *, lost: bool = False) -> dict[str, Any]:
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(size - 4000, 0))
        said = without_paths(self._output.read().decode(errors="replace").strip())
        self.cell = None
        seconds = time.monotonic() - self._started
        return {"kind": kind, "message": message, "traceback": said, "seconds": seconds, "lost": lost}


def result_of(cell: Cell, outcome: dict[str, Any]) -> CellResult:
    """An outcome as the result of its cell."""
    if "record" in outcome:
        return CellResult(cell, outcome["record"], None, outcome["seconds"])
    failure = Failure(
        label=cell.label, kind=outcome["kind"], message=outcome["message"], traceback=outcome.get("traceback", "")
    )
    return CellResult(cell, None, failure, outcome["seconds"])


def _main_script() -> str | None:
    """The script this process was started with, when it was ``python script.py``; cells may name things inside it."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if file is None or getattr(main, "__spec__", None) is not None or not file.endswith(".py"):
        return None
    return str(Path(file).resolve())
