"""What the symmetry auditor finds, misses and misplaces on models with known defects, beside two other checkers.

    python benchmarks/symmetry_suite.py                       # the whole suite, 10 to 20 minutes on one free core
    python benchmarks/symmetry_suite.py --every 10            # every tenth planted model, all clean ones
    python benchmarks/symmetry_suite.py --records suite.jsonl # stops and goes on where it was

Writes docs/results/symmetry-suite.md.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "planted" / "symmetry"))


def main() -> None:
    """Runs the suite, prints the table and writes the page."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--every", type=int, default=1, help="only every n-th planted model")
    arguments.add_argument("--records", type=Path, help="JSON lines: finished models are kept and not run again")
    arguments.add_argument("--only", nargs="*", default=(), help="families to run")
    arguments.add_argument("--render", action="store_true", help="run nothing: the page of what the records hold")
    arguments.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "symmetry-suite.md")
    options = arguments.parse_args()

    import torch
    from planted_symmetry.page import page
    from planted_symmetry.suite import finished, run, tasks

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    todo = list(tasks(every=options.every, only=options.only))
    chosen = [task for task in todo if task.name in finished(options.records)] if options.render else todo
    records = run(chosen, records=options.records, say=lambda line: print(line, flush=True))
    text = page(records, planned=len(todo))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
