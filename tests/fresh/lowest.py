"""The lowest versions that pyproject.toml allows, as a constraints file: what it promises is what is tested.

    python3 tests/fresh/lowest.py > lowest.txt && pip install -c lowest.txt -e ".[test]"
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ANY_WILL_DO = ("ruff", "mypy", "import-linter")
"""Tools that read the code and are not part of it: run once, in their newest version."""


def lowest(project: dict[str, Any]) -> list[str]:
    """``name==bound`` for every requirement of the project and its extras."""
    lines = [*project["dependencies"], *(line for lines in project["optional-dependencies"].values() for line in lines)]
    bounds: dict[str, str] = {}
    for line in lines:
        ((name, bound),) = re.findall(r"^([\w.-]+)(?:\[[^]]*\])?(?:>=([\w.]+))?", line)
        if name == project["name"] or name in ANY_WILL_DO:
            continue
        if not bound or bounds.setdefault(name, bound) != bound:
            raise SystemExit(f"pyproject.toml: expected one lower bound for {name}; given {line}")
    return [f"{name}=={bound}" for name, bound in sorted(bounds.items())]


if __name__ == "__main__":
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    sys.stdout.write("\n".join(lowest(settings["project"])) + "\n")
