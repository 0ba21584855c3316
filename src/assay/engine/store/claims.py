"""Which driver runs which cell, when several share a store.

A claim is an object ``claims/<key>.<generation>`` that names its driver; atomic creation makes it exclusive. Every
driver raises a counter in ``drivers/<id>`` while it lives. An observer takes a claim over when that counter has stood
still for a whole lease *on the observer's own monotonic clock*: no wall clock is read or compared, so clock jumps and
clocks that differ between hosts change nothing. On the same machine a dead process is known at once.

Taking over means creating the next generation, which again only one observer can do. A driver that was merely asleep
may then finish a cell that another runs too: the work is done twice, the result is the same, nothing is lost.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from assay.engine.store.backend import Backend

LEASE_SECONDS = 60.0
BEATS_PER_LEASE = 6


class Claims:
    """The claims of one driver on the cells of a store. Use as a context: leaving it gives every claim back."""

    def __init__(
        self, backend: Backend, *, lease: float = LEASE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._backend = backend
        self._lease = lease
        self._clock = clock
        self.driver = uuid.uuid4().hex
        self._signature = json.dumps({
            "driver": self.driver, "host": socket.gethostname(), "machine": _machine(), "pid": os.getpid(),
            "since": _started(os.getpid()),
        }).encode()
        self._held: dict[str, int] = {}
        self._seen: dict[str, tuple[int | None, float]] = {}
        self._dead: set[str] = set()
        self._beats = 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, key: str) -> bool:
        """True if the cell is now this driver's to run; False while a living driver holds it."""
        self._live()
        if self._backend.create(_claim(key, 0), self._signature):
            self._held[key] = 0
            return True
        generation, holder = 0, self._holder(key, 0)
        while (later := self._backend.read(_claim(key, generation + 1))) is not None:
            generation, holder = generation + 1, _parse(later)
        if holder.get("driver") == self.driver:
            return True
        if not self._gone(holder, _claim(key, generation)):
            return False
        if not self._backend.create(_claim(key, generation + 1), self._signature):
            return False
        self._held[key] = generation + 1
        return True

    def release(self, key: str) -> None:
        """Give a cell back: after its result is in the store, or when it failed."""
        generation = self._held.pop(key, None)
        if generation is not None:
            # The latest first: as long as generation 0 stands, nobody begins anew beside those that are left.
            for each in range(generation, -1, -1):
                self._backend.delete(_claim(key, each))

    def take_all(self, keys: Sequence[str]) -> list[bool]:
        """``take`` of every key, at once where the backend gains by it."""
        self._live()
        return self._backend.map(self.take, keys)

    def release_all(self, keys: Sequence[str]) -> None:
        """``release`` of every key, at once where the backend gains by it."""
        self._backend.map(self.release, keys)

    @property
    def together(self) -> int:
        """How many claims are worth making at once."""
        return self._backend.calls

    def close(self) -> None:
        """Give everything back and remove this driver's heartbeat and those of drivers found dead."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self.release_all(list(self._held))
            self._bury()
            for driver in (self.driver, *self._dead):
                self._backend.delete(_heartbeat(driver))

    def _bury(self) -> None:
        """Remove claims that a dead driver of this machine left on cells it had already stored."""
        for name in list(self._backend.names("claims/")):
            holder = _parse(self._backend.read(name) or b"")
            if holder.get("machine") == _machine() and not _runs(holder.get("pid"), holder.get("since")):
                self._dead.add(str(holder.get("driver")))
                self._backend.delete(name)

    def _gone(self, holder: dict[str, Any], claim: str) -> bool:
        driver = str(holder.get("driver", claim))  # a claim without readable content is watched under its own name
        if holder.get("machine") == _machine() and not _runs(holder.get("pid"), holder.get("since")):
            self._dead.add(driver)
            return True
        beats = _parse(self._backend.read(_heartbeat(driver)) or b"").get("beats")
        now = self._clock()
        seen, since = self._seen.get(driver, (-1, now))
        if seen != beats:
            self._seen[driver] = (beats, now)
            return False
        if now - since < self._lease:
            return False
        self._dead.add(driver)
        return True

    def _holder(self, key: str, generation: int) -> dict[str, Any]:
        return _parse(self._backend.read(_claim(key, generation)) or b"")

    def _live(self) -> None:
        """Begin to beat, before the first claim is made."""
        if self._thread is None:
            self._beat()
            self._thread = threading.Thread(target=self._keep_beating, name="assay-heartbeat", daemon=True)
            self._thread.start()

    def _keep_beating(self) -> None:
        while not self._ended.wait(self._lease / BEATS_PER_LEASE):
            try:
                self._beat()
            except Exception:
                continue  # a full disk, an absent network: if it lasts a lease others may take over, and lose nothing

    def _beat(self) -> None:
        self._beats += 1
        self._backend.note(_heartbeat(self.driver), json.dumps({"beats": self._beats}).encode())


def _claim(key: str, generation: int) -> str:
    return f"claims/{key}.{generation}"


def _heartbeat(driver: str) -> str:
    return f"drivers/{driver.replace('/', '-')}.json"


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        data = json.loads(raw)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


@cache
def _machine() -> str:
    """The booted system and namespaces in which a process number and start time mean something; else a random name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return " ".join([boot, *(str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("pid", "time"))])
    except OSError:
        return uuid.uuid4().hex


def _started(pid: int) -> str | None:
    """When a process started, in ticks since boot, so that a reused number is not taken for the same process.

    None if there is no such process, or only its remains that its parent has not yet asked about.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return None


def _runs(pid: Any, since: Any) -> bool:
    return isinstance(pid, int) and since is not None and _started(pid) == since
