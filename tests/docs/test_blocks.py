"""Every Python block of the README and the pages runs as it stands, and every command is one the parser knows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from blocks import blocks, run, stale, written
from commands import lines_of, parse
from numbers_in_text import differences

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIALS = [page for page in PAGES if page.parent.name == "tutorials" and page.stem != "index"]
WITH_CODE = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
TRAIN = {*TUTORIALS, ROOT / "docs" / "guides" / "credit.md"}
"""Pages whose code trains for minutes: `make test-slow` runs them."""


Warm = Callable[..., list[str]]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in WITH_CODE if page not in TRAIN], ids=name)
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(page: Path, warm: Warm) -> None:
    assert warm("checked", page=str(page)) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_the_examples_run_as_written(example: Path, warm: Warm) -> None:
    assert warm("script", script=str(example)) == []


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_the_code_of_a_page_needs_nothing_that_another_page_imported(page: Path) -> None:
    """In a process that nobody warmed: a page that leans on a module it did not import fails here."""
    # A page that calls pytest gets the one that a reader has, without the options of this one.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "docs/machinery/blocks.py", "--check", str(page)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_of_a_page_is_one_that_the_parser_knows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shell = [line for block in blocks(text) if block.language == "bash" for line in lines_of(block.code)]
    fences = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.M | re.S)
    loose = [line for fence in [*fences, *re.findall(r"(?:^    .*\n)+", text, flags=re.M)]
             for line in lines_of(fence) if line.startswith("assay ")]
    for line in [*shell, *loose]:
        parse(line)


def test_every_tutorial_starts_with_pip_and_ends_with_a_picture() -> None:
    assert len(TUTORIALS) >= 6
    for page in TUTORIALS:
        text = page.read_text(encoding="utf-8")
        assert text.index("pip install") < text.index("```python"), page
        image = re.findall(r"<!-- picture of .*-->\n!\[.+\]\((.+)\)", text)[-1]
        assert (page.parent / image).is_file(), page
        assert "<!-- output -->" in text, page


@pytest.mark.parametrize("line", [
    "assay verfy", "assay verify --sedes 3", "assay audit symmetry", "make coffee", "frobnicate", "python docs/gone.py",
])
def test_a_command_that_does_not_exist_is_refused(line: str) -> None:
    with pytest.raises(Exception):  # noqa: B017  (the parser's own errors are not public)
        parse(line)


@pytest.mark.parametrize("line", [
    "assay verify 2 --budget standard", "ASSAY_PLUGINS=my_lab assay verify 100 --seeds 10", "make docs",
    "assay bench digits --rules backprop eqprop --seeds 5", "cd web && npm ci", "assay --help",
])
def test_a_command_that_exists_is_accepted(line: str) -> None:
    parse(line)


PAGE = """```python
x = 2
print('PASS', x)
```

<!-- output -->
```text
PASS 2
```

```python
print(x + 1)
```
"""


def test_blocks_share_a_namespace_and_a_stale_output_is_named_and_mended(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    printed = run(page, tmp_path)
    assert printed == ["PASS 2\n", "3\n"] and stale(PAGE, printed) == []
    old = PAGE.replace("PASS 2", "FAIL 2")
    assert len(stale(old, printed)) == 1
    assert written(old, printed) == PAGE


def test_a_block_whose_packages_are_missing_is_left_out_and_keeps_its_output(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("```python\nx = 2", "<!-- needs no_such_package -->\n```python\nx = 2")
                    .replace("print(x + 1)", "print(3)"))
    printed = run(page, tmp_path)
    assert stale(page.read_text(), printed) == [] and written(page.read_text(), printed) == page.read_text()
    assert [block.needs for block in blocks(page.read_text())] == [("no_such_package",), ()]
    page.write_text(page.read_text().replace("no_such_package", "json").replace("PASS 2", "FAIL 2"))
    assert len(stale(page.read_text(), run(page, tmp_path))) == 1, "where they are there, it is run"


def test_a_name_that_a_page_never_defines_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(model)\n```\n")
    with pytest.raises(NameError):
        run(page, tmp_path)


@pytest.mark.parametrize(("shown", "printed", "differ"), [
    ("0.97 of 3", "0.96 of 3", False), ("0.97", "0.71", True), ("error 8e-08", "error 5e-08", False),
    ("error 8e-08", "error 3e-03", True), ("PASS", "FAIL", True), ("a\nb", "a", True), ("w.0.x", "w.1.x", True),
    ("runs/20261118-002243-a18058/x", "runs/20270101-120000-0dd435/x", False), ("53.6 s", "1 min 4 s", False),
])
def test_numbers_may_differ_as_machines_do_and_words_may_not(shown: str, printed: str, differ: bool) -> None:
    assert bool(differences(shown, printed)) is differ
