"""What the awake process runs ends, prints and sees what a process started for it would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = {
    "prints": "print('out'); import sys; sys.stderr.write('err')",
    "code": "raise SystemExit(7)",
    "text": "raise SystemExit('said')",
    "nothing": "import sys; sys.exit()",
    "signal": "import os, signal; print('before', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    "environment": "import os; print(os.getcwd(), os.environ.get('MINE'), 'HOME' in os.environ)",
    "arguments": "import sys; print(sys.argv[1:], __name__)",
    "path": "import beside; print(beside.value)",
    "at exit": "import atexit; atexit.register(print, 'last')",
}


@pytest.mark.parametrize("way", ["-c", "file"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_what_python_would_have_done(name: str, way: str, python: Any, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("value = 3\n")
    (tmp_path / "program.py").write_text(PROGRAMS[name])
    words = [*(("-c", PROGRAMS[name]) if way == "-c" else ("program.py",)), "one", "two"]
    environment = {"PATH": os.environ["PATH"], "MINE": "yes"}
    cold = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True,
                          check=False)  # fmt: skip
    warm = python.run(words, cwd=tmp_path, env=environment)
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)


def test_an_error_is_code_one_with_its_traceback_and_leaves_nothing_behind(python: Any, tmp_path: Path) -> None:
    done = python.run(["-c", "import json; json.changed = 1; open('made', 'w'); 1 / 0"], cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.strip().endswith("ZeroDivisionError: division by zero")
    assert (tmp_path / "made").exists()
    assert python.run(["-c", "import json; print(hasattr(json, 'changed'))"]).stdout == "False\n"
