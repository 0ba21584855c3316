"""Tracks 1, 2, 14 and 22: what they decide from given numbers, and that no broken control goes unnoticed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from assay import stats
from assay.protocols import Outcome, Outcomes, Trial
from assay.registry import registry
from assay.reports.truth import contradictions
from assay.results import Evidence, Finding, Verdict
from assay.tracks.dynamics import spectral_stability
from assay.tracks.gradient import golden_reference
from assay.tracks.learning import parity, transformer

SEEDS = tuple(range(42, 52))


def judged(number: int, records: Mapping[tuple[str, int], Mapping[str, Any]], seeds: tuple[int, ...]) -> Finding:
    track = registry.find(number)
    outcomes = Outcomes(tuple(Outcome(Trial(arm, seed), record) for (arm, seed), record in records.items()))
    counted = stats.finished(outcomes, controls=stats.control_arms(track.body))
    assert set(counted) == set(seeds)
    ran = stats.Ran(counted, controls=stats.judged_controls(track.body, outcomes), planned=True)
    return stats.enforce(track.body.decide(outcomes), kind=track.kind, ran=ran)


def bounds(lower: float, upper: float) -> dict[str, Any]:
    return {"lower": lower, "upper": upper, "settled": 1.0, "rate": 0.9, "residuals": [1.0, 0.1]}


def stability(*, upper: float = 1.0, free: float = 1.5, planted: float = 1.46) -> dict[tuple[str, int], dict[str, Any]]:
    records: dict[tuple[str, int], dict[str, Any]] = {}
    for i, seed in enumerate(SEEDS[:3]):
        for arm, after in (
            (spectral_stability.WITH, bounds(0.97, upper)),
            (spectral_stability.WITHOUT, bounds(free + 0.01 * i, free + 0.1)),
        ):
            records[arm, seed] = {"before": bounds(0.8, 0.82), "after": after, "accuracy": 95.0, "diverged": None}
    records["control: planted norm 1.5", 42] = {"after": bounds(planted, planted + 0.04)}
    records["control: planted norm 0.5", 42] = {"after": bounds(0.49, 0.5)}
    return records


def test_stability_passes_only_when_one_arm_is_certified_and_the_other_escapes() -> None:
    finding = judged(1, stability(), SEEDS[:3])
    assert finding.verdict is Verdict.PASS and finding.evidence is Evidence.DIRECTIONAL
    assert "reduction by 34%" in finding.key_finding
    assert judged(1, stability(upper=1.2), SEEDS[:3]).verdict is Verdict.INCONCLUSIVE
    assert judged(1, stability(free=0.9), SEEDS[:3]).verdict is not Verdict.PASS


def test_stability_is_not_calibrated_when_the_planted_weight_escapes() -> None:
    finding = judged(1, stability(planted=0.9), SEEDS[:3])
    assert finding.verdict is Verdict.INCONCLUSIVE and "calibrated" in {check.name for check in finding.checks}


def accuracies(
    ours: float = 98.0, theirs: float = 98.1, *, shuffled: float = 10.0, seeds: tuple[int, ...] = SEEDS
) -> dict[tuple[str, int], dict[str, Any]]:
    records: dict[tuple[str, int], dict[str, Any]] = {}
    for i, seed in enumerate(seeds):
        wiggle = 0.4 * (i % 3 - 1)
        learned = {"rate": 2e-3, "validation": 97.0, "tried": {"0.002": 97.0}, "history": [50.0 + i, 97.0]}
        records[parity.EQPROP, seed] = {**learned, "accuracy": ours + wiggle}
        records[parity.BACKPROP, seed] = {**learned, "accuracy": theirs}
        records[parity.TWIN, seed] = {**learned, "accuracy": theirs - wiggle}
        records[parity.FLOORS, seed] = {"chance": 10.0, "majority": 10.3, "logistic": 96.0}
        if i < parity.CONTROL_SEEDS:
            broken = ((parity.FROZEN, 92.0), (parity.SHUFFLED, shuffled), (parity.FLIPPED, 9.0))
            for arm, value in broken:
                records[arm, seed] = {**learned, "accuracy": value + wiggle}
    return records


def test_ten_close_seeds_confirm_parity() -> None:
    finding = judged(2, accuracies(), SEEDS)
    assert finding.verdict is Verdict.PASS, finding.reason
    assert finding.evidence is Evidence.CONFIRMED
    assert all(control.separated for control in finding.controls)


def test_parity_far_from_rest_says_so_first() -> None:
    records = accuracies()
    assert "rest" not in judged(2, records, SEEDS).limitations[0]
    for (arm, _), record in records.items():
        if arm == parity.EQPROP:
            record["residual"] = 0.4
    assert "Far from rest" in judged(2, records, SEEDS).limitations[0]


@pytest.mark.parametrize(
    ("records", "verdict"),
    [
        (accuracies(ours=94.0), Verdict.FAIL),
        (accuracies(ours=97.2, theirs=97.2), Verdict.PARTIAL),
        (accuracies(ours=10.0, theirs=10.2, shuffled=1.0), Verdict.INCONCLUSIVE),
        (accuracies(shuffled=98.0), Verdict.INCONCLUSIVE),
    ],
    ids=["a real gap", "below 97.5 %", "two arms at chance", "a control that passes"],
)
def test_parity_is_not_given_away(records: dict[tuple[str, int], dict[str, Any]], verdict: Verdict) -> None:
    assert judged(2, records, SEEDS).verdict is verdict


def test_three_seeds_say_how_many_are_needed() -> None:
    finding = judged(2, accuracies(seeds=SEEDS[:3], ours=98.7), SEEDS[:3])
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "seeds show this margin" in finding.improvements[0]


def sequence(sequences: float, error: float, *, growth: float = 0.0, after: float | None = None) -> dict[str, Any]:
    gradient = {"error": error, "cosine": 1 - error, "trusted": True, "residual": 0.1}
    return {"tested": 10_000, "accuracy": sequences, "sequences": sequences, "before": gradient,
            "after": gradient if after is None else {**gradient, "error": after},
            "graph": {"growth": growth, "saved": growth, "response": 0.1}, "diverged": None, "loss": 0.0}  # fmt: skip


def learned(
    n: int, *, strong: float = 0.4, alone: float = 0.0, flipped: float = 0.0, other: float = 100.0,
    error: float = 0.01, unrolled: float = 2.0, after: float | None = None,
) -> dict[tuple[str, int], dict[str, Any]]:
    records = {
        (transformer.REVERSAL, seed): {**sequence(100.0, error, after=after), "loss": seed / 1e4} for seed in SEEDS[:n]
    }
    records[transformer.STRONG, 42] = sequence(100.0, strong)
    records[transformer.ALONE, 42] = sequence(alone, 0.001)
    records[transformer.FLIPPED, 42] = sequence(flipped, 2.0)
    records[transformer.OTHER, 42] = sequence(other, 0.001)
    records[transformer.DISGUISED, 42] = sequence(100.0, 0.001, growth=unrolled)
    return records


def test_three_of_three_show_little_and_ten_of_ten_show_seventy_per_cent() -> None:
    few = judged(14, learned(3), SEEDS[:3])
    assert few.verdict is Verdict.INCONCLUSIVE and "36.8 %" in few.reason
    many = judged(14, learned(10), SEEDS)
    assert many.verdict is Verdict.PASS and many.evidence is Evidence.CONFIRMED


def test_accuracy_without_the_gradient_is_no_success() -> None:
    assert judged(14, learned(10, error=0.3), SEEDS).verdict is not Verdict.PASS
    assert judged(14, learned(10, after=0.3), SEEDS).verdict is Verdict.FAIL


def test_a_harder_task_that_fails_beside_a_claim_says_that_it_does_not_count():
    mirror = {(transformer.MIRROR, seed): sequence(50.0, 0.001) for seed in SEEDS}
    finding = judged(14, learned(10) | mirror, SEEDS)
    check = next(check for check in finding.checks if check.name == transformer.MIRROR)
    assert finding.verdict is Verdict.PASS and check.verdict is Verdict.FAIL and check.aside
    assert not contradictions(finding)


def test_a_rule_that_uses_backprop_through_time_in_secret_is_rejected() -> None:
    secret = {key: {**record, "graph": {"growth": 2.0, "saved": 2.0, "response": 0.0}}
              for key, record in learned(10).items() if key[0] == transformer.REVERSAL}
    finding = judged(14, learned(10) | secret, SEEDS)
    assert finding.verdict is Verdict.FAIL and all(control.separated for control in finding.controls)


def test_the_disguised_rule_is_found_out_by_what_it_keeps_and_by_its_deafness_to_the_nudge() -> None:
    import torch

    from assay.audits.equilibrium.through_time import ThroughTime, through_time
    from assay.models import EnergyAttention

    model = EnergyAttention(10, length=4, width=16, heads=2, seed=0)
    x = torch.arange(12).reshape(3, 4) % 10
    for arm in (transformer.REVERSAL, transformer.OTHER, transformer.DISGUISED):
        beta = transformer._beta(arm)
        found = through_time(lambda sweeps, nudge, arm=arm: transformer._rule(arm, sweeps, nudge), model, x, x.flip(1),
                             beta=beta)
        assert bool(found.found) is (arm == transformer.DISGUISED), found
        if arm == transformer.DISGUISED:
            assert found.growth > 1 and found.saved > 1 and found.response == 0.0
    assert ThroughTime(growth=0.0, saved=0.0, response=0.0).found


def test_a_network_trained_to_certainty_does_not_make_its_rule_deaf_to_the_nudge() -> None:
    """Its error is rounding, and so is the bias of a nudge: the untrained network is asked as well."""
    from assay.audits.equilibrium.through_time import ThroughTime

    untrained, certain, deaf = (ThroughTime(0.0, 0.0, response) for response in (1e-3, 1e-8, 0.0))
    assert certain.found and not untrained.also(certain).found and not certain.also(untrained).found
    assert deaf.also(deaf).found and untrained.also(ThroughTime(2.0, 0.0, 1e-3)).found


def test_a_failing_subject_does_not_spoil_its_own_controls() -> None:
    finding = judged(14, learned(10, error=0.3), SEEDS)
    assert all(control.separated for control in finding.controls)
    assert {control.kind for control in finding.controls} == {"known-good", "known-bad"}


def test_full_feedback_that_learns_is_said_to_learn() -> None:
    finding = judged(14, learned(10), SEEDS)
    assert any("was expected to fail at the task and does not" in text for text in finding.limitations)


@pytest.mark.parametrize(
    "change", [{"strong": 0.01}, {"alone": 100.0}, {"flipped": 100.0}, {"other": 50.0}, {"unrolled": 0.0}]
)
def test_a_control_that_goes_wrong_uncalibrates_the_transformer(change: dict[str, float]) -> None:
    assert judged(14, learned(10, **change), SEEDS).verdict is Verdict.INCONCLUSIVE


def test_ten_records_of_a_transformer_that_ignores_its_seed_are_one() -> None:
    records = learned(10)
    for record in records.values():
        record["loss"] = 0.0
    finding = judged(14, records, SEEDS)
    assert (finding.verdict, finding.evidence) == (Verdict.INCONCLUSIVE, Evidence.SMOKE)


def test_the_planted_kernels_of_track_22_are_those_of_the_audit() -> None:
    from assay.audits.equilibrium.kernel_subjects import planted

    assert tuple(planted()) == golden_reference.MISTAKES


def test_every_track_copes_with_nothing() -> None:
    for number in (1, 2, 14, 22):
        assert judged(number, {}, ()).verdict is Verdict.INCONCLUSIVE


def test_more_seeds_only_add_trials() -> None:
    for module in (spectral_stability, parity, transformer, golden_reference):
        body = next(t.body for t in registry.ordered() if t.module == module.__name__)
        few, many = (set(map(repr, body.trials("quick", SEEDS[:n]))) for n in (3, 5))
        assert few < many


def test_a_cell_of_track_22_compares_every_quantity() -> None:
    body = golden_reference.GoldenReference()
    seed = 43
    record = body.measure(Trial("fast", seed, "smoke"))
    assert record.verdict is Verdict.PASS and record.compared == 168 and record.strong


def test_kernels_of_track_22_are_judged_in_company_as_alone() -> None:
    body = golden_reference.GoldenReference()
    arms = ("control: stale cache of the input", "deviations", "control: one sweep short", "eager")
    trials = [Trial(arm, 43, "smoke") for arm in arms]
    assert len({body.siblings(trial) for trial in trials}) == 1
    together = body.measure_together(trials)
    for trial, record in list(zip(trials, together, strict=True))[2:3]:
        assert body.measure(trial) == record
    assert [record.verdict for record in together] == ["FAIL", "PASS", "FAIL", "PASS"]


@pytest.mark.slow
def test_the_four_tracks_run_end_to_end(tmp_path: object) -> None:
    from assay.studies.verification import verify

    run = verify(1, 2, 14, 22, seeds=3, store=str(tmp_path))
    verdicts = {finding.number: finding.verdict for finding in run.findings}
    assert verdicts[1] is Verdict.PASS and verdicts[22] is Verdict.PASS
    assert not any(finding.failures for finding in run.findings)
    assert all(control.separated for finding in run.findings for control in finding.controls)
