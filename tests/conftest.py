"""Settings of every test: neither how fast the machine is nor which test ran before says anything about a claim."""

import os
import random
import sys

import numpy
import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("ASSAY_KEY", "a key for the tests, and for nothing else")

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _same_draws_in_any_order() -> None:
    """A layer built without a seed draws from the global generator, whose state would depend on the tests before."""
    random.seed(0)
    numpy.random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)
