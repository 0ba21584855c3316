"""The search over readings as engine cells: continued where it was stopped, one record per finished run.

python -m assay.studies.reproduce.search screen --epochs 3 --records docs/results/data/fa-readings
python -m assay.studies.reproduce.search full --top 3 --epochs 30 --records docs/results/data/fa-readings
python -m assay.studies.reproduce.search page --records docs/results/data/fa-readings > docs/results/fa-readings.md
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assay.engine import LocalExecutor, Store, cell_key, execute
from assay.protocols import Cell
from assay.studies.reproduce.experiment import TIMEOUT
from assay.studies.reproduce.published import SEEDS
from assay.studies.reproduce.reading_runs import ARMS, ReadingRun
from assay.studies.reproduce.readings import Reading, acts_on, design, parse_reading
from assay.tasks.files import content_digest

CELL = "assay.studies.reproduce.reading_runs:reading_cell"
SCREEN_EPOCHS, FULL_EPOCHS = 3, 30


def screen_plan(
    epochs: int = SCREEN_EPOCHS, *, seeds: Sequence[int] = SEEDS, arms: Sequence[str] = ARMS
) -> list[ReadingRun]:
    """The design, arm by arm, then the mirrored design, then the default reading at the other seeds.

    What decides most comes first: direct feedback, where the published figures are furthest from ours.
    """
    first = seeds[0]
    plan = [ReadingRun(arm=arm, reading=reading, seed=first, epochs=epochs)  # type: ignore[arg-type]
            for mirrored in (False, True) for arm in arms for reading in design(mirrored=mirrored)]
    plan += [ReadingRun(arm=arm, reading=Reading(), seed=seed, epochs=epochs)  # type: ignore[arg-type]
             for seed in seeds[1:] for arm in arms]
    return plan


def full_plan(
    readings: Iterable[Reading], *, epochs: int, seeds: Sequence[int] = SEEDS, arms: Sequence[str] = ARMS,
    penalty: float = 0.0,
) -> list[ReadingRun]:
    """Every arm that a reading acts on, at full length: all readings at the first seed before any second one."""
    wanted = list(readings)
    return [ReadingRun(arm=arm, reading=reading, seed=seed, epochs=epochs, penalty=penalty)  # type: ignore[arg-type]
            for seed in seeds for reading in wanted for arm in arms if acts_on(reading, arm)]


def make_cells(runs: Iterable[ReadingRun], *, data: str | None = None) -> list[Cell]:
    """One cell per run, keyed by the run, the code that trains it and the data."""
    digest = content_digest("cifar10", root=data)
    return [
        Cell(
            key=cell_key(CELL, {"run": asdict(run), "data": digest}),
            target=CELL,
            payload={**asdict(run), "data": data},
            label=run_name(run),
            group=f"reading/{run.arm}/{run.epochs}",
            timeout=TIMEOUT,
        )
        for run in dict.fromkeys(runs)
    ]


def run_name(run: ReadingRun) -> str:
    """A short file name: arm, epochs, seed, a digest of the reading, and settings that differ from the recipe."""
    digest = hashlib.sha256(json.dumps(asdict(run.reading), sort_keys=True).encode()).hexdigest()[:8]
    penalty = f"-lambda{run.penalty:g}" if run.penalty else ""
    others = (part for part in run.settings if not part.startswith("penalty"))
    settings = "".join("-" + re.sub(r"[ :]+", "", part) for part in others)
    return f"{run.arm}{penalty}{settings}-{run.epochs}ep-{digest}-seed{run.seed}"


def run_search(runs: Sequence[ReadingRun], *, store: Path, records: Path, data: str | None = None) -> int:
    """Train what is missing, writing each record as it comes; returns the number of runs that failed."""
    missing = [run for run in dict.fromkeys(runs) if not recorded(run, records)]
    return run_cells(make_cells(missing, data=data), store=store, records=records)


def run_cells(cells: Sequence[Cell], *, store: Path, records: Path) -> int:
    """Compute cells one after the other, each record written at once under its label; the number that failed."""
    records.mkdir(parents=True, exist_ok=True)
    failed = 0
    for result in execute(cells, store=Store(store), executor=LocalExecutor(1), notify=lambda event: None):
        if result.record is None:
            failed += 1
            said = result.failure.message if result.failure else "no result"
            sys.stderr.write(f"{result.cell.label}: {said}\n")
            continue
        text = json.dumps(_rounded(dict(result.record)), indent=1) + "\n"
        (records / f"{result.cell.label}.json").write_text(text, encoding="utf-8")
        sys.stdout.write(f"{result.cell.label}: accuracy {result.record['accuracy']:.3f}\n")
        sys.stdout.flush()
    return failed


def recorded(run: ReadingRun, records: Path) -> bool:
    """Whether the folder holds this very run: a clone without the store of cells does not train it again."""
    path = records / f"{run_name(run)}.json"
    return path.exists() and run_of(json.loads(path.read_text(encoding="utf-8"))) == run


def run_of(record: Mapping[str, Any]) -> ReadingRun:
    """The run that a record tells of."""
    return ReadingRun(**{**record["run"], "reading": Reading(**record["run"]["reading"])})


def _rounded(value: Any) -> Any:
    """Six digits are more than any figure needs."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one step; exit code 4 when a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("screen", "full", "page"))
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--top", type=int, default=3, help="how many readings to train at full length")
    parser.add_argument("--reading", action="append", type=parse_reading,
                        help="with full: this reading instead, as the page writes it ('length: unit; decay: 0')")
    parser.add_argument("--penalty", type=float, default=0.0, help="with full: lambda of the penalty sweep")
    parser.add_argument("--records", type=Path, default=Path("docs/results/data/fa-readings"))
    parser.add_argument("--main", type=Path, default=Path("docs/results/data/fa-protocol"),
                        help="records of the main table")
    parser.add_argument("--store", type=Path, default=Path("assay-runs") / "cells")
    parser.add_argument("--data", help="folder with cifar-10-batches-bin (default: ASSAY_DATA)")
    asked = parser.parse_args(arguments)
    if asked.step == "page":
        from assay.studies.reproduce.search_page import our_figures, read_records, render

        sys.stdout.write(render(read_records(asked.records), asked.records.as_posix(), our_figures(asked.main)))
        return 0
    if asked.step == "screen":
        runs = screen_plan(asked.epochs or SCREEN_EPOCHS, seeds=asked.seeds, arms=asked.arms)
    else:
        from assay.studies.reproduce.search_page import candidates, our_figures, read_records

        chosen = asked.reading or candidates(read_records(asked.records), our_figures(asked.main), asked.top)
        runs = full_plan(chosen, epochs=asked.epochs or FULL_EPOCHS, seeds=asked.seeds, arms=asked.arms,
                         penalty=asked.penalty)
    return 4 if run_search(runs, store=asked.store, records=asked.records, data=asked.data) else 0


if __name__ == "__main__":
    sys.exit(main())
