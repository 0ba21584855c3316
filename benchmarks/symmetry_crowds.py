"""Crowds of small random models whose answer is known, audited one by one: who is judged wrongly?

    python benchmarks/symmetry_crowds.py             # 300 of each kind, about five minutes on one free core
    python benchmarks/symmetry_crowds.py --count 20  # a sample: prints only
    python benchmarks/symmetry_crowds.py --render    # the page again from its records

Clean ReLU networks and clean float32-only models must not FAIL (one whose units are all dead is a constant, and rightly
INCONCLUSIVE); models with a sign, a sort, an argmax or eigenvectors of unfixed sign must not PASS. All 300 write
docs/results/symmetry-crowds.md and its records; run again at the same revision, it goes on where it was stopped. It
exits with 1 if one is judged wrongly.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from symmetry_suite import revision

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results" / "symmetry-crowds.md"
RECORDS = ROOT / "docs" / "results" / "data" / "symmetry-crowds" / "records.jsonl"
COUNT = 300
WRONG = {
    "relu_nets": ("FAIL", "ERROR"),
    "float32_only": ("FAIL", "ERROR"),
    "jumps": ("PASS", "PARTIAL"),
}
TITLES = {
    "relu_nets": "clean ReLU networks",
    "float32_only": "clean models that refuse float64",
    "jumps": "broken by a sign, a sort, an argmax or eigenvectors",
}


def main() -> int:
    """Audits every model, prints one line per kind and every model that was judged wrongly; 300 write the page."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--count", type=int, default=COUNT, help="models of each kind")
    arguments.add_argument("--only", nargs="*", default=list(WRONG), choices=list(WRONG))
    arguments.add_argument("--render", action="store_true", help="run nothing: the page of what the records hold")
    options = arguments.parse_args()
    kept = options.count == COUNT or options.render
    records = read() if kept else []
    if not options.render:
        records = run(options.only, options.count, records, keep=kept)
    if kept:
        PAGE.write_text(page(records), encoding="utf-8")
    for kind in options.only:
        print(f"{kind}: {summary(kind, records)}", flush=True)
    return 1 if any(wrong(one) for one in records) else 0


def run(kinds: list[str], count: int, records: list[dict[str, Any]], *, keep: bool) -> list[dict[str, Any]]:
    """Audits what the records of this revision lack, all kinds in turn; each is kept as soon as it is judged."""
    sys.path.insert(0, str(ROOT / "tests" / "planted" / "symmetry"))
    import torch
    from planted_symmetry import crowds

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    now = revision()
    records = [one for one in records if one["revision"] == now]
    done = {(one["kind"], one["number"]) for one in records}
    if keep:
        RECORDS.parent.mkdir(parents=True, exist_ok=True)
        RECORDS.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    for number in range(count):
        for kind in kinds:
            if (kind, number) in done:
                continue
            member = getattr(crowds, kind)(number)
            finding = crowds.audited(member, seed=number)
            record = {"kind": kind, "number": number, "revision": now, "model": member.name,
                      "verdict": finding.verdict.value, "reason": finding.reason}  # fmt: skip
            records.append(record)
            if keep:
                with RECORDS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
            if wrong(record):
                print(f"  {kind} {number}: {record['verdict']}: {record['reason']}", flush=True)
    return records


def read() -> list[dict[str, Any]]:
    """The records that are kept."""
    return [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()] if RECORDS.exists() else []


def wrong(record: dict[str, Any]) -> bool:
    """Is the verdict one that this kind must not get?"""
    return record["verdict"] in WRONG[record["kind"]]


def summary(kind: str, records: list[dict[str, Any]]) -> str:
    """How many models of a kind were judged, how, and how many wrongly."""
    mine = [one for one in records if one["kind"] == kind]
    seen = ", ".join(f"{count} {verdict}" for verdict, count in Counter(one["verdict"] for one in mine).most_common())
    return f"{len(mine)} models, {seen or 'none judged'}; judged wrongly: {sum(map(wrong, mine))}"


def page(records: list[dict[str, Any]]) -> str:
    """The page: a row per kind, then every model that was judged wrongly, and every clean one that did not pass."""
    verdicts = sorted({one["verdict"] for one in records})
    lines = [
        "# Symmetry auditor: crowds of random models",
        "",
        "Written by `python benchmarks/symmetry_crowds.py`; do not edit. Small random models whose answer is known by",
        "construction, each given a small full audit (8 inputs, 8 elements). A clean model must not FAIL, a broken one",
        "must not PASS. Defects of the auditor that earlier runs brought to light were mended before this run.",
        "",
        f"{len(records)} of {COUNT * len(WRONG)} models. Revision of the code: "
        + (", ".join(sorted({one["revision"] for one in records})) or "none")
        + ".",
        "",
        "| crowd | judged | " + " | ".join(verdicts) + " | must not be | judged wrongly |",
        "|---" * (len(verdicts) + 4) + "|",
    ]
    for kind, title in TITLES.items():
        mine = [one for one in records if one["kind"] == kind]
        counts = " | ".join(str(sum(one["verdict"] == verdict for one in mine)) for verdict in verdicts)
        cells = (title, f"{len(mine)} of {COUNT}", counts, " or ".join(WRONG[kind]), str(sum(map(wrong, mine))))
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## Judged wrongly", ""]
    lines += [sentence(one) for one in records if wrong(one)] or ["None."]
    unsure = [one for one in records if one["kind"] != "jumps" and not wrong(one) and one["verdict"] != "PASS"]
    lines += ["", "## Clean, and neither passed nor failed", ""]
    lines += [sentence(one) for one in unsure] or ["None."]
    return "\n".join(lines) + "\n"


def sentence(record: dict[str, Any]) -> str:
    """One model, its verdict and the reason."""
    return f"- {record['model']}: {record['verdict']}: {record['reason']}"


if __name__ == "__main__":
    sys.exit(main())
