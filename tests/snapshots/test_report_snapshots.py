"""Reports change only on purpose: each rendering of the fixture run is kept and compared.

After a change that is meant, run with ``ASSAY_UPDATE_SNAPSHOTS=1`` and look at the difference in version control.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from assay.reports.compare import compare
from assay.reports.formats import render
from assay.results import Run, Verdict, load_run

SNAPSHOTS = Path(__file__).parent / "reports"
FIXTURE = Path(__file__).parents[1] / "unit" / "reports" / "fixture" / "rich"


@pytest.fixture(scope="module")
def run() -> Run:
    return load_run(FIXTURE)


def check(name: str, text: str) -> None:
    file = SNAPSHOTS / name
    if os.environ.get("ASSAY_UPDATE_SNAPSHOTS") == "1":
        file.write_text(text, encoding="utf-8")
    assert file.is_file(), f"no snapshot {name}: run with ASSAY_UPDATE_SNAPSHOTS=1"
    assert text == file.read_text(encoding="utf-8"), f"{name} changed: if that is meant, ASSAY_UPDATE_SNAPSHOTS=1"


@pytest.mark.parametrize(
    ("format_name", "file"),
    [
        ("md", "rich.md"),
        ("junit", "rich.xml"),
        ("csv", "rich.csv"),
        ("latex", "rich.tex"),
        ("checklist", "checklist.md"),
        ("citation", "citation.txt"),
    ],
)
def test_the_rendering_is_the_one_kept(run: Run, format_name: str, file: str) -> None:
    check(file, render(run, format_name))


def test_the_page_of_one_claim_is_the_one_kept(run: Run) -> None:
    page = render(run.model_copy(update={"findings": run.findings[1:2], "figures": (), "tables": ()}), "html")
    # Style and script are built elsewhere and carry their own check; the policy holds only their hashes.
    page = re.sub(r"<(style|script)>.*?</\1>", r"<\1></\1>", page, flags=re.S)
    check("claim.html", re.sub(r"'sha256-[^']*'", "'sha256'", re.sub(r"&#39;sha256-.*?&#39;", "'sha256'", page)))


def test_the_comparison_is_the_one_kept(run: Run) -> None:
    later = run.findings[1].model_copy(update={"verdict": Verdict.INCONCLUSIVE, "reason": "fewer seeds"})
    other = run.model_copy(update={"id": "later", "findings": (run.findings[0], later)})
    check("comparison.json", compare(run, other).model_dump_json(indent=1) + "\n")
