"""The feedback rules are tried on the subjects of the credit tests."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "audits" / "credit"))


@pytest.fixture(autouse=True)
def same_weights_every_time():
    torch.manual_seed(0)
