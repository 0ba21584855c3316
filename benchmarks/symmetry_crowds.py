"""Crowds of small random models whose answer is known, audited one by one: who is judged wrongly?

    python benchmarks/symmetry_crowds.py             # 300 of each kind, about five minutes on one free core
    python benchmarks/symmetry_crowds.py --count 20  # a sample

Clean ReLU networks and clean float32-only models must not FAIL (one whose units are all dead is a constant, and rightly
INCONCLUSIVE); models with a sign, a sort,
an argmax or eigenvectors of unfixed sign must not PASS. It exits with 1 if one is judged wrongly.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "planted" / "symmetry"))

WRONG = {
    "relu_nets": ("FAIL", "ERROR"),
    "float32_only": ("FAIL", "ERROR"),
    "jumps": ("PASS", "PARTIAL"),
}


def main() -> int:
    """Audits every model and prints one line per kind, and every model that was judged wrongly."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--count", type=int, default=300, help="models of each kind")
    arguments.add_argument("--only", nargs="*", default=list(WRONG), choices=list(WRONG))
    options = arguments.parse_args()

    import torch
    from planted_symmetry import crowds

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    failed = 0
    for kind in options.only:
        verdicts: Counter[str] = Counter()
        for number in range(options.count):
            finding = crowds.audited(getattr(crowds, kind)(number), seed=number)
            verdicts[finding.verdict.value] += 1
            if finding.verdict.value in WRONG[kind]:
                failed += 1
                print(f"  {kind} {number}: {finding.verdict.value}: {finding.reason}", flush=True)
        seen = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
        wrong = sum(verdicts[one] for one in WRONG[kind])
        print(f"{kind}: {options.count} models, {seen}; judged wrongly: {wrong}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
