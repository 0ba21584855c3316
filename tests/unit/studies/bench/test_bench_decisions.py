"""From records to verdicts: parity, guards, failures, controls, returns, and the tables that show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from assay.results import Failure, Finding, Verdict
from assay.studies.arms import Arm, find_arm
from assay.studies.bench.cells import REFERENCE, RESTARTED, SHUFFLED
from assay.studies.bench.decide import decide, not_measured
from assay.studies.bench.measured import Measured
from assay.studies.bench.tables import (
    PUBLISHED,
    against_published,
    gap_heatmap,
    over_tasks,
    results_matrix,
    statistical_report,
)

EQPROP, BACKPROP = Arm("eqprop"), Arm("backprop")
FLOORS = {"chance": 0.1, "majority": 0.11, "logistic": 0.92, "logistic_items": 10_000, "items": 10_000}
BASE = (0.980, 0.982, 0.981, 0.979, 0.983)
WOBBLE = (0.001, -0.001, 0.0005, -0.0005, 0.0)


def record(accuracy: float, **more: Any) -> dict[str, Any]:
    return {"accuracy": accuracy, "validation": accuracy, "seconds": 2.0, "cpu_seconds": 2.0, "diverged": None,
            "items": 10_000, "train_items": 50_000, "residual": None, "gradient_agreement": None, "data_hash": "",
            **more}


def evidence(ours: Sequence[float], theirs: Sequence[float] = BASE, *, task: str = "mnist", **more: Any) -> Measured:
    found = Measured(task, "standard", 1.0, tuple(range(42, 42 + len(theirs))), floors=FLOORS)
    for name, values in (("eqprop/mlp", ours), ("backprop/mlp", theirs)):
        found.records[name] = {42 + i: record(v, **more) for i, v in enumerate(values)}
    for name, level in ((REFERENCE, 0.95), (RESTARTED, 0.951), (SHUFFLED, 0.10)):
        found.records[f"{name}/mlp"] = {42 + i: record(level + WOBBLE[i]) for i in range(3)}
    return found


def shifted(gap: float) -> list[float]:
    return [b + gap + w for b, w in zip(BASE, WOBBLE, strict=True)]


@pytest.mark.parametrize(("gap", "verdict"), [
    (-0.001, Verdict.PASS), (-0.04, Verdict.FAIL), (-0.0095, Verdict.INCONCLUSIVE), (0.0, Verdict.PASS)])
def test_the_verdict_follows_the_interval(gap: float, verdict: Verdict) -> None:
    finding = decide(evidence(shifted(gap)), EQPROP)
    assert finding.verdict is verdict, finding.reason
    gap_found = finding.measurement("accuracy gap")
    assert gap_found.value == pytest.approx(100 * gap, abs=1e-9)
    assert gap_found.seeds == (42, 43, 44, 45, 46)


def test_two_arms_that_guess_are_not_at_parity() -> None:
    finding = decide(evidence([0.10, 0.101, 0.099, 0.1, 0.1], [0.1, 0.1, 0.1, 0.101, 0.099]), EQPROP)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "not above" in finding.reason


def test_a_nan_a_crash_or_missing_floors_never_pass() -> None:
    assert decide(evidence([float("nan"), *shifted(0)[1:]]), EQPROP).verdict is not Verdict.PASS
    crashed = evidence(shifted(0))
    crashed.failures["eqprop/mlp"] = [Failure(label="seed 42", kind="RuntimeError", message="boom")]
    assert decide(crashed, EQPROP).verdict is Verdict.ERROR
    floorless = evidence(shifted(0))
    floorless.floors = None
    assert decide(floorless, EQPROP).verdict is Verdict.INCONCLUSIVE
    assert decide(evidence([]), EQPROP).verdict is not Verdict.PASS


def test_a_diverged_seed_is_at_most_partial() -> None:
    found = evidence(shifted(0))
    found.records["eqprop/mlp"][43] = record(0.982, diverged="epoch 3: the loss is nan")
    finding = decide(found, EQPROP)
    assert finding.verdict is Verdict.PARTIAL
    assert "epoch 3" in finding.reason


def test_controls_that_are_not_told_apart_stop_every_verdict() -> None:
    found = evidence(shifted(0))
    assert [c.separated for c in decide(found, EQPROP).controls] == [True, True]
    found.records[f"{SHUFFLED}/mlp"] = dict(found.records[f"{REFERENCE}/mlp"])
    finding = decide(found, EQPROP)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "calibrated" in {check.name for check in finding.checks}
    without = evidence(shifted(0))
    for name in (REFERENCE, RESTARTED, SHUFFLED):
        del without.records[f"{name}/mlp"]
    assert decide(without, EQPROP).verdict is Verdict.INCONCLUSIVE


def test_two_seeds_show_that_it_runs_not_that_it_holds() -> None:
    assert decide(evidence(shifted(0)[:2], list(BASE)[:2]), EQPROP).verdict is Verdict.INCONCLUSIVE


def test_only_seeds_both_arms_finished_are_compared() -> None:
    found = evidence(shifted(0))
    del found.records["eqprop/mlp"][44]
    assert decide(found, EQPROP).seeds == (42, 43, 45, 46)


PLAYED = {"return_mean": 500.0, "return_worst": 500.0, "expert_mean": 500.0, "episodes": 100, "best_episodes": 100}


def test_equal_accuracy_with_a_lower_return_is_only_partial() -> None:
    perfect = decide(evidence(shifted(0), task="cartpole-bc", **PLAYED), EQPROP)
    assert perfect.verdict is Verdict.PASS
    assert any("all 500 episodes" in check.reason for check in perfect.checks)
    found = evidence(shifted(0), task="cartpole-bc", **PLAYED)
    for i, seed in enumerate(found.records["eqprop/mlp"]):
        played = {**PLAYED, "return_mean": 300.0 + i, "best_episodes": 4}
        found.records["eqprop/mlp"][seed] = record(shifted(0)[i], **played)
    worse = decide(found, EQPROP)
    assert worse.verdict is Verdict.PARTIAL
    assert "return gap" in worse.reason


def test_a_task_that_could_not_be_had_stays_with_the_way_to_get_it() -> None:
    finding = not_measured("mnist", EQPROP, margin=1.0, reason="mnist is not here; run: assay data fetch mnist")
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "assay data fetch mnist" in finding.reason


def decided(found: Measured) -> dict[str, Finding]:
    finding = decide(found, EQPROP)
    return {finding.name: finding}


def test_the_results_matrix_has_a_row_per_arm_with_gap_worst_seed_time_and_floors() -> None:
    found = evidence(shifted(-0.001))
    table = results_matrix({"mnist": found}, [BACKPROP, EQPROP], decided(found))
    base, ours = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert base["verdict"] == "baseline"
    assert ours["gap [pp]"] == -0.1
    assert (ours["worst seed [%]"], ours["at seed"]) == (97.75, 45)
    assert ours["time ratio"] == 1.0
    assert ours["logistic"] == 92.0
    assert ours["verdict"] == "PASS"


def test_the_statistical_report_corrects_over_all_comparisons() -> None:
    good, bad = decide(evidence(shifted(-0.001)), EQPROP), decide(evidence(shifted(-0.04), task="digits"), EQPROP)
    rows = [dict(zip(table.columns, row, strict=True)) for table in [statistical_report([good, bad], margin=1.0)]
            for row in table.rows]
    assert rows[0]["p (TOST)"] < 0.05 < rows[1]["p (TOST)"]
    assert rows[0]["p (Holm)"] >= rows[0]["p (TOST)"]
    assert rows[1]["p (Holm)"] <= 1.0
    assert rows[0]["seeds for 80 % power"] >= 2
    assert f"p = {rows[0]['p (TOST)']:.3g})" in good.reason, "the report shows the p-value that decided"


def test_aggregates_and_the_published_table_are_made_from_the_records() -> None:
    found = evidence(shifted(-0.001))
    found.records["original/looped"] = {42 + i: record(0.9422 + w) for i, w in enumerate(WOBBLE)}
    arms = [BACKPROP, EQPROP, find_arm("original")]
    summary = dict(zip(over_tasks({"mnist": found}, arms, seed=42).columns,
                       over_tasks({"mnist": found}, arms, seed=42).rows[1], strict=True))
    assert summary["arm"] == "eqprop/mlp"
    assert -0.3 < summary["IQM gap [pp]"] < 0.1
    table = against_published({"mnist": found}, margin=1.0)
    assert table is not None
    verdicts = {row[1]: row[-1] for row in table.rows}
    assert verdicts == {"backprop/mlp": "FAIL", "original/looped": "PASS", "eqprop/mlp": "FAIL"}
    assert against_published({"blobs": found}, margin=1.0) is None
    assert PUBLISHED["fashion-mnist"][2] == 83.32


def test_the_heatmap_shows_mean_gaps_by_task_and_arm() -> None:
    measured = {"mnist": evidence(shifted(-0.001)), "digits": evidence(shifted(-0.04))}
    findings = {f"{task}/{EQPROP.name}": decide(found, EQPROP) for task, found in measured.items()}
    figure = gap_heatmap(measured, [BACKPROP, EQPROP], findings)
    assert figure is not None
    assert figure.margin == next(iter(measured.values())).margin
    assert [row[0] for row in figure.notes] == [finding.verdict.value for finding in findings.values()]
    assert figure.row_names == ("mnist", "digits")
    assert [row[0] for row in figure.grid] == pytest.approx([-0.1, -4.0])
    assert gap_heatmap({}, [BACKPROP, EQPROP], {}) is None
