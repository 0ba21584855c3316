"""What happens on a node of a Ray cluster: check the versions, then run the cell in a worker process of its own."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from multiprocessing.connection import wait
from typing import Any

from assay.engine.identity import fingerprint
from assay.engine.workers.process import LOOK_SECONDS, WorkerProcess
from assay.protocols import Cell

_keeper: tuple[str, WorkerProcess] | None = None
"""The worker process of this Ray worker, and the GPUs it may see."""
_heavy = False
"""Whether a cell here has needed a worker with torch in it."""


def run_on_node(wanted: dict[str, str], job: dict[str, Any]) -> dict[str, Any]:
    """The outcome of one cell on the node where Ray placed it; called inside a Ray worker."""
    global _keeper, _heavy
    if mismatch := _mismatch(wanted):
        return {"mismatch": mismatch}
    cell = Cell(**job)
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if _keeper is not None and (
        _keeper[0] != gpus or cell.fresh or not _keeper[1].reusable or _keeper[1].heavy != _heavy
    ):
        _keeper[1].stop()
        _keeper = None
    if _keeper is None:
        _keeper = (gpus, WorkerProcess(forking=not cell.fresh, heavy=_heavy))
    worker = _keeper[1]
    worker.start(cell)
    while (outcome := worker.poll()) is None:
        wait([worker.fileno()], timeout=LOOK_SECONDS)
    _heavy = _heavy or bool(outcome.pop("heavy", False))
    return outcome


def versions() -> dict[str, str]:
    """What must be the same on the driver and on every worker for their results to be one experiment."""
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = "absent"
    return {"python": platform.python_version(), "torch": torch, "assay source": fingerprint(["assay"])}


def _mismatch(wanted: Mapping[str, str]) -> str | None:
    here = versions()
    differing = [f"{name} {here[name]} (driver: {wanted[name]})" for name in wanted if here.get(name) != wanted[name]]
    if not differing:
        return None
    return (
        f"expected the driver's versions on every node; given {', '.join(differing)} on {platform.node()}; install the "
        "same versions there, then issue the same command again: what is done is kept"
    )


def as_job(cell: Cell) -> dict[str, Any]:
    """A cell as it travels to a node; what groups it belongs to stays with the driver."""
    return {
        "key": cell.key, "target": cell.target, "payload": dict(cell.payload), "label": cell.label, "group": cell.group,
        "timeout": cell.timeout, "cpus": cell.cpus, "gpus": cell.gpus, "memory": cell.memory,
        "fresh": cell.fresh,
    }
