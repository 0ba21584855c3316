"""Cells that fail in every way a cell can, and drivers to kill; run inside worker processes and on Ray nodes."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from assay.engine import LocalExecutor, Store, content_key, execute
from assay.protocols import Cell, CellResult, Executor


def cell(function: str, *, timeout: float = 600.0, memory: int | None = None, cpus: float = 1, **payload: Any) -> Cell:
    """A cell that calls a function of this module."""
    key = content_key({"function": function, **payload})
    label = f"{function} {payload.get('n', '')}".strip()
    return Cell(key, f"fault_cells:{function}", payload, label, function, timeout=timeout, memory=memory, cpus=cpus)


def squares(folder: Path, count: int, sleep: float = 0.0) -> list[Cell]:
    """Healthy cells; each leaves one line in ``folder/log`` when it begins."""
    return [cell("square", n=n, log=str(folder / "log"), sleep=sleep) for n in range(count)]


def results(cells: list[Cell], folder: Path, executor: Executor | None = None) -> dict[str, CellResult]:
    """Run the cells on the store in ``folder/cells``: every result by label, each cell exactly once."""
    found: dict[str, CellResult] = {}
    for result in execute(cells, store=Store(folder / "cells"), executor=executor or LocalExecutor(2)):
        assert result.cell.label not in found, "a cell was reported twice"
        found[result.cell.label] = result
    assert set(found) == {each.label for each in cells}, "every asked cell is accounted for"
    return found


def begun(folder: Path) -> list[int]:
    """The squares that were begun, in order, repeated ones repeated."""
    log = folder / "log"
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def leftovers(folder: Path) -> list[str]:
    """Claims and heartbeats left in the store: locks that would outlive their driver."""
    return [p.name for part in ("claims", "drivers") for p in (folder / "cells" / part).glob("*")]


def square(payload: dict[str, Any]) -> dict[str, Any]:
    with Path(payload["log"]).open("a") as log:
        log.write(f"{payload['n']}\n")
    time.sleep(payload.get("sleep", 0.0))
    return {"n": payload["n"], "square": payload["n"] ** 2}


def explode(payload: dict[str, Any]) -> dict[str, Any]:
    raise ZeroDivisionError("planted")


def hang(payload: dict[str, Any]) -> dict[str, Any]:
    if "log" in payload:
        with Path(payload["log"]).open("a") as log:
            log.write(f"{os.getpid()}\n")
    time.sleep(600)
    return {}


def stubborn(payload: dict[str, Any]) -> dict[str, Any]:
    """Hangs, deaf to every signal that can be ignored."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def crash(payload: dict[str, Any]) -> dict[str, Any]:
    ctypes.string_at(0)  # a segmentation fault, as a broken extension would cause
    return {}


def killed(payload: dict[str, Any]) -> dict[str, Any]:
    """Dies of SIGKILL the first ``times`` it is run, as under an operator or the kernel out of memory."""
    with Path(payload["log"]).open("a") as log:
        log.write("x")
    if len(Path(payload["log"]).read_text()) <= payload["times"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"survived": True}


def kills_keeper(payload: dict[str, Any]) -> dict[str, Any]:
    """Kills the process that keeps its worker (on Ray: the Ray worker) the first ``times`` it is run."""
    with Path(payload["log"]).open("a") as log:
        log.write("x")
    if len(Path(payload["log"]).read_text()) <= payload["times"]:
        above = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(above, signal.SIGKILL)
        time.sleep(60)
    return {"survived": True}


def eat(payload: dict[str, Any]) -> dict[str, Any]:
    """Takes ever more memory, in steps, until someone stops it."""
    held = []
    for _ in range(payload["mebibytes"] // 8):
        held.append(bytearray(os.urandom(1) * (8 << 20)))
        time.sleep(0.01)
    return {"held": len(held)}


def where(payload: dict[str, Any]) -> dict[str, Any]:
    """Which process and node ran this, after a moment."""
    time.sleep(payload.get("sleep", 0.0))
    import assay

    return {"pid": os.getpid(), "assay": str(Path(assay.__file__).parent), "threads": os.environ["OMP_NUM_THREADS"]}


def main() -> None:
    """A driver to be killed: squares into the store of a folder."""
    folder, count, sleep = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    engine: Executor = LocalExecutor(2)
    if len(sys.argv) > 4:
        from assay.engine import RayExecutor

        address = sys.argv[4] if sys.argv[4] != "local" else None
        engine = RayExecutor(address=address, workers=2, modules=("fault_cells",))
    results(squares(folder, count, sleep), folder, engine)


if __name__ == "__main__":
    # Cells name this module, so the driver must too.
    import fault_cells

    fault_cells.main()
