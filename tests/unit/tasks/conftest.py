"""Real datasets for tests marked ``data``: those under ASSAY_DATA, else prepared from a folder beside the project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.tasks.files import DATASETS, data_root, locate

PREPARE = Path(__file__).parents[3].parent / "shared" / "data" / "prepare.py"


@pytest.fixture(scope="session")
def real_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with MNIST, Fashion-MNIST and CIFAR-10."""
    root = data_root(os.environ.get("ASSAY_DATA"))
    if all(locate(name, file, root=root) for name, dataset in DATASETS.items() for file in dataset.files):
        return root
    if not PREPARE.exists():
        pytest.skip("real datasets are not here: set ASSAY_DATA to a folder filled by `assay data fetch`")
    pytest.importorskip("PIL", reason="preparing the datasets needs pillow: pip install pillow")
    prepared = tmp_path_factory.mktemp("assay-data")
    subprocess.run([sys.executable, str(PREPARE), str(prepared)], check=True, capture_output=True)
    return prepared
