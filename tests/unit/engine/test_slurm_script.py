"""The SLURM script is valid shell and says what it needs when Ray does not come up."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "docs" / "examples" / "slurm" / "assay-ray.sbatch"

STUBS = {
    "scontrol": "#!/bin/bash\nprintf 'one\\ntwo\\nthree\\n'\n",
    "srun": '#!/bin/bash\necho "srun $*" >> "$LOG"\n[[ "$*" == *hostname* ]] && echo 10.0.0.1 && exit 0\nsleep 60\n',
    "ray": '#!/bin/bash\necho "ray $*" >> "$LOG"\nexit "${RAY_CODE:-0}"\n',
    "assay": '#!/bin/bash\necho "assay $*" >> "$LOG"\nexit 3\n',
    "sleep": "#!/bin/bash\nexec /bin/sleep 0.05\n",
}


def _machine(folder: Path) -> tuple[Path, dict[str, str]]:
    """Stand-ins for SLURM, Ray and the driver in a folder of their own, and an environment that finds them first."""
    tools = folder / "bin"
    tools.mkdir()
    for name, text in STUBS.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    environment = {
        "PATH": f"{tools}:/usr/bin:/bin", "LOG": str(folder / "log"), "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "[one-three]", "SLURM_CPUS_PER_TASK": "4",
    }
    return tools, environment


def _lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this system")
def test_a_warned_script_stops_its_driver_cleanly_and_ends_with_its_code(tmp_path: Path) -> None:
    """SLURM sends the batch shell SIGINT a minute before the time limit; the driver still needs a while to write."""
    tools, environment = _machine(tmp_path)
    driver = '#!/bin/bash\ntrap "/bin/sleep 0.3; exit 5" TERM\necho up >> "$LOG"\nwhile :; do /bin/sleep 0.05; done\n'
    (tools / "assay").write_text(driver)
    # A shell cannot trap what it was told to ignore, and tests started in the background are told to ignore SIGINT.
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    command = ["bash", str(SCRIPT), "1"]
    with subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=hears) as job:
        try:
            limit = time.monotonic() + 60
            while "up" not in _lines(tmp_path / "log") and time.monotonic() < limit:
                time.sleep(0.02)
            job.send_signal(signal.SIGINT)
            assert job.wait(timeout=300) == 5
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this system")
def test_the_script_starts_every_node_and_ends_with_the_drivers_code(tmp_path: Path) -> None:
    """With stand-ins for SLURM and Ray that record how they are called."""
    _, environment = _machine(tmp_path)
    command = ["bash", str(SCRIPT), "1", "2", "--budget", "full"]
    ran = subprocess.run(command, env=environment, timeout=300, capture_output=True, text=True, check=False)
    assert ran.returncode == 3, ran.stderr
    lines = _lines(tmp_path / "log")
    assert sum("ray start --head" in line and "-w one" in line for line in lines) == 1
    assert sum("ray start --address=10.0.0.1:20007" in line for line in lines) == 2
    assert "assay verify 1 2 --budget full --engine ray --address 10.0.0.1:20007" in lines

    failed = subprocess.run(
        command, env={**environment, "RAY_CODE": "1"}, timeout=300, capture_output=True, text=True, check=False
    )
    assert failed.returncode == 4 and "Ray did not come up at 10.0.0.1:20007" in failed.stderr
