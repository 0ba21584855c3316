"""Track 0: every planted fault is told from its twin, and the track itself notices when a guard is taken away."""

import pytest

from assay import stats
from assay.engine.store.keys import Key
from assay.protocols import Outcome, Outcomes, Trial
from assay.results import Evidence, Failure, Finding, Verdict
from assay.studies.measure import stored
from assay.tracks.honesty.faults import PLANTED
from assay.tracks.honesty.honesty import Honesty

SLOW = {"killed worker"}  # starts a process: once is enough here
BY_NAME = {planted.name: planted for planted in PLANTED}


def run_track(names=None, seeds=(42,)) -> Outcomes:
    track = Honesty()
    wanted = [t for t in track.trials("quick", seeds) if names is None or t.arm.partition(": ")[2] in names]
    return Outcomes(tuple(Outcome(trial, stored(track.measure(trial))) for trial in wanted))


def enforced(outcomes: Outcomes) -> Finding:
    track = Honesty()
    records = stats.finished(outcomes, controls=stats.control_arms(track))
    ran = stats.Ran(records, controls=stats.judged_controls(track, outcomes), planned=True)
    return stats.enforce(track.decide(outcomes), kind="deterministic", ran=ran)


def missed(finding: Finding) -> set[str]:
    return {c.name for c in finding.controls if not c.separated and not c.observed.startswith("not run")}


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("side", ["fault", "twin"])
def test_each_planted_subject_is_told_for_what_it_is(name, side):
    for seed in (42,) if name in SLOW else (42, 7, 1234):
        record = Honesty().measure(Trial(arm=f"{side}: {name}", seed=seed))
        assert record.told, record


def test_seeds_draw_other_data_and_the_same_seed_the_same():
    reasons = [Honesty().measure(Trial(arm="fault: parity at chance", seed=seed)).reason for seed in (42, 43, 42)]
    assert reasons[0] == reasons[2] != reasons[1]


def test_the_finding_states_sensitivity_and_specificity_with_exact_bounds():
    finding = enforced(run_track())
    n = len(PLANTED)
    assert finding.verdict is Verdict.PASS, finding.reason
    assert finding.evidence is Evidence.CONFIRMED
    assert f"sensitivity {n}/{n}, at least {0.025 ** (1 / n):.1%} (95 %, exact)" in finding.reason
    assert f"specificity {n}/{n}" in finding.reason
    assert finding.measurement("sensitivity").interval == stats.binomial_interval(n, n)
    assert len(finding.controls) == 2 * n
    assert len(finding.tables[0].rows) == n


@pytest.mark.parametrize(
    ("guard", "replacement", "blinded"),
    [
        ("enforce", lambda finding, **_: finding, {"crashed track", "one seed called proof", "uncalibrated check"}),
        ("holm_decisions", lambda decisions: decisions, {"best of many"}),
        ("all_hold", lambda decisions, **_: decisions[0], {"average over tasks"}),
        (
            "above_chance",
            lambda arms, **_: stats.numeric_match([0.0], 1.0),
            {"parity at chance", "mixed units"},
        ),
    ],
)
def test_a_guard_that_is_taken_away_is_missed(monkeypatch, guard, replacement, blinded):
    monkeypatch.setattr(stats, guard, replacement)
    outcomes = run_track(blinded)
    finding = Honesty().decide(outcomes)
    assert finding.verdict is Verdict.FAIL
    monkeypatch.undo()
    judged = enforced(outcomes)
    assert missed(judged) == {f"fault: {name}" for name in blinded}
    assert judged.reason.startswith("not calibrated")


def test_a_store_that_checks_no_digest_is_caught(monkeypatch):
    import json

    from assay.engine.store import cells
    from assay.engine.store.cells import StoredCell

    def trusting(raw, key, keys):
        data = json.loads(raw)
        return StoredCell(**{name: data[name] for name in ("key", "label", "group", "seconds", "record")})

    monkeypatch.setattr(cells, "_decode", trusting)
    for name in ("tampered cell", "swapped cell"):
        record = Honesty().measure(Trial(arm=f"fault: {name}", seed=42))
        assert record.verdict == "FAIL"
        assert not record.told


def keeps_nothing_apart(worker, payload):
    """A worker that runs its cells in one process, as workers once did."""
    from assay.tracks.honesty.faults.belonging import planted_cell

    return {"record": planted_cell(payload)}


@pytest.mark.parametrize(
    ("name", "protection", "without"),
    [
        ("forged cell", "assay.engine.store.keys.Keyring.find", lambda keys, signer: ("", Anybody(b""))),
        ("forged cell", "assay.engine.store.keys.Key.signed", lambda key, text, digest: True),
        ("stale helper", "assay.tracks.honesty.faults.belonging.cell_key", lambda target, payload: target),
        ("contaminated worker", "assay.tracks.honesty.faults.belonging._run", keeps_nothing_apart),
        ("seeds asked for", "assay.stats.guards.enough_seeds", lambda *_: None),
        ("seed ignored", "assay.stats.observed._stripped", lambda record: record),
        ("number without interval", "assay.stats.guards.intervals_agree", lambda *_: None),
        ("values without records", "assay.stats.guards.values_have_records", lambda *_: None),
        ("moved margin", "assay.stats.observed.Ran.moved", lambda ran, asks: None),
        ("constant controls", "assay.stats.guards.calibrated", lambda _: None),
        ("shopped seeds", "assay.stats.spending", lambda seeds, history: stats.Spending(0.05, 0.05)),
    ],
)
def test_a_protection_of_evidence_that_is_taken_away_is_missed(monkeypatch, name, protection, without):
    import math

    monkeypatch.setattr(math, "pi", math.pi)  # given back, should a cell patch it in this process
    monkeypatch.setenv("ASSAY_PLANTED_FAULT", "")
    assert Honesty().measure(Trial(arm=f"fault: {name}", seed=42)).told
    monkeypatch.setattr(protection, without)
    record = Honesty().measure(Trial(arm=f"fault: {name}", seed=42))
    assert not record.told, record


class Anybody(Key):
    def signed(self, text, digest):
        return True


def test_a_check_that_rejects_everything_fails_by_its_twins(monkeypatch):
    real = stats.parity
    monkeypatch.setattr(
        stats, "parity", lambda *a, **k: real(*a, **k).model_copy(update={"verdict": Verdict.INCONCLUSIVE})
    )
    outcomes = run_track({"parity at chance", "NaN metric"})
    assert Honesty().decide(outcomes).verdict is Verdict.FAIL
    assert missed(enforced(outcomes)) >= {"twin: parity at chance", "twin: NaN metric"}


def test_trials_that_are_missing_or_failed_never_pass():
    trial = Trial(arm="fault: NaN metric", seed=42)
    failure = Failure(label="cell", kind="Timeout", message="no result")
    for outcomes in (Outcomes(()), Outcomes((Outcome(trial, None, failure),)), run_track({"NaN metric"})):
        finding = Honesty().decide(outcomes)
        assert not finding.passed
        told = {c.name: c.observed for c in enforced(outcomes).controls}
        assert told["fault: peeking"] == "not run: no record of fault: peeking"


def test_more_seeds_add_trials_and_change_none():
    few, many = (set(map(repr, Honesty().trials("quick", range(42, 42 + n)))) for n in (3, 5))
    assert few < many
