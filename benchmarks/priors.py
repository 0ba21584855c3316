"""What one cell of each track costs: processor seconds by group, for `assay plan` before anything was run here.

    python benchmarks/priors.py smoke quick        # writes src/assay/engine/priors.json; goes on where it stopped
    python benchmarks/priors.py smoke --only 0 1 2

One cell per track, budget and arm is run at the first seed, alone in a process with one thread. Processor time is
taken, so that a busy machine does not count against it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from assay.environment import capture
from assay.protocols import BUDGETS, Budget, Cell
from assay.registry import registry
from assay.seeding import seeds_of
from assay.studies.verification import plan

PLACE = Path(__file__).parents[1] / "src" / "assay" / "engine" / "priors.json"
MOST_SECONDS = 1800.0
RUN = """
import json, resource, sys
from assay.engine.workers.worker import run_cell

def spent():
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)

import torch  # a warm worker has it already
target, payload = json.load(open(sys.argv[1]))
before = spent()
run_cell(target, payload)
print(spent() - before)
"""


def representatives(budget: Budget, tracks: list[str]) -> dict[str, Cell]:
    """The first cell of every group of these tracks."""
    found: dict[str, Cell] = {}
    for track in [registry.find(name) for name in tracks] or registry.ordered():
        for cell in plan(track, budget, seeds_of(budget, count=1, first=42)):
            found.setdefault(cell.group, cell)
    return found


def processor_seconds(cell: Cell) -> float | None:
    """Processor time of one cell in a process of its own, without the start of that process; None if it fails."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([cell.target, dict(cell.payload)], file)
        file.flush()
        command = [sys.executable, "-c", RUN, file.name]
        try:
            done = subprocess.run(command, timeout=MOST_SECONDS, capture_output=True, text=True, check=False)
        except subprocess.TimeoutExpired:
            return None
    return float(done.stdout.split()[-1]) if not done.returncode and done.stdout.strip() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("budgets", nargs="*", choices=BUDGETS, default=["smoke", "quick"])
    parser.add_argument("--only", nargs="*", default=[], help="tracks by number or name")
    parser.add_argument("--out", type=Path, default=PLACE)
    asked = parser.parse_args()
    known = json.loads(asked.out.read_text()) if asked.out.is_file() else {}
    seconds: dict[str, float] = known.get("seconds", {})
    for budget in asked.budgets:
        for group, cell in representatives(budget, asked.only).items():
            if group in seconds or (spent := processor_seconds(cell)) is None:
                continue
            seconds[group] = round(spent, 2)
            about = {"machine": f"{capture().cpu}, one thread", "what": "processor seconds of one cell"}
            asked.out.write_text(json.dumps({**about, "seconds": dict(sorted(seconds.items()))}, indent=1) + "\n")
            print(f"{group}: {spent:.2f} s", flush=True)


if __name__ == "__main__":
    main()
