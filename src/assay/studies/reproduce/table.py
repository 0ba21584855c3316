"""The main table trained piece by piece: each finished run is one record at once, what is recorded is not run again.

python -m assay.studies.reproduce.table --epochs 100 --seeds 42 --only dfa-block bp
python -m assay.studies.reproduce.table --list
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from assay.studies.reproduce.experiment import EPOCHS, PENALTY_EPOCHS, make_cells, whole_plan
from assay.studies.reproduce.published import SEEDS
from assay.studies.reproduce.search import run_cells

if TYPE_CHECKING:
    from assay.studies.reproduce.methods import ProtocolTrial

RECORDS = Path("docs/results/data/fa-protocol")


def missing(settings: Iterable[ProtocolTrial], records: Path) -> list[ProtocolTrial]:
    """The settings whose record is not in the folder."""
    return [setting for setting in settings if not _there(setting, records)]


def chosen(settings: Iterable[ProtocolTrial], only: Sequence[str]) -> list[ProtocolTrial]:
    """The settings of the named arms (as the page names them, ``bp-last1`` or ``vit-frozen``), in that order."""
    return [setting for arm in only for setting in settings if arm_of(setting) == arm]


def arm_of(setting: ProtocolTrial) -> str:
    """The arm as the page names it: without epochs, and on the ResMLP without the architecture."""
    arm = setting.arm.rpartition("-")[0]
    return arm.removeprefix("resmlp-") if setting.arch == "resmlp" else arm


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, one run after the other; exit code 4 when a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--penalty-epochs", type=int, default=PENALTY_EPOCHS)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--only", nargs="+", help="these arms, in this order (default: all, what decides most first)")
    parser.add_argument("--list", action="store_true", help="name what is missing and train nothing")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--store", type=Path, default=Path("assay-runs") / "cells")
    parser.add_argument("--data", help="folder with cifar-10-batches-bin (default: ASSAY_DATA)")
    asked = parser.parse_args(arguments)
    plan = whole_plan(seeds=asked.seeds, epochs=asked.epochs, penalty_epochs=asked.penalty_epochs)
    known = list(dict.fromkeys(map(arm_of, plan)))
    unknown = sorted(set(asked.only or ()) - set(known))
    if unknown:
        parser.error(f"no arm is named {', '.join(unknown)}; there are {', '.join(known)}")
    left = missing(chosen(plan, asked.only) if asked.only else plan, asked.records)
    if asked.list:
        sys.stdout.write("".join(f"{setting.name}\n" for setting in left))
        return 0
    return 4 if run_cells(make_cells(left, data=asked.data), store=asked.store, records=asked.records) else 0


def _there(setting: ProtocolTrial, records: Path) -> bool:
    path = records / f"{setting.name}.json"
    return path.exists() and json.loads(path.read_text(encoding="utf-8"))["setting"] == asdict(setting)


if __name__ == "__main__":
    sys.exit(main())
