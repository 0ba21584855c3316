"""The guide shows what the code says."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_every_figure_of_the_guide_is_the_output_of_its_example():
    example = DOCS / "examples" / "statistics.py"
    printed = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=True).stdout
    page = (DOCS / "explanations" / "statistics.md").read_text(encoding="utf-8")
    blocks = [block.partition("\n")[2].rstrip() for block in printed.split("# ")[1:]]
    assert len(blocks) == 4
    for block in blocks:
        assert f"```\n{block}\n```" in page
