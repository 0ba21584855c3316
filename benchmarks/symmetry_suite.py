"""What the symmetry auditor finds, misses and misplaces on models with known defects, beside two other checkers.

    python benchmarks/symmetry_suite.py           # a sample: every 20th planted model and every 20th clean one; prints
    python benchmarks/symmetry_suite.py --every 5 # a larger sample
    python benchmarks/symmetry_suite.py --all     # the whole suite, about 15 minutes on one free core

--all writes docs/results/symmetry-suite.md and its records; run again at the same revision, it goes on where it was
stopped. --render writes the page again from the records.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results" / "symmetry-suite.md"
RECORDS = ROOT / "docs" / "results" / "data" / "symmetry-suite" / "records.jsonl"
sys.path.insert(0, str(ROOT / "tests" / "planted" / "symmetry"))


def main() -> None:
    """Runs the suite, prints the table and writes the page."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--all", action="store_true", help="every model, records and page")
    arguments.add_argument("--every", type=int, default=20, help="only every n-th model")
    arguments.add_argument("--only", nargs="*", default=(), help="families to run")
    arguments.add_argument("--render", action="store_true", help="run nothing: the page of what the records hold")
    arguments.add_argument("--records", type=Path, default=RECORDS, help="JSON lines, one per model (with --all)")
    arguments.add_argument("--out", type=Path, default=PAGE)
    options = arguments.parse_args()

    import torch
    from planted_symmetry.page import page
    from planted_symmetry.suite import finished, run, tasks

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    kept = options.all or options.render
    todo = list(tasks(only=options.only))[:: 1 if kept else options.every]
    if options.render:
        records = list(finished(options.records).values())
    else:
        options.records.parent.mkdir(parents=True, exist_ok=True)
        keep = options.records if options.all else None
        records = run(todo, records=keep, revision=revision(), say=lambda line: print(line, flush=True))
    text = page(records, planned=len(list(tasks(only=options.only))))
    if kept:
        options.out.write_text(text, encoding="utf-8")
    print(text)


def revision() -> str:
    """The last commit that touched the auditor or the suite, marked if they have been changed since."""
    places = ["src/assay/audits/symmetry", "tests/planted/symmetry/planted_symmetry"]

    def git(*words: str) -> str:
        command = ["git", *words, "--", *places]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return git("log", "-1", "--format=%h") + ("+changes" if git("status", "--porcelain") else "")


if __name__ == "__main__":
    main()
