"""The engine runs cells: pieces of work it can hash, store, isolate and resume without knowing what they mean.

Every name is loaded on first use (PEP 562): a worker process needs none of the driver's parts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "CostModel": "assay.engine.estimate",
    "Forecast": "assay.engine.estimate",
    "LocalExecutor": "assay.engine.workers.local",
    "RayExecutor": "assay.engine.ray.executor",
    "Store": "assay.engine.store.cells",
    "StoredCell": "assay.engine.store.cells",
    "bundle": "assay.engine.grouping",
    "canonical": "assay.engine.plan",
    "capture": "assay.environment",
    "cell_key": "assay.engine.identity",
    "choose_executor": "assay.engine.choose",
    "content_key": "assay.engine.plan",
    "describe_grouping": "assay.engine.grouping",
    "execute": "assay.engine.driver",
    "fingerprint": "assay.engine.identity",
    "forecast": "assay.engine.estimate",
    "run_id": "assay.engine.plan",
    "usual": "assay.engine.estimate",
    "write_atomically": "assay.engine.store.files",
}

if TYPE_CHECKING:
    from assay.engine.choose import choose_executor as choose_executor
    from assay.engine.driver import execute as execute
    from assay.engine.estimate import CostModel as CostModel
    from assay.engine.estimate import Forecast as Forecast
    from assay.engine.estimate import forecast as forecast
    from assay.engine.estimate import usual as usual
    from assay.engine.grouping import bundle as bundle
    from assay.engine.grouping import describe_grouping as describe_grouping
    from assay.engine.identity import cell_key as cell_key
    from assay.engine.identity import fingerprint as fingerprint
    from assay.engine.plan import canonical as canonical
    from assay.engine.plan import content_key as content_key
    from assay.engine.plan import run_id as run_id
    from assay.engine.ray.executor import RayExecutor as RayExecutor
    from assay.engine.store.cells import Store as Store
    from assay.engine.store.cells import StoredCell as StoredCell
    from assay.engine.store.files import write_atomically as write_atomically
    from assay.engine.workers.local import LocalExecutor as LocalExecutor
    from assay.environment import capture as capture


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'assay.engine' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
