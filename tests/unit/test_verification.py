"""The whole path: tracks to cells to results to verdicts, and no way to a PASS that was not earned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.errors import InputError
from assay.protocols import Cell, CellEvent, Outcomes
from assay.registry import Track, registry
from assay.results import Finding, Run, Verdict
from assay.studies.verification import decide, plan, verify

HERE = Path(__file__).parent
TOYS = ("toy-good", "toy-statistical", "toy-raises", "toy-killed", "toy-undecidable", "toy-uncalibrated", "toy-fails")


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.syspath_prepend(str(HERE))
    registry.load_module("toy_tracks")
    assert not registry.broken


def executed(log: Path) -> list[str]:
    return sorted(log.read_text().splitlines()) if log.exists() else []


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE))
        patch.syspath_prepend(str(HERE))
        registry.load_module("toy_tracks")
        run = verify(*TOYS, seeds=3, store=tmp_path_factory.mktemp("cells"), workers=2)
    assert Run.from_json(run.to_json()).model_copy(update={"digest": ""}) == run
    assert [finding.name for finding in run.findings] == list(TOYS), "everything asked for is there, in order"
    assert run.verdict is Verdict.ERROR
    return {finding.name: finding for finding in run.findings}


def test_a_healthy_track_passes_and_is_described(everything: dict[str, Finding]) -> None:
    good = everything["toy-good"]
    assert good.verdict is Verdict.PASS
    assert (good.number, good.claim, good.seeds) == (9100, "seeds are positive", (42, 43, 44))
    assert good.rerun == "assay verify 9100 --budget quick --seeds 3 --seed 42"


@pytest.mark.parametrize(
    ("name", "kind", "part"),
    [
        ("toy-raises", "ArithmeticError", "planted in seed 43"),
        ("toy-killed", "WorkerDied", "signal 9"),
        ("toy-undecidable", "KeyError", "planted in decide"),
    ],
)
def test_a_crash_is_an_error_with_its_reason(everything: dict[str, Finding], name: str, kind: str, part: str) -> None:
    finding = everything[name]
    assert finding.verdict is Verdict.ERROR
    assert [failure.kind for failure in finding.failures] == [kind]
    assert part in finding.failures[0].message


def test_an_uncalibrated_check_proves_nothing(everything: dict[str, Finding]) -> None:
    assert everything["toy-uncalibrated"].verdict is Verdict.INCONCLUSIVE
    assert "not calibrated" in everything["toy-uncalibrated"].reason


def test_a_failed_claim_fails(everything: dict[str, Finding]) -> None:
    assert everything["toy-fails"].verdict is Verdict.FAIL


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_seeds_never_prove_a_statistical_claim(tmp_path: Path, seeds: int) -> None:
    run = verify("toy-statistical", "toy-good", seeds=seeds, store=tmp_path, workers=1)
    assert [finding.verdict for finding in run.findings] == [Verdict.INCONCLUSIVE, Verdict.PASS]


def test_more_seeds_add_only_their_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("TOY_LOG", str(log))
    verify(9100, seeds=2, store=tmp_path / "cells", workers=1)
    verify(9100, seeds=4, store=tmp_path / "cells", workers=1)
    assert executed(log) == ["control: empty 0", "subject 42", "subject 43", "subject 44", "subject 45"]


def test_the_same_call_gives_the_same_findings(tmp_path: Path) -> None:
    first = verify(9100, 9101, seeds=3, store=tmp_path / "a", workers=2)
    second = verify(9100, 9101, seeds=3, store=tmp_path / "b", workers=1)

    def timeless(run: Run) -> list[Finding]:
        return [finding.model_copy(update={"seconds": 0.0}) for finding in run.findings]

    assert timeless(first) == timeless(second)


def test_fail_fast_stops_and_keeps_the_rest_in_the_denominator(tmp_path: Path) -> None:
    run = verify("toy-fails", "toy-good", seeds=3, store=tmp_path, workers=1, fail_fast=True)
    assert len(run.findings) == 2
    assert run.findings[0].verdict is Verdict.FAIL
    assert run.findings[1].verdict in (Verdict.INCONCLUSIVE, Verdict.PASS)


def test_a_watcher_hears_of_every_cell_and_verdict(tmp_path: Path) -> None:
    class Listener:
        def __init__(self) -> None:
            self.cells = 0
            self.kinds: list[str] = []
            self.verdicts: dict[str, Verdict] = {}

        def planned(self, titles: Mapping[str, str], cells: Mapping[str, Sequence[Cell]]) -> None:
            self.cells = sum(map(len, cells.values()))

        def event(self, event: CellEvent) -> None:
            self.kinds.append(event.kind)

        def decided(self, row: str, finding: Finding) -> None:
            self.verdicts[row] = finding.verdict

    listener = Listener()
    verify(9100, seeds=2, store=tmp_path, workers=1, watcher=listener)
    assert listener.cells == 3 == listener.kinds.count("done") == listener.kinds.count("started")
    assert listener.verdicts == {"9100": Verdict.PASS}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [({"seeds": 0}, "seeds >= 1"), ({"seed": -1}, "seed >= 0"), ({"budget": "huge"}, "unknown budget 'huge'")],
)
def test_bad_arguments_are_refused_before_anything_runs(
    tmp_path: Path, arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        verify(9100, store=tmp_path / "cells", **arguments)
    assert not (tmp_path / "cells").exists()


class Returns:
    """A track whose author gives back something else than was asked for."""

    controls = ("control: empty",)

    def __init__(self, trials: object, decision: object = None) -> None:
        self._trials, self._decision = trials, decision

    def trials(self, budget: object, seeds: object) -> object:
        return self._trials

    def decide(self, outcomes: object) -> object:
        return self._decision


def strange_track(trials: object, decision: object = None) -> Track:
    good = registry.find("toy-good")
    return replace(good, body=Returns(trials, decision))


@pytest.mark.parametrize(("trials", "given"), [(None, "NoneType"), ([], "none"), (["subject"], "str")])
def test_trials_that_are_none_are_one_clear_line(trials: object, given: str) -> None:
    with pytest.raises(InputError, match=f"trials of track 9100 .toy-good. to be one Trial or more; given {given}"):
        plan(strange_track(trials), "quick", (42,))


def test_a_decision_that_is_no_finding_is_an_error_of_its_track_alone() -> None:
    finding = decide(strange_track([], "PASS"), Outcomes(()), (42, 43, 44))
    assert finding.verdict is Verdict.ERROR
    assert "expected decide to return a Finding; given str" in finding.reason
