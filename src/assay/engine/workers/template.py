"""The clean process behind a worker: it forks a child for every cell, and no cell's code ever runs in itself.

What a cell does to its process (environment variables, patched modules, the working folder, generators, threads) ends
with the child. Processes the cell started end with it too: the template is the reaper of all its descendants.

Before the next child the template imports what earlier ones were seen to import; but only Assay itself and the
packages it stands on, whose import changes nothing. Code of others is imported in each child anew. It runs no kernel
and has one thread, so that forking is safe.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import json
import os
import select
import signal
import socket
import sys
from functools import cache
from typing import Any, NoReturn

from assay.engine.workers import family
from assay.engine.workers.worker import prepare, run_cell
from assay.environment import of_cell

CLEAN = ("assay", "torch", "numpy", "scipy", "sklearn", "pydantic", "safetensors", "gymnasium", "joblib", "sympy")
"""Packages that a template may import for its children."""
HEAVY = ("torch", "sklearn", "gymnasium")
"""Those that make forking dear: only a template one of whose cells used them imports them, and is a heavy one then."""
TRAINING = ("numpy", "torch", "torch._dynamo", "sklearn.datasets")
"""What a training needs: imported before the first child of a kind known to train, not in it and then here again."""
TRAINS = ("assay.tracks.conditions.", "assay.tracks.credit.", "assay.tracks.dynamics.", "assay.tracks.learning.")
"""Rooms whose tracks train; a track elsewhere may do without, and then nothing is imported for it."""
COLD = "_ASSAY_COLD_TEMPLATE"
"""Set in a template that must not import ahead, because an import left a thread behind."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

can_fork = sys.platform == "linux"


def main(descriptor: int, *, forking: bool = True, heavy: bool = False) -> None:
    """Serve cells until the driver hangs up; without ``forking``, one cell in this very process."""
    os.set_inheritable(descriptor, False)
    prepare()
    channel = socket.socket(fileno=descriptor)
    if forking and can_fork:
        _Template(channel, heavy).serve()
    else:
        _die_with_parent()
        if can_fork:
            _prctl(PR_SET_CHILD_SUBREAPER, 1)
        if line := channel.makefile("rb").readline():
            _answer(channel.fileno(), json.loads(line), os.getpid())
            family.end(family.descendants(os.getpid()))


class _Template:
    def __init__(self, channel: socket.socket, heavy: bool) -> None:
        self._channel = channel
        self._received = bytearray()
        self._heavy = heavy
        self._seen: list[str] = []
        """What children imported and this process did not yet: of no use until there is another cell."""
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        if heavy and COLD not in os.environ:
            self._import(["numpy", "torch"])
        of_cell()  # remembered for the children
        gc.collect()
        gc.freeze()  # children share these pages only as long as no collector writes to them

    def serve(self) -> None:
        while (line := self._line()) is not None:
            self._run(json.loads(line))

    def _line(self) -> bytes | None:
        while (end := self._received.find(b"\n")) < 0:
            data = self._channel.recv(1 << 16)
            if not data:
                return None
            self._received += data
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def _run(self, job: dict[str, Any]) -> None:
        """Fork a child for one cell, pass its reply on, and end everything it left."""
        self._import(self._seen)
        if str(job["payload"].get("module", "")).startswith(TRAINS):
            self._import([*TRAINING])
            self._heavy = self._heavy or COLD not in os.environ
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._channel.close()
            _be_child(writer, job)
        os.close(writer)
        reply, status = self._await(reader, child)
        os.close(reader)
        message = _checked(reply, job)
        if message is None and status is not None:
            message = {"key": job["key"], "nonce": job["nonce"], "died": os.waitstatus_to_exitcode(status)}
        if message is None:
            message = {"key": job["key"], "nonce": job["nonce"], "foreign": reply.decode(errors="replace")[:200]}
        loaded = message.pop("loaded", [])
        message["heavy"] = self._heavy = self._heavy or any(name in HEAVY for name in loaded)
        with contextlib.suppress(OSError):
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        self._clean(child if status is None else None)
        self._seen = loaded

    def _await(self, reader: int, child: int) -> tuple[bytes, int | None]:
        """The reply of a child, and its exit status if it ended before it had replied."""
        reply = bytearray()
        handle = os.pidfd_open(child)
        self._poll.register(reader, select.POLLIN)
        self._poll.register(handle, select.POLLIN)
        try:
            while True:
                ready = {number for number, _ in self._poll.poll()}
                if self._channel.fileno() in ready:  # the driver hung up, or broke the order: nobody waits for this
                    self._clean(child)
                    os._exit(0)
                if reader in ready:
                    data = os.read(reader, 1 << 20)
                    reply += data
                    if data.endswith(b"\n"):
                        return bytes(reply), None
                    if data:
                        continue
                    self._poll.unregister(reader)
                if handle in ready:
                    return bytes(reply), os.waitpid(child, 0)[1]
        finally:
            os.close(handle)
            for number in (reader, handle):
                with contextlib.suppress(KeyError):
                    self._poll.unregister(number)

    def _clean(self, child: int | None) -> None:
        """End the child and all it started: orphans become children of this process, so none is left when it has none.
        """
        if child is not None:
            family.end_group(child)
            os.waitpid(child, 0)
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                family.end(family.descendants(os.getpid()))
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(-1, 0)

    def _import(self, names: list[str]) -> None:
        """Import what children need, so that later ones begin with it."""
        fresh = [name for name in names if name not in sys.modules and name.partition(".")[0] in CLEAN]
        if not fresh or COLD in os.environ:
            return
        for name in fresh:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        if sum(1 for _ in os.scandir("/proc/self/task")) > 1:
            os.environ[COLD] = "1"
            os.set_inheritable(self._channel.fileno(), True)
            os.execv(sys.executable, sys.orig_argv)
        gc.collect()
        gc.freeze()


def _be_child(writer: int, job: dict[str, Any]) -> NoReturn:
    """Run the cell, reply, and leave without any farewell: there is nothing here that must be put in order."""
    try:
        os.setpgid(0, 0)
        _die_with_parent()
        gc.enable()
        _answer(writer, job, os.getpid())
    finally:
        os._exit(0)


def _answer(channel: int, job: dict[str, Any], pid: int) -> None:
    """Run the cell of a job and write its reply, which names the cell; a process the cell forked never replies."""
    before = len(sys.modules)
    outcome = run_cell(job["target"], job["payload"], key=job["key"])
    if os.getpid() != pid:
        os._exit(0)
    # Looking at a module's name writes to its page, which then is no longer shared: only when there is something new.
    new = itertools.islice(sys.modules, before, None) if len(sys.modules) != before else ()
    loaded = [name for name in new if name.partition(".")[0] in CLEAN]
    packed = {"key": job["key"], "nonce": job["nonce"], **outcome, "environment": of_cell(), "loaded": loaded}
    data = json.dumps(packed).encode() + b"\n"
    while data:
        data = data[os.write(channel, data):]


def _checked(reply: bytes, job: dict[str, Any]) -> dict[str, Any] | None:
    """A reply that is whole and about this cell; None for anything else."""
    try:
        message: dict[str, Any] = json.loads(reply)
        return message if (message["key"], message["nonce"]) == (job["key"], job["nonce"]) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _die_with_parent() -> None:
    if not can_fork:
        return
    parent = os.getppid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os.kill(os.getpid(), signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    _library().prctl(option, value)


@cache
def _library() -> Any:
    import ctypes

    return ctypes.CDLL(None)
