"""What runs inside a worker process: one cell, one torch thread, every error turned into data.

A worker is a clean template that forks a child for every cell (``template``): the child begins with the template's
memory, so that nothing is imported twice, and takes with it whatever the cell did to its process. Where processes
cannot be forked, or when a cell asks for it, a worker runs one cell itself and ends.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import random
import runpy
import signal
import sys
import time
import traceback
import types
from typing import Any

from assay.errors import printable

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
IN_WORKER = "_ASSAY_IN_WORKER"
"""Set to the driver's script inside workers, so that a script without a main guard cannot start workers of workers."""


def prepare() -> None:
    """Set a fresh worker up: one thread, deaf to Ctrl-C (the driver decides)."""
    import faulthandler

    for variable in THREAD_VARIABLES:
        os.environ[variable] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()


def run_cell(target: str, payload: dict[str, Any], *, key: str = "") -> dict[str, Any]:
    """The outcome of one cell as data: ``record`` on success, else ``kind``, ``message`` and ``traceback``.

    With a ``key`` the global generators of this process are set by it.
    """
    start = time.perf_counter()
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            module, _, function = target.partition(":")
            if "__main__" in (module, payload.get("module")):
                _load_main_script()
            call = getattr(importlib.import_module(module), function)
            _begin(key)
            record = call(payload)
            # Through JSON once: what is reported now is exactly what a resumed run will read back.
            record = json.loads(json.dumps(record))
        if not isinstance(record, dict):
            raise TypeError(f"expected a record (dict of JSON values) from {target}; given {type(record).__name__}")
        return {"record": record, "seconds": time.perf_counter() - start}
    except Exception as error:
        return {**_described(error, printed), "seconds": time.perf_counter() - start}


def without_paths(text: str) -> str:
    """Text with files named as they are imported: the same on every machine, and saying nothing about this one."""
    for folder in sorted({path for path in sys.path if len(path) > 1}, key=len, reverse=True):
        text = text.replace(f'File "{folder.rstrip(os.sep)}{os.sep}', 'File "')
    return text


def _described(error: Exception, printed: io.StringIO) -> dict[str, Any]:
    try:
        message = str(error) or type(error).__name__
    except Exception as second:  # an exception whose text raises
        message = f"{type(error).__name__}, whose message could not be made: {type(second).__name__}"
    trace = without_paths(traceback.format_exc())
    if tail := printed.getvalue()[-2000:]:
        trace += f"\nprinted before the error:\n{tail}"
    return {"kind": type(error).__name__, "message": printable(message), "traceback": printable(trace)}


def _begin(key: str) -> None:
    """One thread, and global generators that start from the cell's key.

    No cell should draw from them; one that does gets numbers of its own, the same wherever and after whatever it runs.
    """
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
    if not key:
        return
    seed = int(key[:16], 16)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)
    if torch is not None:
        torch.default_generator.manual_seed(seed % 2**63)


def _load_main_script() -> None:
    """Let cells name things defined in the user's own script, as ``multiprocessing`` does."""
    script = os.environ.get(IN_WORKER, "")
    if not script or getattr(sys.modules["__main__"], "__file__", None) == script:
        return
    module = types.ModuleType("__mp_main__")
    module.__file__ = sys.argv[0] = script
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    module.__dict__.update(runpy.run_path(script, run_name="__mp_main__"))
