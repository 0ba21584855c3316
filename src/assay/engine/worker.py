"""What runs inside a worker process: one cell, one torch thread, every error turned into data."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import sys
import time
import traceback
from typing import Any

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def prepare() -> None:
    """Set a fresh worker up: one thread, deaf to Ctrl-C (the driver decides), dead when the driver dies."""
    for variable in THREAD_VARIABLES:
        os.environ[variable] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        import ctypes

        set_parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl(2)
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def run_cell(target: str, payload: dict[str, Any]) -> dict[str, Any]:
    """The outcome of one cell as data: ``record`` on success, else ``kind``, ``message`` and ``traceback``."""
    start = time.perf_counter()
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            module, _, function = target.partition(":")
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
        trace = traceback.format_exc()
        if tail := printed.getvalue()[-2000:]:
            trace += f"\nprinted before the error:\n{tail}"
        return {
            "kind": type(error).__name__,
            "message": str(error) or type(error).__name__,
            "traceback": trace,
            "seconds": time.perf_counter() - start,
        }
