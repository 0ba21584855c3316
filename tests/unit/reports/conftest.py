"""The fixture runs, loaded by path so that no test folder has to be a package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from assay.results import Run, load_run

FIXTURES = Path(__file__).parent / "fixture"


@pytest.fixture(scope="session")
def builders() -> ModuleType:
    """The module that builds the large and the hostile run."""
    spec = importlib.util.spec_from_file_location("assay_report_builders", FIXTURES / "builders.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def rich() -> Run:
    """A run with every verdict, every kind of figure, controls, issues and failures."""
    return load_run(FIXTURES / "rich")


@pytest.fixture(scope="session")
def hostile(builders: ModuleType) -> Run:
    """A run whose every text would do harm if it were not escaped."""
    run: Run = builders.hostile_run()
    return run
