"""Would the tests notice? Lines are changed one at a time in a copy, and the tests of their room must fail.

    .venv/bin/python tests/mutation/mutate.py                    a sample of 300, continued where it was stopped
    .venv/bin/python tests/mutation/mutate.py --room stats --sample 40 --minutes 10
    .venv/bin/python tests/mutation/mutate.py --by tests/unit/stats     what survived, before these tests alone

Results go to tests/mutation/records.jsonl, one line each, keyed by the change and the function or class it was made in:
the same command goes on, what was edited is tried again, and so is a survivor when the tests of its room are others.
Every try is a fork of one process that has imported torch and pytest, and nothing of the package. A change is shown to
those tests that run its line, the quickest, and in a second round to all tests of its room if these did not notice.
Tests that take several times as long as they took without the change count as never ending.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from touched import Recorder, tests_of

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "mutate"
COPY = WORK / "copy"
"""What is changed and tested: sources and tests as they were when the command began."""
PACKAGE = COPY / "src" / "assay"
RECORDS = Path(__file__).with_name("records.jsonl")
ROOMS = {
    "stats": ("tests/unit/stats", "tests/properties"),
    "probe": ("tests/unit/probe",),
    "rules": ("tests/unit/rules", "tests/unit/learning"),
    "engine": ("tests/unit/engine",),
}
"""Tests that must notice a change of a room, besides those of changes that once survived."""
FIRST_ROUND, PATIENCE = 40.0, 4.0
"""Seconds of tests a change is shown to at first; how many times as long they may take with it."""
IDLE = 10.0
"""How many times as long by the clock: what waits for ever uses no processor."""
PASSED, FAILED, HUNG = "passed", "failed", "hung"
ALWAYS = "tests/unit/test_once_survived.py"
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


def main() -> int:
    """Try the sample, tell the kill rate and the survivors; 0 if the rate reaches the limit."""
    options = _options()
    prepare()
    chosen = sample(options.room or list(ROOMS), options.sample, options.seed)
    done = {row["id"]: row for row in recorded()}
    ends = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    _warm()
    if options.by:
        again = (one for one in chosen if one.id in done and not done[one.id]["killed"])
        return _met(again, options.by, options.timeout)
    waiting = [one for one in chosen if not _settled(done.get(one.id), one.room)]
    waiting.sort(key=lambda one: list(ROOMS).index(one.room))
    maps: dict[str, dict[str, Any]] = {}
    # First everything before the tests that run its line; then what they missed before all tests of the room, which
    # takes minutes each. Stopped in between, the rate told is a lower bound.
    for thorough in (False, True)[: options.rounds]:
        for number, one in enumerate(waiting, 1):
            if one.room not in maps and time.monotonic() < ends:
                maps[one.room] = touched(one.room, options.timeout)
            known = maps.get(one.room, {})
            tests = near(one, known)
            limit = PATIENCE * (30 + sum(known["seconds"].values() if thorough else tests.values())) if known else 0.0
            row, shown = done.get(one.id), ("" if thorough else "near ") + tests_hash(one.room)
            seen = _settled(row, one.room) or (row is not None and row["tests"] == shown)
            if time.monotonic() > ends or seen or not (tests or thorough):
                continue
            noticed = fate(one, _tests(one.room) if thorough else list(tests), limit)
            done[one.id] = _record(one, shown, noticed)
            print(f"{number}/{len(waiting)} {'SURVIVED' if noticed == PASSED else 'killed'} {one.told}", flush=True)
    rows = [done[one.id] for one in chosen if one.id in done]
    survivors = [row["change"] for row in rows if not row["killed"]]
    rate = 1 - len(survivors) / max(1, len(rows))
    hung = sum(row.get("fate") == HUNG for row in rows)
    print(f"\n{len(rows)} of {len(chosen)} tried, {rate:.1%} killed ({hung} because no test ended); survivors:")
    print("\n".join(f"  {change}" for change in survivors) or "  none")
    return int(rate < options.limit)


def _met(survivors: Iterable[Change], tests: list[str], timeout: float) -> int:
    """Survivors that these tests notice are recorded as killed; the others stay what they were."""
    for one in survivors:
        noticed = fate(one, tests, timeout)
        if noticed != PASSED:
            _record(one, f"by {' '.join(tests)}", noticed)
        print(f"{'SURVIVED' if noticed == PASSED else 'killed'} {one.told}", flush=True)
    return 0


def _record(one: Change, shown: str, noticed: str) -> dict[str, Any]:
    row = {"id": one.id, "change": one.told, "tests": shown, "killed": noticed != PASSED, "fate": noticed}
    with RECORDS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    return row


@dataclass(frozen=True)
class Change:
    """A change of one line: a name, the file, its number among those of the file, where it stands, and in words."""

    id: str
    path: Path
    index: int
    lines: range
    told: str

    @property
    def room(self) -> str:
        """The folder of the package it stands in."""
        return self.path.relative_to(PACKAGE).parts[0]


def sample(rooms: list[str], size: int, seed: int) -> list[Change]:
    """Changes drawn at random; an edit of one function draws others in that function alone."""
    files = [path for room in rooms for path in sorted((PACKAGE / room).rglob("*.py"))]
    everything = [one for path in files for one in _changes_in(path)]
    return sorted(everything, key=lambda one: hashlib.sha256(f"{seed} {one.id}".encode()).digest())[:size]


def _changes_in(path: Path) -> Iterator[Change]:
    """All changes of a file; a name is another one when the function or class around the change is another one."""
    tree, place = ast.parse(path.read_text(encoding="utf-8")), str(path.relative_to(PACKAGE))
    texts = ((part, ast.unparse(part)) for part in tree.body)
    around = {id(node): text for part, text in texts for node in ast.walk(part)}
    nodes, numbers = list(ast.walk(tree)), Counter[str]()
    for index, (node, _, lines, told) in enumerate(changes_of(tree)):
        text = f"{place} {around[id(nodes[node])]}"
        name = hashlib.sha256(f"{text} #{numbers[text]}".encode()).hexdigest()[:16]
        numbers[text] += 1
        yield Change(name, path, index, lines, f"{place}:{lines[0]}: {told}")


def changes_of(tree: ast.Module) -> Iterator[tuple[int, Callable[[Any], object], range, str]]:
    """The number of a node in the tree, what changes it, its lines and the change in words, for all that can change."""
    silent = {id(node) for one in ast.walk(tree) for node in _silent(one)}
    for index, node in enumerate(ast.walk(tree)):
        if id(node) not in silent and hasattr(node, "lineno"):
            for variant, told in _variants(node):
                yield index, variant, _lines(node), told


def changed(source: str, number: int) -> str:
    """The source with its change of this number made."""
    tree = ast.parse(source)
    index, variant, _, _ = next(islice(changes_of(tree), number, None))
    variant(next(islice(ast.walk(tree), index, None)))
    return ast.unparse(ast.fix_missing_locations(tree))


def _lines(node: ast.AST) -> range:
    first: int = getattr(node, "lineno", 0)
    return range(first, (getattr(node, "end_lineno", None) or first) + 1)


def _variants(node: ast.AST) -> Iterator[tuple[Callable[[Any], object], str]]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        new = SWAPS[type(node.ops[0])]
        yield (lambda n: n.ops.__setitem__(0, new()), f"{type(node.ops[0]).__name__} -> {new.__name__}")
    elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in SWAPS:
        new = SWAPS[type(node.op)]
        yield (lambda n: setattr(n, "op", new()), f"{type(node.op).__name__} -> {new.__name__}")
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield (lambda n: setattr(n, "value", not n.value), f"{node.value} -> {not node.value}")
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield (lambda n: setattr(n, "value", n.value * 2 + 1), f"{node.value} -> {node.value * 2 + 1}")
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
        name = NAMES[node.func.id]
        yield (lambda n: setattr(n.func, "id", name), f"{node.func.id} -> {name}")
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield (lambda n: vars(n).update(op=ast.UAdd(), operand=_truth(n.operand)), "not dropped")
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield (lambda n: setattr(n, "value", ast.Constant(None)), f"call dropped: {ast.unparse(node)[:40]}")


def _truth(operand: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("bool", ast.Load()), [operand], [])


def _silent(node: ast.AST) -> Iterator[ast.AST]:
    """What no test can notice: annotations, what is raised, and text."""
    if isinstance(node, ast.Raise | ast.JoinedStr):
        yield from ast.walk(node)
    for name in ("annotation", "returns"):
        if isinstance(part := getattr(node, name, None), ast.AST):
            yield from ast.walk(part)
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        yield from ast.walk(node)


def recorded() -> list[dict[str, Any]]:
    lines = RECORDS.read_text(encoding="utf-8").splitlines() if RECORDS.exists() else []
    return [json.loads(line) for line in lines]


def prepare() -> None:
    """A copy of sources and tests to be changed at will."""
    shutil.rmtree(COPY, ignore_errors=True)
    for part in ("src", "tests", "docs", "benchmarks", ".ci", ".github"):
        shutil.copytree(ROOT / part, COPY / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "Makefile", "constraints.txt", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, COPY / name)


def fate(change: Change, tests: list[str], timeout: float) -> str:
    """Whether these tests pass, fail, or never end, with this one change."""
    before = change.path.read_text(encoding="utf-8")
    change.path.write_text(changed(before, change.index), encoding="utf-8")
    try:
        return _ended(tests, timeout)
    finally:
        change.path.write_text(before, encoding="utf-8")


def near(change: Change, found: dict[str, Any]) -> dict[str, float]:
    """The quickest tests that run the line of a change, and how long they took."""
    return tests_of(found, str(change.path.relative_to(PACKAGE / change.room)), change.lines, seconds=FIRST_ROUND)


def touched(room: str, timeout: float) -> dict[str, Any]:
    """The tests that run each line of a room, asked once for the same sources and tests; all must pass unchanged."""
    sources = b"".join(path.read_bytes() for path in sorted((PACKAGE / room).rglob("*.py")))
    file = WORK / f"touched-{room}-{tests_hash(room)}-{hashlib.sha256(sources).hexdigest()[:12]}.json"
    if not file.exists():
        watched = (PACKAGE / room, file)
        if _ended(_tests(room), timeout, watched) != PASSED and _ended(_tests(room), timeout) != PASSED:
            raise SystemExit(f"the tests of {room} fail without any change: nothing can be told from them")
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def tests_hash(room: str) -> str:
    """Another text when a test of the room is another one."""
    files = [path for part in _tests(room) for path in ([COPY / part] if part.endswith(".py") else
             sorted((COPY / part).rglob("*.py")))]  # fmt: skip
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def _tests(room: str) -> list[str]:
    return [ALWAYS, *ROOMS[room]]


def _settled(row: dict[str, Any] | None, room: str) -> bool:
    return row is not None and (row["killed"] or row["tests"] == tests_hash(room))


def _ended(tests: list[str], timeout: float, watched: tuple[Path, Path] | None = None) -> str:
    child = os.fork()
    if child == 0:
        _run_tests(tests, watched)
    ends = time.monotonic() + IDLE * timeout
    ended, status = 0, 0
    try:
        # By the processor's clock: beside other work a test that ends may take many times as long by any other.
        while not ended and time.monotonic() < ends and _processor_seconds(child) < timeout:
            ended, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0 if ended else 0.05)
    finally:
        if not ended:  # it hangs, or whoever started this has had enough: it is in a session of its own
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return HUNG if not ended else FAILED if status else PASSED


def _processor_seconds(pid: int) -> float:
    """What a process and the children it has waited for have used."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _run_tests(tests: list[str], watched: tuple[Path, Path] | None) -> None:
    code = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        os.chdir(COPY)
        os.environ["PYTHONPATH"] = str(COPY / "src")
        sys.dont_write_bytecode = True
        sys.path[:] = [str(COPY / "src"), *(part for part in sys.path if part != str(ROOT / "src"))]
        import pytest

        there = [one for one in tests if Path(one.partition("::")[0]).exists()]
        options = ["-q", "-p", "no:cacheprovider", "-m", "not slow and not ray"]
        if watched is None:
            code = int(pytest.main(["-x", *options, *there]))
        else:
            recorder = Recorder(watched[0])
            code = int(pytest.main([*options, *there], plugins=[recorder]))
            watched[1].write_text(json.dumps(recorder.record()), encoding="utf-8")
    finally:
        os._exit(code)


def _warm() -> None:
    """What every try needs and no change can touch; hypothesis is left to pytest, which rewrites it on import."""
    import pytest  # noqa: F401
    import scipy.special
    import scipy.stats  # noqa: F401
    import torch

    torch.set_num_threads(1)
    for name in [name for name in sys.modules if name.split(".")[0] in ("assay", "assay_ml", "assay_pytest")]:
        del sys.modules[name]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", action="append", choices=list(ROOMS), help="only this room (may be repeated)")
    parser.add_argument("--sample", type=int, default=300, help="how many changes")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--minutes", type=float, help="stop after so long; the same command goes on")
    parser.add_argument("--by", nargs="+", default=[], help="show what survived to these tests alone")
    parser.add_argument("--rounds", type=int, default=2, help="1: only before the tests that run the changed line")
    parser.add_argument("--timeout", type=float, default=3000.0, help="seconds for the unchanged tests of a room")
    parser.add_argument("--limit", type=float, default=0.85, help="the share that must be noticed")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
