"""The engine runs cells: pieces of work it can hash, store, isolate and resume without knowing what they mean."""

from assay.engine.environment import capture
from assay.engine.estimate import CostModel
from assay.engine.execute import execute
from assay.engine.local import LocalExecutor
from assay.engine.plan import canonical, content_key, fingerprint
from assay.engine.store import Store, StoredCell, write_atomically

__all__ = [
    "CostModel", "LocalExecutor", "Store", "StoredCell", "canonical", "capture", "content_key", "execute", "fingerprint",
    "write_atomically",
]
