"""The planted tests share the subjects of the unit tests."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "audits" / "credit"))


@pytest.fixture(autouse=True)
def same_weights_every_time():
    torch.manual_seed(0)
