"""One clear line or one ERROR for each of these, and everything else finishes."""

from __future__ import annotations

import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay import stats
from assay.config import load
from assay.engine import LocalExecutor, Store, content_key, execute
from assay.engine.needs import checked_needs
from assay.errors import AssayError, ConfigError, InputError, SchemaError
from assay.protocols import Cell, CellEvent, CellResult, Outcomes, Trial
from assay.registry import registry, track
from assay.results import Finding, Run, Verdict
from assay.seeding import seeds_of
from assay.studies.verification import verify

HERE = Path(__file__).parent


class Plain:
    controls = ("control: none",)

    def trials(self, budget: str, seeds: Sequence[int]) -> Iterable[Trial]:
        return [Trial("a", seeds[0])]

    def measure(self, trial: Trial) -> dict[str, Any]:
        return {}

    def decide(self, outcomes: Outcomes) -> Finding:
        return Finding(subject="s", claim="c", verdict=Verdict.FAIL, reason="r")


def _raise(*_: object) -> Any:
    raise RuntimeError("planted \udcff")


@pytest.mark.parametrize(("method", "answer", "part"), [
    ("trials", _raise, "planted"), ("trials", lambda *_: 7, "Trial"), ("resources", _raise, "planted"),
    ("resources", lambda *_: {"cpu": 1}, "did you mean 'cpus'"), ("resources", lambda *_: {"timeout": math.nan}, "nan"),
    ("resources", lambda *_: [1], "dict"), ("data_hash", _raise, "planted"), ("siblings", _raise, "planted"),
])
def test_a_track_that_cannot_be_planned_is_an_error_and_the_others_finish(
    method: str, answer: Any, part: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(registry, "tracks", dict(registry.tracks))
    track(9197, "unplanned", claim="c", kind="deterministic")(type("Unplanned", (Plain,), {
        method: lambda self, *given: answer(*given)}))
    track(9198, "planned", claim="c", kind="deterministic")(type("Planned", (Plain,), {}))
    run = verify(9197, 9198, seeds=1, store=tmp_path, executor=_Here())
    assert run.findings[0].verdict is Verdict.ERROR and part in run.findings[0].reason
    assert run.findings[1].verdict is not Verdict.ERROR
    assert Run.from_json(run.to_json()).verdict is Verdict.ERROR, "it can be written, lone surrogates and all"


class _Here:
    """Runs cells in this process."""

    def places(self) -> int:
        return 1

    def run(self, cells: Iterable[Cell], *, notify: Any) -> Iterator[Sequence[CellResult]]:
        for cell in cells:
            notify(CellEvent("done", cell))
            yield [CellResult(cell, {"n": 1}, None, 0.0)]


def test_a_lone_surrogate_in_a_message_is_spelt_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    names = ("surrogate", "wordless")
    cells = [Cell(content_key({"n": name}), f"unruly_cells:{name}", {}, name, "g") for name in names]
    found = {r.cell.label: r for r in execute(cells, store=Store(tmp_path), executor=LocalExecutor(1))}
    failures = [found[name].failure for name in names]
    assert all(failure is not None for failure in failures)
    assert failures[0] and failures[0].message == r"half a pair: \ud800" and failures[0].message.encode()
    assert failures[1] and "could not be made" in failures[1].message


def test_a_deeply_nested_run_is_one_clear_line() -> None:
    with pytest.raises(SchemaError, match="nested too deeply"):
        Run.from_json('{"schema_version": 1, "config": ' + "[" * 200_000 + "]" * 200_000 + "}")


def test_numbers_out_of_all_proportion_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at most 100,000 seeds"):
        seeds_of("quick", count=99_999_999_999, first=42)
    with pytest.raises(InputError, match="alpha between 0"):
        stats.solves(3, 3, 0.9, alpha=1e-320)
    with pytest.raises(ConfigError, match="workers <="):
        load(tmp_path, workers=10**9)
    for timeout in (math.nan, 0.0, -1.0):
        with pytest.raises(AssayError, match="timeout > 0"):
            Cell("0" * 32, "m:f", {}, "l", "g", timeout=timeout)
    assert checked_needs({"gpus": 0, "fresh": True, "memory": None}) == {"gpus": 0, "fresh": True, "memory": None}


def test_gpus_that_do_not_exist_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.engine.workers.local.gpus_here", lambda: 0)
    monkeypatch.syspath_prepend(str(HERE))
    cells = [Cell(content_key({"n": n}), "unruly_cells:pid", {}, f"{n}", "g", gpus=n) for n in range(2)]
    found = {r.cell.label: r for r in execute(cells, store=Store(tmp_path), executor=LocalExecutor(1))}
    assert found["0"].record is not None
    failure = found["1"].failure
    assert failure is not None and failure.kind == "TooLarge" and "this machine has 0" in failure.message
    alone = list(execute(cells[1:], store=Store(tmp_path), executor=LocalExecutor(1)))
    assert len(alone) == 1 and alone[0].failure is not None


def test_too_few_file_descriptors_are_one_clear_line_or_fewer_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    cells = [Cell(content_key({"n": n}), "unruly_cells:pid", {"n": n}, f"{n}", "g") for n in range(12)]
    open_now = len(list(Path("/proc/self/fd").iterdir()))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 22, before[1]))
        found = list(execute(cells, store=Store(tmp_path / "a"), executor=LocalExecutor(12)))
        assert len(found) == 12 and all(result.record is not None for result in found)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    def none_left(**_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("assay.engine.workers.local.WorkerProcess", none_left)
    with pytest.raises(AssayError, match=r"Too many open files; raise the limit \(ulimit -n\)"):
        list(execute(cells, store=Store(tmp_path / "b"), executor=LocalExecutor(2)))


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_change_nothing(closed: str) -> None:
    command = f'"{sys.executable}" -m assay tracks {closed}'
    assert subprocess.run(["sh", "-c", command], timeout=120, check=False).returncode == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_a_run_as_ctrl_c_does(tmp_path: Path, how: signal.Signals) -> None:
    plugin = (
        "import time, pathlib\nfrom assay import Finding, Trial, Verdict, track\n"
        "@track(9199, 'sleeper', claim='c', kind='deterministic')\nclass Sleeper:\n    controls = ('control: x',)\n"
        "    def trials(self, budget, seeds): return [Trial('a', seed) for seed in seeds]\n"
        "    def measure(self, trial):\n"
        "        if trial.seed > 42:\n"
        f"            pathlib.Path({str(tmp_path / 'began')!r}).touch(); time.sleep(600)\n"
        "        return {}\n"
        "    def decide(self, outcomes): ...\n"
    )
    (tmp_path / "sleeper.py").write_text(plugin)
    environment = {**os.environ, "ASSAY_PLUGINS": "sleeper"}
    command = [sys.executable, "-m", "assay", "verify", "sleeper", "--seeds", "2", "--workers", "1", "--out", "run"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(how, signal.SIG_DFL))
    deadline = time.monotonic() + 90
    while not (tmp_path / "began").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(how)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 128 + how and "the same command goes on from there" in said, said
    assert len(list((tmp_path / "run" / "cells").glob("??/*.json"))) == 1
    assert list((tmp_path / "run" / "cells" / "claims").glob("*")) == [], "no lock is left"
