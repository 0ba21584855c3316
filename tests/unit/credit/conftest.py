"""The subjects of the credit tests live beside them; their default initialisation is seeded here."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def same_weights_every_time():
    torch.manual_seed(0)
