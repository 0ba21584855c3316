"""Python commands in forks of one process that has imported torch and SciPy: real processes, at a tenth of the price.

A test that asks what is imported, or how a process starts, must start one of its own.
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
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

IMPORTED = (
    "torch", "scipy.stats", "pydantic", "typer", "rich.table", "jinja2", "assay.reports", "assay.studies.verification",
)
"""What every command imports; no track, plugin or setting is read before a command asks for it."""


class Warm:
    """Runs ``python WORDS`` as ``subprocess.run`` does, in a fork of a process that is already awake."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            program = f"import runpy; runpy.run_path({__file__!r})['serve']({theirs.fileno()})"
            kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            self._server = subprocess.Popen(
                [sys.executable, "-P", "-c", program], env={**kept, "OMP_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            )

    def run(
        self, words: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None,
        timeout: float = 300.0,
    ) -> subprocess.CompletedProcess[str]:
        """``words`` are what follows ``python``: ``-m module``, ``-c code`` or a file, and its arguments."""
        variables = dict(os.environ if env is None else env)
        job = json.dumps({"words": list(words), "cwd": str(cwd or Path.cwd()), "environment": variables}).encode()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            socket.send_fds(self._channel, [len(job).to_bytes(8)], [out.fileno(), err.fileno()])
            self._channel.sendall(job)
            self._channel.settimeout(timeout)
            reply = self._channel.recv(64)
            assert reply, "the warm process has ended"
            said = [_read(stream.fileno()) for stream in (out, err)]
        return subprocess.CompletedProcess(list(words), int(reply), *said)

    def stop(self) -> None:
        self._channel.close()
        self._server.kill()
        self._server.wait()


def serve(descriptor: int) -> None:
    """Fork for every job until nobody asks any more."""
    import importlib

    for name in IMPORTED:
        importlib.import_module(name)
    from assay.cli import _app
    from assay.engine import fingerprint

    _app()  # every command, wherever it stands
    fingerprint(["assay", "assay.studies.verification"])  # the imports of a file are remembered by its content
    channel = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    while True:
        length, descriptors, _, _ = socket.recv_fds(channel, 8, 2)
        if not length:
            return
        data = bytearray()
        while len(data) < int.from_bytes(length):
            data += channel.recv(1 << 20)
        child = os.fork()
        if child == 0:
            channel.close()
            _be(json.loads(data), *descriptors)
        for number in descriptors:
            os.close(number)
        channel.sendall(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _be(job: dict[str, Any], out: int, err: int) -> NoReturn:
    """Become the process that ``python WORDS`` would have been."""
    code = 1
    try:
        for source, target in ((out, 1), (err, 2)):
            os.dup2(source, target)
            os.close(source)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(job["environment"])
        os.chdir(job["cwd"])
        code = _run(job["words"])
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            import atexit

            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


def _run(words: list[str]) -> int:
    """The exit code of a program, as the interpreter finds it."""
    import runpy

    ahead = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    try:
        if words[0] == "-m":
            sys.argv, sys.path[:0] = words[1:], [str(Path.cwd()), *ahead]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv, sys.path[:0] = ["-c", *words[2:]], ["", *ahead]
            exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv, sys.path[:0] = words, [str(Path(words[0]).resolve().parent), *ahead]
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        sys.stderr.write(f"{left.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _read(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode()
