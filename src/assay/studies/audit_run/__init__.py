"""A run looked at by somebody else: does every page say what its cells say, and do the cells come out again?"""

from __future__ import annotations

import secrets
import time
from pathlib import Path

from assay.engine import Store
from assay.errors import InputError, expected
from assay.protocols import Executor, Watcher
from assay.results import Run, load_run
from assay.studies.audit_run.evidence import WITH_CELLS, trace
from assay.studies.audit_run.findings import judge_files, judge_finding, judge_sample, overview
from assay.studies.audit_run.rerun import recompute, sample
from assay.studies.study import make_run

__all__ = ["audit_run", "find_store"]


def audit_run(
    run: str | Path,
    *,
    store: str | Path | None = None,
    rerun: float = 0.05,
    seed: int | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    watcher: Watcher | None = None,
    command: str | None = None,
) -> Run:
    """An audit of the run in a folder: one finding for every finding of it, one for its files, one for the sample.

    Every finding is decided again from its cells in ``store`` (found beside the run by default), its controls and seeds
    are looked up there, and a random ``rerun`` share of all cells, at least one of each finding, is computed again on
    this machine. ``seed`` fixes the sample; left out, nobody could have known it beforehand. Cells of a key that is not
    here are read and doubted: a finding that rests on them holds once all of them came out the same. The store is left
    as it is.
    """
    if not 0.0 <= rerun <= 1.0:
        raise expected("a share of cells between 0 and 1 to compute again", given=f"rerun={rerun!r}")
    start = time.perf_counter()
    folder = Path(run)
    audited = load_run(folder)
    if not audited.findings:
        raise InputError(f"{folder} holds no findings; there is nothing to audit")
    place = None
    if store is not None or audited.kind in WITH_CELLS:
        place = Store(store if store is not None else find_store(folder, audited), doubting=True)
    traced = [trace(audited, finding, place) for finding in audited.findings]
    drawn = secrets.randbelow(2**31) if seed is None else seed
    compared = recompute(
        sample(traced, share=rerun, seed=drawn), executor=executor, workers=workers, watcher=watcher)
    findings = [judge_finding(each, place, compared) for each in traced]
    findings.append(judge_files(audited, folder))
    findings.append(judge_sample(traced, compared, share=rerun, seed=drawn))
    if command is not None and seed is None:
        command = f"{command} --seed {drawn}"  # else the same command would draw another sample
    return make_run(
        "audit", f"Audit of run {audited.id}", findings, identity={"audited": audited.id, "seed": drawn},
        command=command or f"assay audit-run {folder} --rerun {rerun:.0%} --seed {drawn}",
        budget=audited.budget, seconds=time.perf_counter() - start, figures=(overview(findings),),
        config={
            "run": audited.id, "run digest": audited.digest, "sample seed": drawn, **(place.notes() if place else {}),
        },
    )


def find_store(folder: Path, run: Run | None = None) -> Path:
    """The store a run was most likely answered from: in its folder, or beside it; the one with its plan before others.
    """
    home = folder if folder.is_dir() else folder.parent
    places = [home / "cells", home.parent / "cells", Path("assay-runs") / "cells"]
    found = [place for place in places if place.is_dir()]
    plan = f"plans/{run.config.get('plan')}.json" if run is not None else ""
    if found:
        return next((place for place in found if plan and (place / plan).is_file()), found[0])
    raise InputError(f"no cells found in {', '.join(map(str, places))}; name the store of the run with --store")
