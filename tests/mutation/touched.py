"""Which tests run which lines of a room: a change is shown first to the tests that run it, the quickest first.

Only what runs in the process of the tests is seen. A change that none of these tests notices is therefore shown to all
tests of its room before it counts as a survivor: worker processes run lines that nobody saw.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

Trace = Callable[[FrameType, str, Any], Any]


class Recorder:
    """A pytest plugin: lines of the files under ``home`` that every passing test ran, and how long it took."""

    def __init__(self, home: Path) -> None:
        self.home = str(home)
        self.now: set[tuple[str, int]] = set()
        self.lines: dict[str, list[tuple[str, int]]] = {}
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Watch one test from its fixtures to its end."""
        self.now = set()
        begun = time.perf_counter()
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self.lines[item.nodeid] = sorted(self.now)
            self.seconds[item.nodeid] = time.perf_counter() - begun

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails while it is watched tells nothing."""
        if report.failed:
            self.failed.add(report.nodeid)

    def record(self) -> dict[str, Any]:
        """The tests that ran every line, quickest first, {file: {line: [test, ...]}}, and the seconds of every test."""
        found: dict[str, dict[str, list[str]]] = {}
        for test in sorted(self.seconds, key=self.seconds.__getitem__):
            for file, line in self.lines[test] if test not in self.failed else ():
                found.setdefault(str(Path(file).relative_to(self.home)), {}).setdefault(str(line), []).append(test)
        return {"lines": found, "seconds": self.seconds}

    def _call(self, frame: FrameType, event: str, argument: Any) -> Trace | None:
        return self._line if frame.f_code.co_filename.startswith(self.home) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Trace:
        self.now.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line


def tests_of(found: dict[str, Any], file: str, lines: range, *, seconds: float) -> dict[str, float]:
    """The quickest tests that ran one of these lines, for so long together, and how long each took.

    For a line that only an import runs: those that ran any line of the file.
    """
    by_line = found.get("lines", {}).get(file, {})
    exact = {test for line in lines for test in by_line.get(str(line), ())}
    tests = exact or {test for tests in by_line.values() for test in tests}
    chosen: dict[str, float] = {}
    for test in sorted(tests, key=lambda one: float(found["seconds"][one])):
        if chosen and sum(chosen.values()) > seconds:
            break
        chosen[test] = float(found["seconds"][test])
    return chosen
