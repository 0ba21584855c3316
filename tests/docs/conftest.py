"""The machinery of the documentation site, and the site itself, built once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from assay.engine.workers.process import LOOK_SECONDS, WorkerProcess, result_of
from assay.protocols import Cell

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "machinery"))


@pytest.fixture(scope="session")
def warm() -> Iterator[Callable[..., list[str]]]:
    """Calls a function of ``blocks`` in a process of its own: forks of one template, so that torch is imported once."""
    worker = WorkerProcess(heavy=True)

    def call(function: str, **payload: str) -> list[str]:
        cell = Cell(key="", target=f"blocks:{function}", payload=payload, label=function, group="pages", timeout=600.0)
        worker.start(cell)
        while (outcome := worker.poll()) is None:
            wait([worker.fileno()], timeout=LOOK_SECONDS)
        result = result_of(cell, outcome)
        assert result.failure is None, f"{result.failure.message}\n{result.failure.traceback}"
        return list(result.record["stale"])

    yield call
    worker.stop()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning of the builder is an error, and no address can be reached while it builds."""
    folder = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
