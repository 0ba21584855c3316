"""Settings of every test: neither how fast the machine is nor which test ran before says anything about a claim."""

import gc
import importlib.util
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("ASSAY_KEY", "a key for the tests, and for nothing else")
# One thread per process, as in the workers of the engine: pytest-xdist uses the cores, and threads of two processes
# that wait for each other burn more than they compute. Set here because torch and NumPy read it when imported.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(autouse=True, scope="module")
def _what_is_loaded_stays() -> None:
    """Collecting garbage, as every measurement of memory does, need not look through thousands of tests and modules."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_draws_in_any_order() -> None:
    """A layer built without a seed draws from the global generator, whose state would depend on the tests before."""
    random.seed(0)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)


@pytest.fixture(scope="session")
def python() -> Iterator[Any]:
    """``python.run(["-m", "assay", ...])``: a process of its own that need not import torch first (``warm.py``)."""
    found = importlib.util.spec_from_file_location("warm", Path(__file__).with_name("warm.py"))
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    warm = module.Warm()
    yield warm
    warm.stop()
