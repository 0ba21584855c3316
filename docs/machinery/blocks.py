"""Run the code of the pages as a reader would, from top to bottom, and write what it printed under it.

    python docs/machinery/blocks.py docs/tutorials/*.md     run, write the outputs and take the pictures
    python docs/machinery/blocks.py --check README.md       run, and compare the outputs with the page instead

The Python blocks of a page share one namespace and one empty folder. A block with ``title="name.py"`` is written to
that file instead of being run. A block under ``<!-- needs ase lightning -->`` is left out where one of these is
missing. Shell blocks are run on tutorial pages; elsewhere they are parsed (``commands.py``).
What stands in the ``text`` fence under ``<!-- output -->`` is what the block above it printed, and the picture under
``<!-- picture of report.html: selector -->`` is that part of a file that the page left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import re
import runpy
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from commands import lines_of
from numbers_in_text import differences

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"(?:^<!-- needs (?P<needs>[\w. ]+) -->\n\n?)?"
    r"^```(?P<language>python|bash)(?P<attributes>[^\n]*)\n(?P<code>.*?)^```\n"
    r"(?P<output>\n<!-- output -->\n```text\n(?P<printed>.*?)```\n)?", flags=re.M | re.S)
PICTURE = re.compile(r"<!-- picture of (?P<file>\S+): (?P<selector>.+?) -->\n!\[[^\]]*\]\((?P<image>[^)]+)\)")
NOT_HERE = ("pip ", "git clone", "make ")
"""Commands that make the environment the rest runs in; the one that runs this page is there already."""


LEFT_OUT = "\0"
"""Said of a block that was not run, since something it needs is not installed."""


@dataclass(frozen=True)
class Block:
    """One block of code and what the page says it prints."""

    language: str
    code: str
    file: str
    printed: str | None
    line: int
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> bool:
        """Whether a package that this block needs is not installed."""
        return any(importlib.util.find_spec(name) is None for name in self.needs)


def blocks(text: str) -> list[Block]:
    """The blocks of a page that can be run.

    >>> [block.code for block in blocks("```python\\nx = 1\\n```\\n")]
    ['x = 1\\n']
    """
    return [
        Block(
            found["language"], found["code"], _title(found["attributes"]), found["printed"],
            text.count("\n", 0, found.start("language")) + 1, tuple((found["needs"] or "").split()),
        )
        for found in BLOCK.finditer(text)
    ]


def run(page: Path, folder: Path) -> list[str]:
    """What each block of the page printed; an error names the page and the line."""
    shell = page.parent.name == "tutorials"
    main = types.ModuleType("__main__")
    before, sys.modules["__main__"] = sys.modules["__main__"], main
    printed: list[str] = []
    try:
        with contextlib.chdir(folder), _importable(folder):
            for block in blocks(page.read_text(encoding="utf-8")):
                printed.append(_run(block, page, folder, main.__dict__, shell=shell))
    finally:
        sys.modules["__main__"] = before
    return printed


def _run(block: Block, page: Path, folder: Path, names: dict[str, object], *, shell: bool) -> str:
    if block.missing:
        return LEFT_OUT
    if block.file:
        (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
        (folder / block.file).write_text(block.code, encoding="utf-8")
        return ""
    if block.language == "bash":
        return "".join(_shell(line, folder, page, block) for line in lines_of(block.code)) if shell else ""
    code = compile("\n" * block.line + block.code, str(page), "exec")  # so that a traceback names the line of the page
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, names)
    return out.getvalue()


def _shell(line: str, folder: Path, page: Path, block: Block) -> str:
    """What a command printed. Verdicts other than PASS are answers (1, 3), not failures of the page."""
    if line.startswith(NOT_HERE):
        return ""
    environment = {**os.environ, "COLUMNS": "88", "NO_COLOR": "1", "PYTHONPATH": str(folder)}
    done = subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"{page}:{block.line}: {line}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _title(attributes: str) -> str:
    found = re.search(r'title="([^"]+)"', attributes)
    return found[1] if found else ""


def written(text: str, printed: list[str]) -> str:
    """The page with every output it shows replaced by what was printed."""
    outputs = iter(printed)

    def fresh(found: re.Match[str]) -> str:
        said = next(outputs)
        if found["output"] is None or said == LEFT_OUT:
            return found[0]
        cut = found.start("printed") - found.start(), found.end("printed") - found.start()
        return found[0][: cut[0]] + _tidy(said) + found[0][cut[1] :]

    return BLOCK.sub(fresh, text)


def _tidy(said: str) -> str:
    return "\n".join(line.rstrip() for line in said.strip("\n").splitlines()) + "\n"


def stale(text: str, printed: list[str]) -> list[str]:
    """Where the page shows something else than what was printed."""
    pairs = [(block.line, block.printed, said) for block, said in zip(blocks(text), printed, strict=True)
             if block.printed is not None and said != LEFT_OUT]
    return [f"line {line}: {each}" for line, shown, said in pairs for each in differences(shown, _tidy(said))]


def checked(payload: Mapping[str, str]) -> dict[str, list[str]]:
    """Where a page shows something else than it prints; as a cell of the engine, for a fork of a warm process."""
    page = Path(payload["page"])
    with tempfile.TemporaryDirectory() as folder:
        return {"stale": stale(page.read_text(encoding="utf-8"), run(page, Path(folder)))}


def script(payload: Mapping[str, str]) -> dict[str, list[str]]:
    """Run an example as ``python example.py`` would, in an empty folder; as a cell of the engine."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        sys.argv = [payload["script"]]
        runpy.run_path(payload["script"], run_name="__main__")
    return {"stale": []}


def main() -> None:
    """Run the pages named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="compare, write nothing; exit 1 if a page is stale")
    options = parser.parse_args()
    # A reader's environment is activated: the programs of this Python come first.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    wrong: list[str] = []
    for page in (page.resolve() for page in options.pages):
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            printed = run(page, Path(folder))
            if options.check:
                wrong += [f"{page.relative_to(ROOT)}: {each}" for each in stale(text, printed)]
                continue
            page.write_text(written(text, printed), encoding="utf-8")
            _take_pictures(page, text, Path(folder))
    if wrong:
        raise SystemExit("\n".join(wrong))


def _take_pictures(page: Path, text: str, folder: Path) -> None:
    from pictures import Camera

    wanted = list(PICTURE.finditer(text))
    if wanted:
        with Camera() as camera:
            for found in wanted:
                camera.take(folder / found["file"], found["selector"], page.parent / found["image"])


if __name__ == "__main__":
    main()
