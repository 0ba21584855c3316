"""Evidence of whole runs: what the guard reads from the cells, the controls and the ledger of the store."""

from pathlib import Path

import pytest

from assay.registry import registry
from assay.results import Evidence, Verdict
from assay.studies.verification import verify

HERE = Path(__file__).parent
PASS, INCONCLUSIVE = Verdict.PASS, Verdict.INCONCLUSIVE


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.syspath_prepend(str(HERE))
    registry.load_module("toy_tracks")
    assert not registry.broken


def run(track, store, **more):
    return verify(track, store=store, workers=1, **more).findings[0]


def test_ten_seeds_asked_for_and_one_trial_run_are_smoke(tmp_path):
    finding = run(9111, tmp_path, seeds=10)
    assert (finding.verdict, finding.evidence) == (INCONCLUSIVE, Evidence.SMOKE)
    assert "enough seeds" in {check.name for check in finding.checks}


def test_controls_that_a_track_hands_in_do_not_calibrate_it(tmp_path):
    finding = run(9112, tmp_path, seeds=20)
    assert finding.verdict is INCONCLUSIVE
    assert "calibrated" in {check.name for check in finding.checks}
    assert finding.controls == ()


def test_a_first_look_at_twenty_seeds_spends_all_and_is_confirmed(tmp_path):
    finding = run(9110, tmp_path, seeds=20)
    assert (finding.verdict, finding.evidence) == (PASS, Evidence.CONFIRMED), finding.reason
    assert [(c.name, c.separated) for c in finding.controls] == [("same", True), ("shifted", True)]
    assert finding.measurements[0].interval.confidence == pytest.approx(0.9)


def test_looks_are_remembered_and_a_repeated_command_is_the_same_look(tmp_path):
    first = run(9110, tmp_path, seeds=3)
    second = run(9110, tmp_path, seeds=10)
    again = run(9110, tmp_path, seeds=10)
    confidences = [f.measurements[0].interval.confidence for f in (first, second, again)]
    assert confidences == pytest.approx([1 - 2 * 0.01664, 1 - 2 * 0.01836, 1 - 2 * 0.01836], abs=2e-4)
    assert second.verdict is again.verdict
    assert any("look 2 at this claim, 3 seeds were seen before" in check.reason for check in again.checks)


def test_a_run_that_shops_for_root_seeds_says_so_on_its_page(tmp_path):
    assert run(9110, tmp_path, seeds=3, seed=1).verdict is not PASS
    finding = run(9110, tmp_path, seeds=20, seed=500)
    assert any("Root seeds tried before without a PASS: 1." in text for text in finding.limitations)
    assert finding.evidence is not Evidence.CONFIRMED


def test_another_root_seed_after_a_confirmed_pass_replicates_it(tmp_path):
    assert run(9110, tmp_path, seeds=20).evidence is Evidence.CONFIRMED
    again = run(9110, tmp_path, seeds=20, seed=500)
    assert (again.verdict, again.evidence) == (PASS, Evidence.REPLICATED), again.reason


def test_cells_that_were_there_before_any_plan_are_not_fixed_beforehand(tmp_path):
    import shutil

    run(9110, tmp_path, seeds=20)
    shutil.rmtree(tmp_path / "looks")
    assert run(9110, tmp_path, seeds=20).evidence is Evidence.DIRECTIONAL


def test_a_margin_moved_after_the_seeds_were_seen_is_told(tmp_path, monkeypatch):
    import toy_tracks

    monkeypatch.setattr(toy_tracks.Parity, "margin", 0.05)
    assert run(9110, tmp_path, seeds=20).verdict is INCONCLUSIVE
    monkeypatch.undo()
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    moved = run(9110, tmp_path, seeds=20)
    assert (moved.verdict, moved.evidence) == (PASS, Evidence.DIRECTIONAL)
    assert any(check.name == "asked beforehand" and "0.05" in check.reason for check in moved.checks)


def test_a_decision_that_breaks_off_after_all_was_seen_is_a_look(tmp_path, monkeypatch):
    import toy_tracks

    def unlucky(self, outcomes):
        raise ValueError("unlucky seeds")

    monkeypatch.setattr(toy_tracks.Parity, "decide", unlucky)
    assert run(9110, tmp_path, seeds=20, seed=1).verdict is Verdict.ERROR
    monkeypatch.undo()
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    shopped = run(9110, tmp_path, seeds=20, seed=500)
    assert any("Root seeds tried before without a PASS: 1." in text for text in shopped.limitations)


@pytest.mark.parametrize("method", ["trials", "decide", "resources"])
def test_a_track_that_leaves_the_process_is_an_error_and_the_others_finish(tmp_path, monkeypatch, method):
    import toy_tracks

    def leave(self, *given):
        raise SystemExit(0)

    monkeypatch.setattr(toy_tracks.Lone, method, leave, raising=False)
    found = verify(9111, 9110, store=tmp_path, workers=1, seeds=3).findings
    assert found[0].verdict is Verdict.ERROR and "SystemExit" in found[0].reason
    assert found[1].verdict is not Verdict.ERROR


@pytest.mark.parametrize("seeds", [99_999_999_999, 0, -1])
def test_a_number_of_seeds_nobody_can_run_is_one_line(tmp_path, seeds):
    from assay.errors import InputError

    with pytest.raises(InputError, match="seeds"):
        verify(9110, store=tmp_path, seeds=seeds)
