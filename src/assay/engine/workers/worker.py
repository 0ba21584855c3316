"""What runs inside a worker process: one cell at a time, one torch thread, every error turned into data.

Cells come and outcomes go as lines of JSON over one socket: nothing is pickled, and a worker that is killed can damage
nobody's channel but its own.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
import types
from typing import Any

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
IN_WORKER = "_ASSAY_IN_WORKER"
"""Set to the driver's script inside workers, so that a script without a main guard cannot start workers of workers."""


def main(descriptor: int) -> None:
    """Serve cells until the driver hangs up."""
    os.set_inheritable(descriptor, False)
    prepare()
    with socket.socket(fileno=descriptor) as channel, channel.makefile("rwb") as lines:
        for line in lines:
            cell = json.loads(line)
            outcome = run_cell(cell["target"], cell["payload"])
            lines.write(json.dumps(outcome).encode() + b"\n")
            lines.flush()


def prepare() -> None:
    """Set a fresh worker up: one thread, deaf to Ctrl-C (the driver decides), dead when the driver dies."""
    import faulthandler

    for variable in THREAD_VARIABLES:
        os.environ[variable] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    if sys.platform == "linux":
        import ctypes

        parent = os.getppid()
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os.kill(os.getpid(), signal.SIGKILL)


def run_cell(target: str, payload: dict[str, Any]) -> dict[str, Any]:
    """The outcome of one cell as data: ``record`` on success, else ``kind``, ``message`` and ``traceback``."""
    start = time.perf_counter()
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            module, _, function = target.partition(":")
            if "__main__" in (module, payload.get("module")):
                _load_main_script()
            call = getattr(importlib.import_module(module), function)
            if "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(1)
            record = call(payload)
            # Through JSON once: what is reported now is exactly what a resumed run will read back.
            record = json.loads(json.dumps(record))
        if not isinstance(record, dict):
            raise TypeError(f"expected a record (dict of JSON values) from {target}; given {type(record).__name__}")
        return {"record": record, "seconds": time.perf_counter() - start}
    except Exception as error:
        trace = without_paths(traceback.format_exc())
        if tail := printed.getvalue()[-2000:]:
            trace += f"\nprinted before the error:\n{tail}"
        return {
            "kind": type(error).__name__,
            "message": str(error) or type(error).__name__,
            "traceback": trace,
            "seconds": time.perf_counter() - start,
        }


def without_paths(text: str) -> str:
    """Text with files named as they are imported: the same on every machine, and saying nothing about this one."""
    for folder in sorted({path for path in sys.path if len(path) > 1}, key=len, reverse=True):
        text = text.replace(f'File "{folder.rstrip(os.sep)}{os.sep}', 'File "')
    return text


def _load_main_script() -> None:
    """Let cells name things defined in the user's own script, as ``multiprocessing`` does."""
    script = os.environ.get(IN_WORKER, "")
    if not script or getattr(sys.modules["__main__"], "__file__", None) == script:
        return
    module = types.ModuleType("__mp_main__")
    module.__file__ = sys.argv[0] = script
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    module.__dict__.update(runpy.run_path(script, run_name="__mp_main__"))
