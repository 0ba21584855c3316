"""Faults of belonging: a result that is not this code's, not this cell's, or not this user's."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.engine.identity import cell_key
from assay.engine.plan import canonical, content_key
from assay.engine.store.cells import Store, StoredCell
from assay.engine.store.keys import Key
from assay.engine.workers.process import WorkerProcess
from assay.protocols import Cell
from assay.tracks.honesty.faults.planted import REFUSED, Planted, PlantedJudgement

if TYPE_CHECKING:
    from numpy.random import Generator

VARIABLE = "ASSAY_PLANTED_FAULT"


def forged_cell(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A cell written by someone who knows the format and recomputed every digest, but does not have the user's key."""
    measured, wished = float(generator.uniform(0.5, 0.9)), 0.99
    key = content_key({"track": "planted", "seed": 42})
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.put(StoredCell(key, "seed 42", "planted", 1.0, {"accuracy": measured}))
        if faulty:
            data = json.loads(store.path(key).read_text())
            data["record"]["accuracy"] = wished
            del data["hmac"]
            forger = Key(b"a key of the forger's own")
            store.path(key).write_text(json.dumps({**data, "hmac": forger.sign(canonical(data))}))
        habit = json.loads(store.path(key).read_text())["key"] == key  # it is the right cell and it is whole
        served = Store(Path(folder)).get(key)
    if served is None:
        return PlantedJudgement(REFUSED, "the digest is not under the user's key", habit)
    return PlantedJudgement("PASS" if served.record["accuracy"] == measured else "FAIL", "served", habit)


def stale_helper(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A helper module of a track is edited between two runs; the file of the track itself is as it was."""
    name = f"planted_{int(generator.integers(1 << 40)):x}"
    with tempfile.TemporaryDirectory() as folder:
        track, helper = Path(folder) / f"{name}_track.py", Path(folder) / f"{name}_helper.py"
        track.write_text(f"def measure(payload):\n    from {name}_helper import value\n    return {{'x': value}}\n")
        helper.write_text("value = 1\n")
        sys.path.insert(0, folder)
        try:
            before = cell_key(f"{name}_track:measure", {"seed": 42})
            if faulty:
                helper.write_text("value = 2\n")
            after = cell_key(f"{name}_track:measure", {"seed": 42})
        finally:
            sys.path.remove(folder)
    if before != after:
        return PlantedJudgement(REFUSED, "the old result has another key: the cell runs again", True)
    return PlantedJudgement("PASS", "the stored result answers", True)


def contaminated_worker(generator: Generator, faulty: bool) -> PlantedJudgement:
    """A cell sets an environment variable and patches a module; the next cell of the same worker measures with them."""
    exact = float(generator.uniform(1.0, 2.0))
    worker = WorkerProcess()
    try:
        _run(worker, {"do": "contaminate" if faulty else "nothing"})
        found = _run(worker, {"do": "measure", "radius": exact})
    finally:
        worker.stop()
    healthy = found.get("record") == {"area": math.pi * exact**2, "variable": ""}
    if not healthy:
        return PlantedJudgement("FAIL", f"the neighbour's process moved the result: {found}", True)
    return PlantedJudgement(REFUSED if faulty else "PASS", "measured in a process of its own", True)


def planted_cell(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Called by name inside a worker process."""
    if payload["do"] == "contaminate":
        math.pi = 3.0  # type: ignore[misc]
        os.environ[VARIABLE] = "left behind"
    if payload["do"] != "measure":
        return {}
    return {"area": math.pi * payload["radius"] ** 2, "variable": os.environ.get(VARIABLE, "")}


def _run(worker: WorkerProcess, payload: dict[str, Any]) -> dict[str, Any]:
    worker.start(Cell(content_key(payload), f"{__name__}:planted_cell", payload, payload["do"], "planted", timeout=60))
    while (outcome := worker.poll()) is None:
        time.sleep(0.002)
    return outcome


BELONGING = (
    Planted("forged cell", "the cell is done", REFUSED, "not under the user's key", forged_cell),
    Planted("stale helper", "the cell is done", REFUSED, "another key", stale_helper),
    Planted("contaminated worker", "the number came back", REFUSED, "process of its own", contaminated_worker),
)
