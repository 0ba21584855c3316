"""Published figures and what they support: five rows of a benchmark table, parity at chance, three lucky seeds."""

import pytest

from assay import stats
from assay.results import Verdict

MARGIN = 3.0
TABLE = {  # candidate and baseline: mean, standard deviation, number of seeds
    "digits": ((94.63, 0.73, 3), (97.04, 0.35, 3)),
    "mnist": ((94.22, 0.08, 3), (94.91, 0.05, 3)),
    "fashion": ((83.32, 0.21, 3), (83.25, 0.33, 3)),
    "cartpole": ((97.13, 1.64, 3), (99.80, 0.08, 3)),
    "acrobot": ((96.83, 1.17, 3), (97.97, 0.47, 3)),
}


def decide(row: str) -> stats.Decision:
    candidate, baseline = TABLE[row]
    return stats.parity_from_summary(candidate, baseline, margin=MARGIN, unit="pp", name=f"{row} gap")


@pytest.mark.parametrize(
    ("row", "verdict", "p_value"),
    [
        ("mnist", Verdict.PASS, 5.32e-6),
        ("fashion", Verdict.PASS, 0.0003),
        ("digits", Verdict.INCONCLUSIVE, 0.150),
        ("cartpole", Verdict.INCONCLUSIVE, 0.380),
        ("acrobot", Verdict.PASS, 0.0477),
    ],
)
def test_each_row_of_the_table_gets_its_verdict(row, verdict, p_value):
    decision = decide(row)
    assert decision.verdict is verdict
    assert decision.p_value == pytest.approx(p_value, abs=0.5 * 10 ** -len(f"{p_value:.10f}".rstrip("0").split(".")[1]))


def test_acrobot_does_not_survive_holm_over_the_five_claims():
    corrected = dict(zip(TABLE, stats.holm_decisions([decide(row) for row in TABLE]), strict=True))
    assert corrected["acrobot"].verdict is Verdict.INCONCLUSIVE
    assert corrected["acrobot"].p_value == pytest.approx(0.143, abs=0.0005)
    assert "0.0477 alone but 0.143 after Holm over 5 claims" in corrected["acrobot"].reason
    assert [row for row, decision in corrected.items() if decision.passed] == ["mnist", "fashion"]


def test_all_gaps_below_three_does_not_make_all_tasks_at_parity():
    whole = stats.all_hold([decide(row) for row in TABLE])
    assert whole.verdict is Verdict.INCONCLUSIVE
    assert whole.reason.startswith("3 of 5 hold; worst: cartpole")
    assert whole.p_value == pytest.approx(0.380, abs=0.0005)


def test_where_all_hold_the_sampled_part_stands_for_the_whole():
    sampled = stats.parity([96.0, 97.1, 96.2, 95.9], [96.1, 97.0, 96.0, 96.0], margin=MARGIN, unit="pp")
    close = stats.numeric_match([0.9], 1.0)
    assert sampled.score > close.score, "the numeric part is nearer to its limit"
    for parts in ([sampled, close], [close, sampled]):
        assert stats.all_hold(parts).measurement == sampled.measurement
        assert stats.all_hold(parts).score == close.score
    failed = stats.numeric_match([1.1], 1.0)
    assert stats.all_hold([sampled, failed]).measurement == failed.measurement


@pytest.mark.parametrize("items", [40, 80, 200])
def test_parity_of_two_arms_at_chance_is_inconclusive(items):
    guard = stats.above_chance({"backprop": 12.5, "eqprop": 10.0}, items=items, chance=0.10, scale=100)
    assert guard.verdict is Verdict.INCONCLUSIVE
    backprop, eqprop = [12.5, 12.0, 13.0, 12.4, 12.6], [12.2, 12.1, 12.8, 12.5, 12.3]
    unguarded = stats.parity(eqprop, backprop, margin=MARGIN, unit="pp")
    guarded = stats.parity(eqprop, backprop, margin=MARGIN, unit="pp", guards=[guard])
    assert unguarded.verdict is Verdict.PASS, "the gap alone looks like parity"
    assert guarded.verdict is Verdict.INCONCLUSIVE
    assert "not above chance (10 %)" in guarded.reason
    assert "backprop 12.5 %" in guarded.reason
    assert "eqprop 10 %" in guarded.reason


def test_three_of_three_seeds_support_a_success_rate_of_37_percent_only():
    decision = stats.solves(3, 3, 0.95)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.measurement.interval is not None
    assert decision.measurement.interval.low == pytest.approx(0.05 ** (1 / 3))
    assert "at least 36.8 % (95 % one-sided, exact)" in decision.reason


def test_a_lipschitz_constant_from_7_371_to_1_is_reduced_by_86_percent():
    assert stats.reduction(7.371, 1.000) == pytest.approx(0.864, abs=0.0005)
