"""Cells that disturb their process, their neighbours and the one who waits for their answer."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


def look(payload: dict[str, Any]) -> dict[str, Any]:
    """What a cell can see of its process."""
    if payload.get("slow"):
        time.sleep(0.3)
    return {
        "pi": math.pi, "variable": os.environ.get("UNRULY", ""), "where": str(Path.cwd()),
        "mark": hasattr(math, "mark"), "threads": threading.active_count(), "limit": sys.getrecursionlimit(),
        "drawn": random.random(),
    }


def pid(payload: dict[str, Any]) -> dict[str, Any]:
    return {"pid": os.getpid()}


def uses_torch(payload: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {"threads": torch.get_num_threads(), "sum": float((torch.ones(64, 64) @ torch.ones(64, 64)).sum())}


def contaminate(payload: dict[str, Any]) -> dict[str, Any]:
    math.pi = 3.0  # type: ignore[misc]
    math.mark = True  # type: ignore[attr-defined]
    os.environ["UNRULY"] = "yes"
    os.chdir("/")
    sys.setrecursionlimit(5000)
    random.seed(1)
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    return {"done": True}


def returns_twice(payload: dict[str, Any]) -> dict[str, Any]:
    """Forks, and both processes return: the parent at once, the child while another cell runs."""
    if os.fork():
        return {"who": "parent"}
    time.sleep(0.1)
    return {"who": "child"}


def writes_garbage(payload: dict[str, Any]) -> dict[str, Any]:
    _write(b"not a reply\n")
    return {}


def writes_for_another(payload: dict[str, Any]) -> dict[str, Any]:
    _write(json.dumps({"key": "0" * 32, "nonce": "00", "record": {"forged": True}, "seconds": 0.0}).encode() + b"\n")
    return {}


def leaves_children(payload: dict[str, Any]) -> dict[str, Any]:
    """A plain child, one in a session of its own, and one whose parent has gone."""
    plain, apart = subprocess.Popen(SLEEPER), subprocess.Popen(SLEEPER, start_new_session=True)
    reader, writer = os.pipe()
    if (between := os.fork()) == 0:
        os.write(writer, str(subprocess.Popen(SLEEPER, start_new_session=True).pid).encode())
        os._exit(0)
    os.waitpid(between, 0)
    return {"pids": [plain.pid, apart.pid, int(os.read(reader, 100))]}


def hangs_with_children(payload: dict[str, Any]) -> dict[str, Any]:
    found = leaves_children(payload)
    Path(payload["log"]).write_text(" ".join(map(str, found["pids"])))
    time.sleep(600)
    return {}


def child_eats(payload: dict[str, Any]) -> dict[str, Any]:
    program = f"x = bytearray(b'1') * ({payload['mebibytes']} << 20); import time; time.sleep(1.0)"
    subprocess.run([sys.executable, "-S", "-c", program], check=True)
    return {"ate": payload["mebibytes"]}


def shares(payload: dict[str, Any]) -> dict[str, Any]:
    """Forks three children that hold the same pages."""
    held = bytearray(b"1") * (payload["mebibytes"] << 20)
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            time.sleep(0.6)
            os._exit(len(held) == 0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return {"children": len(children)}


def _write(data: bytes) -> None:
    """To every pipe that this process can write to."""
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(link.readlink()).startswith("pipe:"):
                os.write(int(link.name), data)


def surrogate(payload: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("half a pair: \ud800")


def wordless(payload: dict[str, Any]) -> dict[str, Any]:
    class Wordless(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    raise Wordless
