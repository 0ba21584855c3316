"""Processes and what they started: found, measured and ended through ``/proc`` (Linux; elsewhere nothing is seen)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import defaultdict
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def descendants(pid: int) -> list[int]:
    """All living processes below ``pid``, parents before their children."""
    children: dict[int, list[int]] = defaultdict(list)
    for name in _processes():
        if (parent := _parent(name)) is not None:
            children[parent].append(int(name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def memory_of(pids: list[int], *, above: int) -> int:
    """Bytes held by processes together, exact where it matters: pages they share count once if the sum is ``above``.

    A sum of resident sizes counts a page as often as it is shared, which is cheap and too much; only when it passes the
    limit is the kernel asked for proportional sizes, which takes it milliseconds.
    """
    resident = sum(_resident(pid) for pid in pids)
    if resident <= above or len(pids) < 2:
        return resident
    proportional = [_proportional(pid) for pid in pids]
    return sum(size if size is not None else _resident(pid) for pid, size in zip(pids, proportional, strict=True))


def end(pids: list[int]) -> None:
    """Kill processes, those first that were started first."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def end_group(pid: int) -> None:
    """Kill a process and all in its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _processes() -> list[str]:
    try:
        return [entry.name for entry in os.scandir("/proc") if entry.name.isdigit()]
    except OSError:
        return []


def _parent(pid: str) -> int | None:
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return None if state in b"ZX" else int(parent)


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE
    except (OSError, ValueError, IndexError):
        return 0


def _proportional(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    except (OSError, ValueError, StopIteration):
        return None
