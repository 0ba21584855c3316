"""Tracks 131 to 134: what they decide from given numbers, each verdict with the input that must bring it about."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from assay import stats
from assay.protocols import Outcome, Outcomes, Trial
from assay.registry import registry
from assay.results import Evidence, Finding, Verdict
from assay.tracks.credit import headroom as credit_headroom
from assay.tracks.credit import penalty as credit_penalty
from assay.tracks.credit import reporting as credit_reporting
from assay.tracks.credit import training as credit_training
from assay.tracks.credit import units as credit_units

PASS, FAIL, INCONCLUSIVE = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE
SEEDS = (42, 43, 44)
ITEMS = 1000
Records = dict[tuple[str, int], dict[str, Any]]


def judged(number: int, records: Mapping[tuple[str, int], Mapping[str, Any]]) -> Finding:
    """The finding of a track as ``assay verify`` gives it: its own decision, then the guards nobody can skip."""
    track = registry.find(number)
    outcomes = Outcomes(tuple(Outcome(Trial(arm, seed), record) for (arm, seed), record in records.items()))
    counted = stats.finished(outcomes, controls=stats.control_arms(track.body))
    ran = stats.Ran(counted, controls=stats.judged_controls(track.body, outcomes), planned=True)
    return stats.enforce(track.body.decide(outcomes), kind=track.kind, ran=ran)


def measured(accuracy: float, *, seed: int, **numbers: float) -> dict[str, Any]:
    """The record of a net that gets the easiest items right, one in fifty of them by luck; seeds differ a little."""
    generator = np.random.default_rng(seed)
    hardness = (np.arange(ITEMS) + 0.5) / ITEMS
    right = (hardness < accuracy + 0.002 * (seed % 3 - 1)) ^ (generator.random(ITEMS) < 0.02)
    record = {"accuracy": float(right.mean()), "correct": "".join("1" if item else "0" for item in right)}
    return {**record, "classes": 10, "growth": 1.2, "mean_cosine": 0.1, "gradient": 1e-3, "cosines": [0.1], **numbers}


def arms(settings: Mapping[str, Mapping[str, float]], seeds: Sequence[int] = SEEDS) -> Records:
    return {(arm, seed): measured(**setting, seed=seed) for seed in seeds for arm, setting in settings.items()}


def reporting(*, seeds: Sequence[int] = SEEDS, dfa: float = 0.80, cosine: float = 0.1, backprop: float = 0.97,
              block_fa: float = 0.6) -> Records:
    """Track 131 on a task where frozen blocks reach 96 %."""
    return arms({"dfa": {"accuracy": dfa, "mean_cosine": cosine}, "frozen": {"accuracy": 0.96},
                 "control: backprop": {"accuracy": backprop}, "control: block FA": {"accuracy": block_fa}}, seeds)


def penalty(*, seeds: Sequence[int] = SEEDS, plain: float = 300.0, tamed: float = 1.5, accuracy: float = 0.80,
            backprop: float = 0.97, backprop_growth: float = 1.2, block_fa: float = 0.6) -> Records:
    """Track 132 on the same task; ``plain`` and ``tamed`` are the growth without and with the penalty."""
    return arms({"plain": {"accuracy": 0.7, "growth": plain}, "penalised": {"accuracy": accuracy, "growth": tamed},
                 "frozen": {"accuracy": 0.96}, "control: block FA": {"accuracy": block_fa},
                 "control: backprop": {"accuracy": backprop, "growth": backprop_growth}}, seeds)


def headroom(*, seeds: Sequence[int] = SEEDS, backprop: float = 0.97, stripes: float = 0.9,
             block_fa: float = 0.6) -> Records:
    """Track 134: frozen blocks reach 96 % on digits and 60 % on stripes."""
    return arms({"backprop": {"accuracy": backprop}, "frozen": {"accuracy": 0.96},
                 "control: stripes": {"accuracy": stripes}, "control: stripes frozen": {"accuracy": 0.6},
                 "control: block FA": {"accuracy": block_fa}}, seeds)


def units(*, seeds: Sequence[int] = SEEDS, invariant: float = 0.5, raw: float = 1e-9, same: float = 1.0,
          healthy_fires: bool = False, healthy_valid: bool = True, rescaled_valid: bool = True,
          saturated_valid: bool = False) -> Records:
    """Track 133: the net as trained has a raw gradient of 1e-3 and an invariant size of 0.5."""
    def record(raw: float, fires: bool, invariant: float, valid: bool, same: float = 1.0) -> dict[str, Any]:
        return {"raw": raw, "fires": fires, "invariant": invariant, "noise": 0.0 if valid else 0.9, "valid": valid,
                "clamped": 1.0, "same_answers": same, "samples": 128}

    return {key: value for seed in seeds for key, value in {
        ("rescaled", seed): record(raw, raw < 1e-7, invariant, rescaled_valid, same),
        ("control: as trained", seed): record(1e-3, healthy_fires, 0.5, healthy_valid),
        ("control: saturated", seed): record(1e-4, False, 0.1, saturated_valid)}.items()}


HEALTHY: dict[int, Callable[..., Records]] = {131: reporting, 132: penalty, 133: units, 134: headroom}


@pytest.mark.parametrize("number", HEALTHY)
def test_the_expected_numbers_pass_with_both_controls_told(number: int) -> None:
    finding = judged(number, HEALTHY[number]())
    assert finding.verdict is PASS, finding.reason
    assert {control.kind for control in finding.controls} == {"known-good", "known-bad"}
    assert finding.measurement(str(finding.headline)).value is not None


@pytest.mark.parametrize("number", [131, 132, 134])
def test_ten_seeds_confirm_and_three_only_point(number: int) -> None:
    assert judged(number, HEALTHY[number]()).evidence is Evidence.DIRECTIONAL
    assert judged(number, HEALTHY[number](seeds=range(10))).evidence is Evidence.CONFIRMED


@pytest.mark.parametrize(("number", "module"), [(131, credit_reporting), (132, credit_penalty), (133, credit_units),
                                                (134, credit_headroom)])
def test_an_arm_without_a_result_decides_nothing_and_is_named(number: int, module: Any) -> None:
    for gone in module.ARMS:
        finding = judged(number, {key: value for key, value in HEALTHY[number]().items() if key[0] != gone})
        assert finding.verdict is INCONCLUSIVE and finding.reason == f"no result for {gone}"


@pytest.mark.parametrize("number", HEALTHY)
def test_arms_that_share_no_seed_decide_nothing(number: int) -> None:
    records = HEALTHY[number](seeds=(42, 43))
    first = next(iter(records))[0]
    apart = {key: value for key, value in records.items() if (key[0] == first) == (key[1] == 42)}
    finding = judged(number, apart)
    assert finding.verdict is INCONCLUSIVE and finding.reason == "no seed finished in every arm"


@pytest.mark.parametrize("number", [131, 132, 134])
def test_two_seeds_neither_pass_nor_fail(number: int) -> None:
    refuted = {131: reporting(seeds=(1, 2), cosine=-0.1), 132: penalty(seeds=(1, 2), tamed=900.0),
               134: headroom(seeds=(1, 2), backprop=0.8)}
    for records in (HEALTHY[number](seeds=(1, 2)), refuted[number]):
        assert judged(number, records).verdict is INCONCLUSIVE


@pytest.mark.parametrize(("number", "arm", "key"), [
    (131, "dfa", "accuracy"), (131, "dfa", "mean_cosine"), (132, "penalised", "growth"), (132, "plain", "growth"),
    (133, "rescaled", "invariant"), (133, "rescaled", "same_answers"), (133, "control: as trained", "raw")])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_number_that_is_nan_at_any_seed_decides_nothing(number: int, arm: str, key: str, seed: int) -> None:
    """``max`` and ``min`` skip a NaN unless it comes first, so a broken seed could hide behind sound ones."""
    records = HEALTHY[number]()
    records[arm, seed][key] = math.nan
    finding = judged(number, records)
    assert finding.verdict is INCONCLUSIVE and finding.reason == f"not a number: {key} of {arm}"


@pytest.mark.parametrize(("number", "defect", "name"), [
    (131, {"block_fa": 0.99}, "block FA"), (131, {"backprop": 0.8}, "backprop"),
    (132, {"block_fa": 0.99}, "block FA"), (132, {"backprop": 0.8}, "backprop"),
    (132, {"backprop_growth": 80.0}, "backprop"),
    (133, {"saturated_valid": True}, "saturated"), (133, {"healthy_valid": False}, "as trained"),
    (134, {"block_fa": 0.99}, "block FA"), (134, {"stripes": 0.4}, "stripes")])
def test_a_control_that_behaves_wrongly_takes_the_pass_away(number: int, defect: dict[str, Any], name: str) -> None:
    finding = judged(number, HEALTHY[number](**defect))
    assert finding.verdict is INCONCLUSIVE and f"'{name}'" in finding.reason
    assert "calibrated" in {check.name for check in finding.checks}


def test_standard_reporting_that_rejects_the_net_refutes_the_claim() -> None:
    for defect in ({"dfa": 0.08}, {"cosine": -0.1}, {"cosine": 0.0}):
        finding = judged(131, reporting(**defect))
        assert finding.verdict is FAIL and finding.checks[0].verdict is FAIL


def test_one_negative_cosine_among_the_seeds_is_enough_to_be_noticed() -> None:
    records = reporting()
    records["dfa", 43]["mean_cosine"] = -0.01
    assert judged(131, records).verdict is FAIL


def test_blocks_better_than_frozen_refute_that_they_are_worse() -> None:
    assert judged(131, reporting(dfa=0.99, backprop=0.995)).verdict is FAIL
    assert judged(132, penalty(accuracy=0.99, backprop=0.995)).verdict is FAIL


def test_a_gain_too_small_for_the_protocol_still_refutes_that_blocks_are_worse() -> None:
    """With headroom the protocol rejects a gain of 1 pp, but then blocks are better than frozen ones, not worse."""
    small = {"frozen": {"accuracy": 0.7}, "control: backprop": {"accuracy": 0.9}, "control: block FA": {"accuracy": .5}}
    records = arms({**small, "dfa": {"accuracy": 0.71}}, range(10))
    for arm, value in (("dfa", 0.71), ("frozen", 0.70)):  # the same slips in both arms: an interval far from the margin
        for seed in range(10):
            right = [item < value * ITEMS for item in range(ITEMS)]
            records[arm, seed]["correct"] = "".join("1" if item else "0" for item in right)
    finding = judged(131, records)
    assert finding.checks[1].verdict is FAIL and finding.measurement("DFA minus frozen").interval.low > 0
    assert finding.verdict is FAIL


def test_blocks_no_different_from_frozen_ones_are_undecided() -> None:
    assert judged(131, reporting(dfa=0.96)).verdict is INCONCLUSIVE
    assert judged(132, penalty(accuracy=0.96)).verdict is INCONCLUSIVE


def test_growth_the_penalty_leaves_refutes_it_even_at_one_seed() -> None:
    records = penalty()
    records["penalised", 44]["growth"] = 6.0
    finding = judged(132, records)
    assert finding.verdict is FAIL and finding.measurement("largest growth with the penalty").value == 6.0
    records["penalised", 44]["growth"] = math.inf
    assert judged(132, records).verdict is FAIL


def test_a_stream_that_never_grew_cannot_show_what_the_penalty_does() -> None:
    finding = judged(132, penalty(plain=2.0))
    assert finding.verdict is INCONCLUSIVE
    assert {check.name: check.verdict for check in finding.checks} == {
        "mode 1 shows without the penalty": INCONCLUSIVE, "mode 1 is gone with it": PASS, "mode 2 is left": PASS}


def test_a_check_that_stays_where_it_was_does_not_depend_on_units() -> None:
    assert judged(133, units(raw=1e-3)).verdict is FAIL
    already = judged(133, units(healthy_fires=True))
    assert already.verdict is FAIL and "fires on 3 of 3 nets (as trained: 3)" in already.reason


def test_our_reference_check_must_not_move_with_the_units() -> None:
    assert judged(133, units(invariant=0.504)).verdict is PASS
    for defect in ({"invariant": 0.51}, {"invariant": 5e5}, {"rescaled_valid": False}):
        assert judged(133, units(**defect)).verdict is FAIL


def test_a_net_that_answers_differently_is_another_function_and_shows_nothing() -> None:
    assert judged(133, units(same=0.98)).verdict is INCONCLUSIVE
    assert judged(133, units(same=0.99)).verdict is PASS


def test_a_net_without_any_gradient_is_no_measure_of_change() -> None:
    records = units(healthy_valid=False)
    for seed in SEEDS:
        records["control: as trained", seed].update(raw=0.0, invariant=0.0)
    finding = judged(133, records)
    assert finding.verdict is INCONCLUSIVE and "calibrated" in {check.name for check in finding.checks}


def test_backprop_that_clears_the_published_limit_leaves_the_claim_open() -> None:
    """Clearly or barely above 2 points: the task then has headroom, and both checks are right to say so."""
    for accuracy in (0.998, 0.985):
        finding = judged(134, headroom(backprop=accuracy))
        assert finding.verdict is INCONCLUSIVE and "is quiet" in finding.reason


def test_a_depth_check_that_fails_backprop_as_the_published_one_does_is_no_better() -> None:
    finding = judged(134, headroom(backprop=0.9))
    assert finding.verdict is FAIL and "training the blocks hurts" in finding.reason


def test_two_arms_with_the_same_answers_are_one_net_and_decide_nothing() -> None:
    """A planted defect: the backprop arm was frozen too. There is no headroom then, for the wrong reason."""
    records = headroom()
    for seed in SEEDS:
        records["backprop", seed] = records["frozen", seed]
    finding = judged(134, records)
    assert finding.verdict is INCONCLUSIVE and "no interval" in finding.reason


def test_every_arm_is_planned_at_every_seed_and_more_seeds_change_no_trial() -> None:
    for number, module in ((131, credit_reporting), (132, credit_penalty), (133, credit_units), (134, credit_headroom)):
        body = registry.find(number).body
        three, four = (list(body.trials("quick", range(n))) for n in (3, 4))
        assert len(three) == 3 * len(module.ARMS) and [t for t in four if t.seed < 3] == three
        assert set(stats.control_arms(body)) <= set(module.ARMS)


NET = credit_training.TrainedBlocks(**measured(0.9, seed=0))


def test_each_arm_of_the_penalty_track_is_what_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, tuple[str, float]] = {}
    body = registry.find(132).body
    for trial in body.trials("quick", (0,)):
        with monkeypatch.context() as patch:
            patch.setattr(credit_training, "train_arm",
                          lambda name, seed, *, penalty, budget, arm=trial.arm: asked.setdefault(
                              arm, (name, penalty)) and NET)
            body.measure(trial)
    assert asked == {"plain": ("dfa", 0.0), "penalised": ("dfa", credit_penalty.PENALTY), "frozen": ("frozen", 0.0),
                     "control: backprop": ("backprop", 0.0), "control: block FA": ("fa", 0.0)}
