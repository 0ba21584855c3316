"""The engine runs cells: pieces of work it can hash, store, isolate and resume without knowing what they mean."""

from assay.engine.choose import choose_executor
from assay.engine.estimate import CostModel, Forecast, forecast
from assay.engine.execute import execute
from assay.engine.grouping import bundle, describe_grouping
from assay.engine.plan import canonical, content_key, fingerprint, run_id
from assay.engine.ray.executor import RayExecutor
from assay.engine.store.cells import Store, StoredCell
from assay.engine.store.files import write_atomically
from assay.engine.workers.local import LocalExecutor
from assay.environment import capture

__all__ = [
    "CostModel", "Forecast", "LocalExecutor", "RayExecutor", "Store", "StoredCell", "bundle", "canonical",
    "capture", "choose_executor", "content_key", "describe_grouping", "execute", "fingerprint", "forecast",
    "run_id", "write_atomically",
]
