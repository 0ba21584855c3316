"""The reproduction as engine cells: planned, resumable, cached by everything a result depends on, shared between
tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from assay.engine import LocalExecutor, Store, cell_key, execute
from assay.errors import InputError, unknown
from assay.protocols import Cell, CellEvent, Executor, Watcher
from assay.results import Failure
from assay.studies.reproduce.published import SEEDS
from assay.tasks.files import data_root, missing

if TYPE_CHECKING:
    from assay.studies.reproduce.methods import Setting

CELL = "assay.studies.reproduce.methods:train_cell"
METHODS = ("bp", "fa", "dfa", "fa-layer", "dfa-layer")
"""fa and dfa work at block boundaries, as published; ``-layer`` at every layer."""
LAMBDAS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
EPOCHS, PENALTY_EPOCHS = 100, 30
TIMEOUT = 24 * 3600.0


def methods_plan(
    arch: str = "resmlp",
    methods: Sequence[str] = ("bp", "fa", "dfa"),
    seeds: Sequence[int] = SEEDS,
    epochs: int = EPOCHS,
) -> list[Setting]:
    """The main table: each of ``methods`` (any of METHODS) at each seed."""
    from assay.studies.reproduce.methods import Setting

    settings = []
    for seed in seeds:
        for method in methods:
            if method not in METHODS:
                raise InputError(unknown("method", method, METHODS))
            kind, _, level = method.partition("-")
            options: dict[str, Any] = {"method": kind, "level": level or "block"}
            settings.append(Setting(**options, arch=arch, seed=seed, epochs=epochs))
    return settings


def frozen_plan(
    arch: str = "resmlp", seeds: Sequence[int] = SEEDS, epochs: int = EPOCHS, ladder: bool = False
) -> list[Setting]:
    """The frozen-blocks baseline, and with ``ladder`` backprop and DFA on the last 1, 2 and 3 blocks."""
    from assay.studies.reproduce.methods import Setting

    settings = [Setting(method="bp", arch=arch, seed=seed, epochs=epochs, trainable=0) for seed in seeds]
    if ladder:
        settings += [
            Setting(method=method, arch=arch, seed=seed, epochs=epochs, trainable=count)
            for seed in seeds
            for count in (1, 2, 3)
            for method in ("bp", "dfa")
        ]
    return settings


def penalty_plan(
    arch: str = "resmlp", lambdas: Sequence[float] = LAMBDAS, seeds: Sequence[int] = SEEDS, epochs: int = PENALTY_EPOCHS
) -> list[Setting]:
    """DFA at every lambda, and backprop without and with the strongest one up to 0.01."""
    from assay.studies.reproduce.methods import Setting

    strongest = max((value for value in lambdas if value <= 1e-2), default=0.0)
    return [
        *(Setting(method="dfa", arch=arch, seed=s, epochs=epochs, penalty=value) for s in seeds for value in lambdas),
        *(
            Setting(method="bp", arch=arch, seed=s, epochs=epochs, penalty=value)
            for s in seeds
            for value in sorted({0.0, strongest})
        ),
    ]


def whole_plan(
    arch: str = "resmlp", seeds: Sequence[int] = SEEDS, epochs: int = EPOCHS, penalty_epochs: int = PENALTY_EPOCHS
) -> list[Setting]:
    """Everything: main table with layer-level FA, frozen baseline with the depth ladder, penalty sweep."""
    plan = [
        *methods_plan(arch, ("bp", "fa", "dfa", "fa-layer"), seeds, epochs),
        *frozen_plan(arch, seeds, epochs, ladder=True),
        *penalty_plan(arch, seeds=seeds, epochs=penalty_epochs),
    ]
    return list(dict.fromkeys(plan))


def make_cells(settings: Iterable[Setting], *, data: str | None = None, artifacts: str | None = None) -> list[Cell]:
    """One cell per different training run, keyed by the setting, the code and the data, but not by where files live."""
    digest = data_digest(data)
    return [
        Cell(
            key=cell_key(CELL, {"setting": asdict(setting), "data": digest}),
            target=CELL,
            payload={**asdict(setting), "data": data, "artifacts": artifacts},
            label=setting.name,
            group=f"{setting.arch}/{setting.method}/{setting.epochs}",
            timeout=TIMEOUT,
        )
        for setting in dict.fromkeys(settings)
    ]


def run_cells(
    cells: Sequence[Cell], *, store: Store, executor: Executor | None = None, watcher: Watcher | None = None
) -> tuple[list[dict[str, Any]], list[Failure]]:
    """The records of all cells in plan order, and the failures; killed and started again it redoes only what is
    missing.
    """
    if watcher is not None:
        rows: dict[str, list[Cell]] = {}
        for cell in cells:
            rows.setdefault(cell.label.rpartition("-seed")[0], []).append(cell)
        watcher.planned({name: name for name in rows}, rows)
    records: dict[str, dict[str, Any]] = {}
    failures: list[Failure] = []
    stream = execute(
        cells,
        store=store,
        executor=executor or LocalExecutor(1),
        notify=watcher.event if watcher else _ignore,
    )
    for result in stream:
        if result.record is not None:
            records[result.cell.key] = dict(result.record)
        elif result.failure is not None:
            failures.append(result.failure)
    return [records[cell.key] for cell in cells if cell.key in records], failures


def data_digest(folder: str | None) -> str:
    """SHA-256 over the six CIFAR-10 files."""
    base = data_root(folder) / "cifar-10-batches-bin"
    digest = hashlib.sha256()
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        try:
            digest.update((base / name).read_bytes())
        except OSError:
            raise missing("cifar10", name, root=folder) from None
    return digest.hexdigest()


def _ignore(event: CellEvent) -> None:
    del event
