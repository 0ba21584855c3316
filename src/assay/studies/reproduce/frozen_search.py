"""Why the published frozen-blocks baseline is lower than ours: the runs, continued where they were stopped.

python -m assay.studies.reproduce.frozen_search screen --epochs 6
python -m assay.studies.reproduce.frozen_search full --reading 'frozen embedding: signal' --epochs 30 --seeds 42 123 456
python -m assay.studies.reproduce.frozen_search vit --epochs 2
python -m assay.studies.reproduce.frozen_search page > docs/results/fa-frozen.md
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from assay.engine import cell_key
from assay.protocols import Cell
from assay.studies.reproduce.experiment import TIMEOUT
from assay.studies.reproduce.frozen_runs import Learns, VitBaseline, screening
from assay.studies.reproduce.published import SEEDS
from assay.studies.reproduce.readings import parse_reading
from assay.studies.reproduce.search import full_plan, run_cells, run_search
from assay.tasks.files import content_digest

CELL = "assay.studies.reproduce.frozen_runs:vit_cell"
RECORDS = Path("docs/results/data/fa-frozen")


def vit_cells(runs: Iterable[VitBaseline], *, data: str | None = None) -> list[Cell]:
    """One cell per ViT baseline."""
    digest = content_digest("cifar10", root=data)
    return [Cell(key=cell_key(CELL, {"run": asdict(run), "data": digest}), target=CELL,
                 payload={**asdict(run), "data": data}, label=vit_name(run), group=f"vit/{run.epochs}", timeout=TIMEOUT)
            for run in runs]


def vit_name(run: VitBaseline) -> str:
    """The file name of a ViT baseline."""
    return f"vit-{run.learns}-{run.epochs}ep-seed{run.seed}"


def missing_vit(runs: Iterable[VitBaseline], records: Path) -> list[VitBaseline]:
    """Those whose record is not in the folder."""
    def there(run: VitBaseline) -> bool:
        path = records / f"{vit_name(run)}.json"
        return path.exists() and json.loads(path.read_text(encoding="utf-8")).get("vit") == asdict(run)

    return [run for run in runs if not there(run)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one step; exit code 4 when a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("screen", "full", "vit", "page"))
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[SEEDS[0]])
    parser.add_argument("--arms", nargs="+", default=["frozen"], choices=("frozen", "bp"))
    parser.add_argument("--reading", action="append", type=parse_reading, default=[], help="with full: as the page "
                        "writes it ('frozen embedding: signal; norms: fixed')")
    parser.add_argument("--learns", nargs="+", default=list(get_args(Learns)), choices=get_args(Learns))
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--main", type=Path, default=Path("docs/results/data/fa-protocol"),
                        help="records of the main table")
    parser.add_argument("--store", type=Path, default=Path("assay-runs") / "cells")
    parser.add_argument("--data", help="folder with cifar-10-batches-bin (default: ASSAY_DATA)")
    asked = parser.parse_args(arguments)
    if asked.step == "page":
        from assay.studies.reproduce.frozen_page import render
        from assay.studies.reproduce.search_page import read_records

        sys.stdout.write(render(read_records(asked.records), read_records(asked.main), asked.records.as_posix()))
        return 0
    if asked.step == "vit":
        runs = [VitBaseline(learns, seed, asked.epochs or 2) for seed in asked.seeds for learns in asked.learns]
        cells = vit_cells(missing_vit(runs, asked.records), data=asked.data)
        return 4 if run_cells(cells, store=asked.store, records=asked.records) else 0
    if asked.step == "screen":
        plan = [run for seed in asked.seeds for run in screening(asked.epochs or 6, seed)]
    else:
        plan = full_plan(asked.reading, epochs=asked.epochs or 30, seeds=asked.seeds, arms=asked.arms)
    return 4 if run_search(plan, store=asked.store, records=asked.records, data=asked.data) else 0


if __name__ == "__main__":
    sys.exit(main())
