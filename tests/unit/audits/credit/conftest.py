"""The subjects of the credit tests live beside them; what is random by default is seeded here; a small CIFAR-10."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def same_weights_every_time():
    torch.manual_seed(0)


@pytest.fixture
def tiny_cifar(tmp_path: Path) -> Path:
    """The layout of CIFAR-10 with 20 random pictures per file."""
    generator = np.random.default_rng(0)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        rows = generator.integers(0, 256, (20, 3073), dtype=np.uint8)
        rows[:, 0] = generator.integers(0, 10, 20)
        rows.tofile(folder / name)
    return tmp_path
