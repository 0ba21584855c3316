"""A cluster behind ``ray://``: the driver is no node of it, and the modules of a cell travel there with the job."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ray = pytest.importorskip("ray", reason="needs the [ray] extra: pip install 'assay-ml[ray]'")
pytest.importorskip("grpc", reason="needs the [ray] extra: pip install 'assay-ml[ray]'")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this system: Ray starts workers by it"),
]

HELPER = "def square(n):\n    return n * n\n"
CELLS = "from travelling_helper import square\n\n\ndef cell(payload):\n    return {'square': square(payload['n'])}\n"
DRIVER = """
import json, sys
sys.path.insert(0, sys.argv[2])
from assay.engine import RayExecutor, Store, content_key, execute
from assay.protocols import Cell

cells = [Cell(content_key({"n": n}), "travelling_cells:cell", {"n": n}, f"square {n}", "squares") for n in range(3)]
executor = RayExecutor(address=sys.argv[1], modules=("travelling_cells",))
found = {result.cell.label: result.record for result in execute(cells, store=Store(sys.argv[3]), executor=executor)}
print(json.dumps(found))
"""


def _free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


@pytest.fixture
def head(tmp_path: Path) -> Iterator[str]:
    """The address of a head with one core, started in an empty folder as somebody else would start it."""
    port, client = _free_port(), _free_port()
    away = tmp_path / "elsewhere"
    away.mkdir()
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", f"--port={port}", "--num-cpus=1",
               f"--ray-client-server-port={client}", "--include-dashboard=false", "--object-store-memory=80000000",
               "--disable-usage-stats", "--node-ip-address=127.0.0.1", "--block"]  # fmt: skip
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(command, cwd=away, env=kept, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          start_new_session=True) as running:  # fmt: skip
        try:
            limit = time.monotonic() + 120
            while time.monotonic() < limit:
                with socket.socket() as place:
                    if place.connect_ex(("127.0.0.1", client)) == 0:
                        break
                time.sleep(0.2)
            yield f"ray://127.0.0.1:{client}"
        finally:
            os.killpg(running.pid, signal.SIGKILL)


def test_cells_and_the_helpers_they_import_travel_to_a_cluster_reached_as_a_client(head: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "travelling_helper.py").write_text(HELPER)
    (mine / "travelling_cells.py").write_text(CELLS)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DRIVER, head, str(mine), str(tmp_path / "cells")], cwd=tmp_path,
        capture_output=True, text=True, timeout=280, check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {f"square {n}": {"square": n * n} for n in range(3)}
