"""Every benchmark in turn: ``make bench``. A timing is a ratio measured in one run, interleaved, on one thread.

python -m benchmarks [NAME ...]
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Run each benchmark in a process of its own, so that none warms another's caches."""
    known = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))
    chosen = sys.argv[1:] or known
    if wrong := [name for name in chosen if name not in known]:
        raise SystemExit(f"unknown benchmark {', '.join(wrong)}; known: {', '.join(known)}")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for name in chosen:
        print(f"== {name}", flush=True)
        subprocess.run([sys.executable, str(HERE / f"{name}.py")], check=True, env=environment)


if __name__ == "__main__":
    main()
