"""One worker process seen from its keeper: start a cell, wait for its outcome, stop it when it hangs or eats memory.

The local executor keeps several; on Ray each Ray worker keeps one. So a crash kills one cell and nothing else, and both
engines tell the same story about it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from assay.engine.workers import family
from assay.engine.workers.template import can_fork
from assay.engine.workers.worker import IN_WORKER, THREAD_VARIABLES, without_paths
from assay.protocols import Cell, CellResult
from assay.results import Failure

LOOK_SECONDS = 0.1
"""How often deadlines and memory are looked at; a cell over its memory limit may grow for this long."""
HANG_UP_SECONDS = 2.0
"""How long a template may take to end its cell before it is killed; it may be importing."""
LOST_SIGNALS = (signal.SIGKILL, signal.SIGTERM)
"""Signals that come from outside (an operator, a scheduler, the kernel out of memory): no fault of the cell's code."""


class WorkerProcess:
    """A worker process and the cell it runs, if any; ``forking`` it runs each cell in a child, else one and no more."""

    def __init__(self, *, forking: bool = True, heavy: bool = False) -> None:
        # A file and no pipe: nobody reads while a cell runs, and a full pipe would stop it.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            self._output.close()
            raise
        environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}
        # What this process searches, not what it was started with: the folder of a script is on it, and cells name it.
        environment["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        environment[IN_WORKER] = _main_script() or os.environ.get(IN_WORKER, "")
        environment.setdefault("PYTHONHASHSEED", "0")  # the order of a set of texts is the same in every worker
        environment.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")  # fewer pages: forks at half the price
        self.forking = forking and can_fork
        self.heavy = heavy
        with theirs:
            options = f"forking={forking}, heavy={heavy}"
            program = f"from assay.engine.workers.template import main; main({theirs.fileno()}, {options})"
            try:
                # -P: else the current folder comes first, and a file there called like a module takes its place.
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", program, *sys.argv[1:]],
                    pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output,
                    env=environment, start_new_session=True,
                )
            except OSError:  # too few descriptors, too little memory
                ours.close()
                self._output.close()
                raise
        ours.setblocking(False)
        self._channel = ours
        self._received = bytearray()
        self._nonce = ""
        self.cell: Cell | None = None
        self._started = 0.0
        self._looked = 0.0

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def reusable(self) -> bool:
        """Whether it may be given another cell."""
        return self.forking and self._process.poll() is None

    def fileno(self) -> int:
        """For ``multiprocessing.connection.wait``: readable when there may be an outcome."""
        return self._channel.fileno()

    def start(self, cell: Cell) -> None:
        """Hand a cell over; the time it may take counts from now."""
        self.cell = cell
        self._nonce = secrets.token_hex(8)
        self._started = self._looked = time.monotonic()
        if os.fstat(self._output.fileno()).st_size:  # what earlier cells printed is not this one's
            self._output.seek(0)
            self._output.truncate()
        job = {"key": cell.key, "nonce": self._nonce, "target": cell.target, "payload": dict(cell.payload)}
        self._channel.setblocking(True)  # a payload may be larger than the buffer, and would be cut where that is full
        with contextlib.suppress(OSError):  # a worker that died while idle: poll() tells
            self._channel.sendall(json.dumps(job).encode() + b"\n")
        self._channel.setblocking(False)

    def poll(self) -> dict[str, Any] | None:
        """The outcome of the running cell, or None while it runs.

        Besides what ``run_cell`` returns, ``lost`` says that the worker was killed from outside, through no fault of
        the cell's code as far as anyone can tell; ``heavy`` that the cell needs what only heavy workers have loaded.
        """
        if self.cell is None:
            return None
        hung_up = self._receive()
        if (end := self._received.find(b"\n")) >= 0:
            line = bytes(self._received[:end])
            self._received.clear()
            return self._replied(line)
        if hung_up or self._process.poll() is not None:
            return self._dead(self._end_code())
        return self._over_limits(time.monotonic())

    def memory(self, *, above: int = 0) -> int:
        """Bytes of the running cell and all it started; 0 where the system does not say (only Linux does here)."""
        below = family.descendants(self.pid)
        return family.memory_of(below if self.forking else [self.pid, *below], above=above)

    def stop(self) -> None:
        """End the worker and everything it started, at once."""
        self._end()
        self._channel.close()
        self._output.close()

    def _end(self) -> None:
        if self.forking and self._process.poll() is None:
            # A template that loses its driver ends the cell with all its children; it is never busy for long.
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=HANG_UP_SECONDS)
        if self._process.poll() is None:
            below = family.descendants(self.pid)
            family.end_group(self.pid)
            family.end(below)
        self._process.wait()

    def _replied(self, line: bytes) -> dict[str, Any]:
        """A reply if it is that of this cell, by key and nonce; an error if it is anything else."""
        assert self.cell is not None
        try:
            reply: dict[str, Any] = json.loads(line)
            fits = (reply.pop("key"), reply.pop("nonce")) == (self.cell.key, self._nonce)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            fits, reply = False, {}
        if not fits or "foreign" in reply:
            self._end()
            return self._outcome("ForeignReply", "the worker's reply was not that of this cell; it was not used")
        self.heavy = reply.get("heavy", self.heavy)  # a template learns from its cells
        if "died" in reply:
            return {**self._dead(reply["died"]), "heavy": reply["heavy"]}
        self.cell = None
        return reply

    def _over_limits(self, now: float) -> dict[str, Any] | None:
        assert self.cell is not None
        if now - self._started > self.cell.timeout:
            self._end()
            return self._outcome("Timeout", f"no result within {self.cell.timeout:g} s; the worker was stopped")
        if self.cell.memory is not None and now - self._looked >= LOOK_SECONDS / 2:
            self._looked = now
            if (used := self.memory(above=self.cell.memory)) > self.cell.memory:
                self._end()
                return self._outcome("MemoryLimit", (
                    f"used {used / 2**20:.0f} MiB, more than its limit of {self.cell.memory / 2**20:.0f} MiB; "
                    "the worker was stopped"
                ))
        return None

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

    def _end_code(self) -> int:
        try:
            return self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:  # it closed the channel and lives on
            self._end()
            return self._process.wait()

    def _dead(self, code: int) -> dict[str, Any]:
        how = f"killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"ended with code {code}"
        message = f"the worker process was {how} while running this cell"
        if code == -signal.SIGKILL:
            message += "; someone killed it, or the machine ran out of memory"
        return self._outcome("WorkerDied", message, lost=-code in LOST_SIGNALS)

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
        return CellResult(
            cell, outcome["record"], None, outcome["seconds"], environment=outcome.get("environment") or {}
        )
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
