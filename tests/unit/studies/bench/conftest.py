"""The executor in this process, one for each test."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def here(in_process: Any) -> Any:
    return in_process()
