"""Cell targets that behave and misbehave; imported by worker processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any


def count(payload: dict[str, Any]) -> dict[str, Any]:
    """Leaves one line per execution, so that repeated work can be counted."""
    with Path(payload["log"]).open("a") as log:
        log.write(f"{payload['n']}\n")
    time.sleep(payload.get("sleep", 0.0))
    return {"n": payload["n"], "square": payload["n"] ** 2}


def threads(payload: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {"threads": torch.get_num_threads(), "omp": os.environ["OMP_NUM_THREADS"]}


def explode(payload: dict[str, Any]) -> dict[str, Any]:
    print("about to explode")
    raise ZeroDivisionError("planted")


def hang(payload: dict[str, Any]) -> dict[str, Any]:
    time.sleep(600)
    return {}


def die(payload: dict[str, Any]) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def leave(payload: dict[str, Any]) -> dict[str, Any]:
    os._exit(7)


def not_a_record(payload: dict[str, Any]) -> Any:
    return [1, 2, 3]


def count_together(payloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What ``count`` returns, in one call that leaves one line for all."""
    with Path(payloads[0]["log"]).open("a") as log:
        log.write("+".join(str(payload["n"]) for payload in payloads) + "\n")
    return [{"n": payload["n"], "square": payload["n"] ** 2} for payload in payloads]


def one_of_them_explodes(payloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    raise ZeroDivisionError("planted in a group")


def one_record_too_few(payloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"n": payload["n"]} for payload in payloads[1:]]


def die_together(payloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    os._exit(7)


def count_or_explode(payload: dict[str, Any]) -> dict[str, Any]:
    if payload["n"] == 2:
        raise ZeroDivisionError("planted in cell 2")
    return count(payload)
