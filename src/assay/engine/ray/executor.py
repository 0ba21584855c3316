"""The Ray executor: the same cells, placed by Ray on the nodes of a cluster (extra ``[ray]``).

Every cell is one Ray task with its resource needs. The Ray worker does not run it: it keeps a worker process that
does, as the local executor's do, and enforces the cell's time and memory limits there. So a cell that crashes is an
outcome that comes back from a healthy Ray worker, and only what is really lost (a Ray worker, a node) is tried again.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import shutil
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.engine.identity import own_roots
from assay.engine.ray.node import as_job, run_on_node, versions
from assay.engine.workers.local import RETRIES
from assay.engine.workers.process import result_of
from assay.errors import AssayError, InputError, MissingExtra, expected
from assay.protocols import Cell, CellEvent, CellResult

WAIT_SECONDS = 1.0
CLUSTER_SECONDS = 5.0
OBJECT_STORE_BYTES = 100 << 20
"""Of a Ray started here: records are small and travel in messages, so little shared memory is needed."""


@dataclass(frozen=True)
class RayExecutor:
    """Runs cells on the Ray cluster at ``address`` (``auto``, ``host:port``, ``ray://host:port``), or one started here.

    At most ``workers`` cells (all the cluster's cores by default), and as many again queued, are with Ray at a time:
    the plan itself stays with the driver. A cell whose Ray worker or node is lost is tried ``retries`` times more. One
    that asks for more than any node has waits ``patience`` seconds for an autoscaler to bring a larger one, no longer.
    ``modules`` are packages or modules besides Assay whose code travels with the job, and with them what they import of
    their own; ``working_dir`` is a folder that travels too (data, modules loaded by computed names). With
    ``ship=False`` nothing travels and every node must have the same wheel. Either way each worker checks Python, torch
    and the source of Assay against the driver's before it runs anything.
    """

    address: str | None = None
    workers: int | None = None
    retries: int = 3
    patience: float = 60.0
    modules: tuple[str, ...] = ()
    ship: bool = True
    working_dir: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of ``ray.init``."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise expected("workers >= 1", given=f"workers={self.workers}")
        if self.retries < 0:
            raise expected("retries >= 0", given=f"retries={self.retries}")
        if not self.patience >= 0:
            raise expected("patience >= 0 (seconds)", given=f"patience={self.patience}")
        if importlib.util.find_spec("ray") is None:
            raise MissingExtra("ray", "ray", "the Ray engine")
        if self.address is not None and self.address.startswith("ray://"):
            _show_token()

    def places(self) -> int:
        """How many cells run at once; asks the cluster, if there is an address."""
        import ray

        if self.address is None:
            return self.workers or os.cpu_count() or 1
        started_here = not ray.is_initialized()
        if started_here:
            self._connect()
        try:
            return self._cores()
        finally:
            if started_here:
                ray.shutdown()

    def _cores(self) -> int:
        import ray

        resources: dict[str, float] = ray.cluster_resources()
        cores = int(resources.get("CPU", 0))
        return max(1, min(cores, self.workers or cores))

    def run(self, cells: Iterable[Cell], *, notify: Callable[[CellEvent], None]) -> Iterator[Sequence[CellResult]]:
        """Results as they are ready, those ready together in one batch; leaving early cancels what is under way."""
        import ray

        started_here = not ray.is_initialized()
        if started_here:
            self._connect()
        flight = _Flight(self, iter(cells), notify)
        try:
            flight.fill()
            while flight.under_way:
                batch = flight.collect()
                flight.fill()  # before the batch is written, so that no worker waits for the disk
                if batch:
                    yield batch
        finally:
            flight.cancel()
            if started_here:
                ray.shutdown()

    def _connect(self) -> None:
        import ray

        options: dict[str, Any] = {
            "include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR,
            "configure_logging": False, "runtime_env": self._environment(), **self.options,
        }
        if self.address is not None:
            options["address"] = self.address
            options.pop("include_dashboard")
        else:
            if shutil.which("bash") is None:  # or cells would wait for workers for ever
                raise expected("bash on this machine: Ray starts its workers by it", given="none on the PATH",
                               do="install bash, or use the workers of this machine without Ray")
            options.setdefault("num_cpus", self.workers or os.cpu_count())
            options.setdefault("object_store_memory", OBJECT_STORE_BYTES)
            options.setdefault("address", "local")
        try:
            ray.init(**options)
        except Exception as error:  # Ray raises plain ones too, as when a node does not come up in time
            place = self.address or "this machine"
            check = f"ray status --address {self.address or 'auto'}"
            raise AssayError(f"cannot start or reach Ray at {place}: {error}; check: {check}") from None

    def _environment(self) -> dict[str, Any]:
        """What travels with the job: nothing but search paths on this machine, source folders to another."""
        variables = {"RAY_DISABLE_IMPORT_WARNING": "1"}
        if self.address is None:
            paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
            return {"env_vars": {**variables, "PYTHONPATH": paths}}
        if not self.ship:
            return {"env_vars": variables}
        roots = [name.partition(".")[0] for name in self.modules]
        names = dict.fromkeys(["assay", *roots, *own_roots(["assay", *self.modules])])
        sent: dict[str, Any] = {"env_vars": variables, "py_modules": [_source(name) for name in names]}
        return sent if self.working_dir is None else {**sent, "working_dir": self.working_dir}


def _show_token() -> None:
    """Let Ray show the token of a cluster, which it does by itself as a node of it but not as a client.

    It reads this when it is imported: later is too late.
    """
    places = (os.environ.get("RAY_AUTH_TOKEN_PATH", ""), "~/.ray/auth_token")
    known = "RAY_AUTH_TOKEN" in os.environ or any(path and Path(path).expanduser().is_file() for path in places)
    if known:
        os.environ.setdefault("RAY_AUTH_MODE", "token")


class _Flight:
    """The cells that are with Ray, and what became of them."""

    def __init__(self, executor: RayExecutor, cells: Iterator[Cell], notify: Callable[[CellEvent], None]) -> None:
        import ray

        self._ray = ray
        self._executor = executor
        self._cells = cells
        self._notify = notify
        self._task = ray.remote(run_on_node)
        self._versions = ray.put(versions())
        self._cells_of: dict[Any, Cell] = {}
        self._queued: deque[Any] = deque()
        self._started: dict[Any, float] = {}
        self._again: list[Cell] = []
        self._losses: Counter[str] = Counter()
        self._too_large: dict[Any, float] = {}
        """Tasks that no node can run, and since when they wait for one."""
        self._nodes: list[Mapping[str, float]] = []
        self._places = 1
        self._counted = -CLUSTER_SECONDS

    @property
    def under_way(self) -> bool:
        return bool(self._cells_of)

    def fill(self) -> None:
        """Keep Ray supplied: a cell for every core and as many waiting, so that no core waits for this driver."""
        places = self._count_places()
        while len(self._cells_of) < 2 * places:
            cell = self._again.pop() if self._again else next(self._cells, None)
            if cell is None:
                break
            self._submit(cell)
        while self._queued and len(self._started) < places:
            reference = self._queued.popleft()
            if reference in self._cells_of:
                self._start(reference)

    def collect(self) -> list[CellResult]:
        """The results that are ready now; waits a moment for the first."""
        references = list(self._cells_of)
        ready, _ = self._ray.wait(references, num_returns=1, timeout=WAIT_SECONDS)
        if ready:
            more, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
            ready = more
        batch = []
        for reference in ready:
            if (result := self._take(reference)) is not None:
                batch.append(result)
        batch += self._hopeless()
        for result in batch:
            self._notify(CellEvent("failed" if result.failure else "done", result.cell, result.seconds))
        return batch

    def cancel(self) -> None:
        """Stop everything under way, and the workers that run it."""
        for reference in self._cells_of:
            self._ray.cancel(reference, force=True)
        self._cells_of.clear()

    def _submit(self, cell: Cell) -> None:
        needs = {"num_cpus": cell.cpus, "num_gpus": cell.gpus, "memory": cell.memory}
        task = self._task.options(**needs, max_retries=0, name=cell.label)  # this driver counts the retries
        reference = task.remote(self._versions, as_job(cell))
        self._cells_of[reference] = cell
        self._queued.append(reference)
        if not any(_fits(cell, node) for node in self._nodes):
            self._too_large[reference] = time.monotonic()

    def _start(self, reference: Any) -> None:
        """Ray does not tell when a task begins; the oldest ones it has cores for are taken to be running."""
        cell = self._cells_of[reference]
        self._started[reference] = time.monotonic()
        if not self._losses[cell.key]:
            self._notify(CellEvent("started", cell))

    def _take(self, reference: Any) -> CellResult | None:
        """The result of a finished task, or None if its worker was lost and it will be tried again."""
        from ray import exceptions

        if reference not in self._started:
            self._start(reference)
        cell = self._cells_of.pop(reference)
        seconds = time.monotonic() - self._started.pop(reference)
        retries = RETRIES
        try:
            outcome: dict[str, Any] = self._ray.get(reference)
        except (
            exceptions.WorkerCrashedError, exceptions.NodeDiedError, exceptions.LocalRayletDiedError,
            exceptions.ObjectLostError, exceptions.OutOfMemoryError, exceptions.TaskCancelledError,
            exceptions.RaySystemError,
        ) as error:
            message = f"the Ray worker or node running this cell was lost: {str(error).strip().splitlines()[0]}"
            outcome = {"kind": "WorkerDied", "message": message, "seconds": seconds, "lost": True}
            retries = self._executor.retries
        except exceptions.RayError as error:
            outcome = {"kind": type(error).__name__, "message": str(error), "seconds": seconds}
        if "mismatch" in outcome:
            raise AssayError(outcome["mismatch"])
        if outcome.get("lost"):
            self._losses[cell.key] += 1
            if self._losses[cell.key] <= retries:
                self._again.append(cell)
                return None
            outcome["message"] += f" ({self._losses[cell.key]} times)"
        return result_of(cell, outcome)

    def _hopeless(self) -> list[CellResult]:
        """Failures of the cells that waited long enough for a node that could run them."""
        if not self._too_large:
            return []
        self._count_places()
        results = []
        for reference, since in list(self._too_large.items()):
            cell, waited = self._cells_of.get(reference), time.monotonic() - since
            if cell is None or any(_fits(cell, node) for node in self._nodes):
                del self._too_large[reference]
            elif waited >= self._executor.patience:
                del self._too_large[reference], self._cells_of[reference]
                self._started.pop(reference, None)
                self._ray.cancel(reference, force=True)
                message = f"asked for {_needs(cell)}; the largest of {len(self._nodes)} nodes has {_most(self._nodes)}"
                results.append(result_of(cell, {"kind": "TooLarge", "message": message, "seconds": 0.0}))
        return results

    def _count_places(self) -> int:
        if time.monotonic() - self._counted >= CLUSTER_SECONDS:
            self._counted = time.monotonic()
            self._places = self._executor._cores()
            nodes: list[dict[str, Any]] = self._ray.nodes()
            self._nodes = [node["Resources"] for node in nodes if node["Alive"]]
        return self._places


def _fits(cell: Cell, node: Mapping[str, float]) -> bool:
    asked = {"CPU": cell.cpus, "GPU": cell.gpus, "memory": float(cell.memory or 0)}
    return all(amount <= node.get(name, 0.0) for name, amount in asked.items())


def _needs(cell: Cell) -> str:
    return _amounts(cell.cpus, cell.gpus, float(cell.memory or 0))


def _most(nodes: Sequence[Mapping[str, float]]) -> str:
    """The largest amount of each resource on any node."""
    return _amounts(*(max((node.get(name, 0.0) for node in nodes), default=0.0) for name in ("CPU", "GPU", "memory")))


def _amounts(cpus: float, gpus: float, memory: float) -> str:
    return f"{cpus:g} cpus, {gpus:g} gpus, {memory / 2**20:.0f} MiB of memory"


def _source(name: str) -> str:
    """The folder or file of a module, to be sent to the nodes."""
    spec = importlib.util.find_spec(name)
    if spec is None or not (spec.submodule_search_locations or spec.origin):
        raise InputError(f"module '{name}' has no source that could be sent to the nodes; given modules={name!r}")
    folders = list(spec.submodule_search_locations or [])
    return folders[0] if folders else str(spec.origin)
