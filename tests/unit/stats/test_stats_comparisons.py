import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from assay import stats
from assay.errors import InputError
from assay.results import Check, Verdict

BASE = [0.950, 0.955, 0.948, 0.952, 0.957]
NEAR = [0.949, 0.957, 0.946, 0.953, 0.955]


def shifted(by: float) -> list[float]:
    return [value + by for value in NEAR]


def test_parity_p_value_is_the_larger_of_two_one_sided_paired_tests():
    decision = stats.parity(NEAR, BASE, margin=0.01)
    low = scipy_stats.ttest_rel(np.add(NEAR, 0.01), BASE, alternative="greater").pvalue
    high = scipy_stats.ttest_rel(np.subtract(NEAR, 0.01), BASE, alternative="less").pvalue
    assert decision.p_value == pytest.approx(max(low, high))
    ends = scipy_stats.ttest_rel(NEAR, BASE).confidence_interval(0.90)
    assert decision.measurement.interval is not None
    assert (decision.measurement.interval.low, decision.measurement.interval.high) == pytest.approx(tuple(ends))


@pytest.mark.parametrize(
    ("shift", "parity", "non_inferior", "better"),
    [
        (0.0, Verdict.PASS, Verdict.PASS, Verdict.INCONCLUSIVE),
        (0.05, Verdict.FAIL, Verdict.PASS, Verdict.PASS),
        (-0.05, Verdict.FAIL, Verdict.FAIL, Verdict.FAIL),
        (-0.01, Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE, Verdict.FAIL),
    ],
)
def test_verdict_follows_the_gap(shift, parity, non_inferior, better):
    candidate = shifted(shift)
    assert stats.parity(candidate, BASE, margin=0.01).verdict is parity
    assert stats.non_inferior(candidate, BASE, margin=0.01).verdict is non_inferior
    assert stats.better(candidate, BASE).verdict is better


def test_pairing_removes_what_the_seeds_share():
    hard_and_easy = np.array([0.70, 0.80, 0.90, 0.75, 0.85])
    candidate = hard_and_easy + np.array([0.001, -0.002, 0.002, -0.001, 0.001])
    assert stats.parity(candidate, hard_and_easy, margin=0.01).verdict is Verdict.PASS
    summaries = [stats.Summary(float(x.mean()), float(x.std(ddof=1)), 5) for x in (candidate, hard_and_easy)]
    assert stats.parity_from_summary(*summaries, margin=0.01).verdict is Verdict.INCONCLUSIVE


def test_summary_interval_agrees_with_welch_on_the_data():
    summaries = [stats.Summary(float(np.mean(x)), float(np.std(x, ddof=1)), 5) for x in (NEAR, BASE)]
    interval = stats.parity_from_summary(*summaries, margin=0.01).measurement.interval
    ends = scipy_stats.ttest_ind(NEAR, BASE, equal_var=False).confidence_interval(0.90)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx(tuple(ends))


def stopped_by(decision: stats.Decision) -> set[str]:
    return {check.name for check in decision.checks if check.verdict is not Verdict.PASS}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("compare", [stats.parity, stats.non_inferior, stats.better])
def test_a_nan_or_infinite_metric_is_never_a_pass(compare, bad):
    decision = compare([0.95, 0.95, bad, 0.96], [0.95, 0.94, 0.95, 0.96], margin=1.0, seeds=[42, 43, 44, 45])
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert stopped_by(decision) == {"finite values"} and "44" in decision.reason


def test_both_arms_infinite_is_no_parity():
    assert stats.parity([math.inf] * 3, [math.inf] * 3, margin=1.0).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("compare", [stats.parity, stats.non_inferior, stats.better])
def test_fewer_than_three_pairs_never_pass(compare, n):
    decision = compare([5.0, 5.1][:n], [0.01, 0.0][:n], margin=0.0 if compare is stats.better else 100.0)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert stopped_by(decision) == {"enough seeds"}
    assert (decision.measurement.interval is None) == (n < 2)


def test_arms_of_unequal_length_are_refused():
    with pytest.raises(InputError, match="equal length, paired by seed; given 3 and 2 values"):
        stats.parity([1, 2, 3], [1, 2], margin=1)


@pytest.mark.parametrize("margin", [0.0, -0.01, math.nan, math.inf])
def test_a_margin_that_is_not_positive_is_refused(margin):
    for compare in (stats.parity, stats.non_inferior):
        with pytest.raises(InputError, match="margin"):
            compare(NEAR, BASE, margin=margin)
    with pytest.raises(InputError, match="margin"):
        stats.parity_from_summary((1, 1, 3), (1, 1, 3), margin=margin)
    with pytest.raises(InputError, match="margin"):
        stats.reproduces(NEAR, 0.95, margin=margin)


def test_better_by_a_negative_margin_is_refused_with_the_right_call():
    with pytest.raises(InputError, match="use non_inferior"):
        stats.better(NEAR, BASE, margin=-0.01)


@pytest.mark.parametrize("alpha", [0.0, 0.5, -0.1, math.nan])
def test_an_alpha_outside_its_range_is_refused(alpha):
    with pytest.raises(InputError, match="alpha"):
        stats.parity(NEAR, BASE, margin=0.01, alpha=alpha)


def test_the_same_seed_twice_is_refused():
    with pytest.raises(InputError, match="distinct seeds"):
        stats.parity(NEAR, BASE, margin=0.01, seeds=[42, 42, 42, 42, 42])


@pytest.mark.parametrize("values", ["abcde", [None] * 5, 3.0, [[1.0, 2.0]] * 5])
def test_what_is_no_list_of_numbers_is_refused(values):
    with pytest.raises(InputError, match="a list of numbers as the first arm"):
        stats.parity(values, BASE, margin=0.01)


@pytest.mark.parametrize("size", [1e-200, 1e-9, 1e9, 1e200])
def test_the_unit_of_measurement_does_not_matter(size):
    one = stats.parity(NEAR, BASE, margin=0.01)
    other = stats.parity([v * size for v in NEAR], [v * size for v in BASE], margin=0.01 * size)
    assert other.verdict is one.verdict
    assert other.p_value == pytest.approx(one.p_value, rel=1e-6)
    assert other.score == pytest.approx(one.score, rel=1e-6)


class TestZeroVariance:
    def test_identical_gaps_are_inconclusive_not_certain(self):
        decision = stats.parity([0.975] * 5, [0.972] * 5, margin=0.03)
        assert decision.verdict is Verdict.INCONCLUSIVE
        assert decision.p_value is None
        assert stopped_by(decision) == {"spread"}

    def test_rounding_noise_is_no_variance(self):
        decision = stats.parity([0.1 + 0.2, 0.3, 0.3], [0.0, 0.0, 0.0], margin=0.5)
        assert decision.verdict is Verdict.INCONCLUSIVE

    @pytest.mark.parametrize(
        ("items", "verdict"), [(100, Verdict.INCONCLUSIVE), (360, Verdict.PASS), (10_000, Verdict.PASS)]
    )
    def test_the_size_of_the_test_set_decides_instead(self, items, verdict):
        decision = stats.parity([0.975] * 5, [0.972] * 5, margin=0.03, items=items)
        assert decision.verdict is verdict
        assert decision.method == f"item-level exact binomial, {items} items"
        assert decision.p_value is not None
        assert (decision.p_value < 0.05) == decision.passed

    def test_spread_below_one_test_item_counts_as_none(self):
        candidate = [0.97500, 0.97501, 0.97499, 0.97500]
        assert stats.parity(candidate, [0.975] * 4, margin=0.001).verdict is Verdict.PASS
        coarse = stats.parity(candidate, [0.975] * 4, margin=0.001, items=100)
        assert coarse.verdict is Verdict.INCONCLUSIVE
        assert "item-level" in coarse.method

    def test_per_cent_needs_its_scale(self):
        with pytest.raises(InputError, match="pass scale=100"):
            stats.parity([97.5] * 3, [97.2] * 3, margin=3, items=360)
        assert stats.parity([97.5] * 3, [97.2] * 3, margin=3, items=360, scale=100).verdict is Verdict.PASS

    def test_summaries_without_spread_are_inconclusive(self):
        decision = stats.parity_from_summary((97.0, 0.0, 3), (97.0, 0.0, 3), margin=3)
        assert decision.verdict is Verdict.INCONCLUSIVE
        assert stopped_by(decision) == {"spread"}


class TestLooks:
    def test_an_unplanned_look_is_inconclusive(self):
        plan = stats.planned_looks((5, 10))
        candidate, base = [*NEAR, 0.95], [*BASE, 0.951]
        assert stats.parity(NEAR, BASE, margin=0.01, looks=plan).verdict is Verdict.PASS
        decision = stats.parity(candidate, base, margin=0.01, looks=plan)
        assert decision.verdict is Verdict.INCONCLUSIVE
        assert stopped_by(decision) == {"planned look"}

    def test_each_look_is_tested_at_its_share_of_alpha(self):
        plan = stats.planned_looks((5, 10))
        interval = stats.parity(NEAR, BASE, margin=0.01, looks=plan).measurement.interval
        assert interval is not None
        assert interval.confidence == pytest.approx(0.95)

    @pytest.mark.parametrize("looks", [(), (5, 5), (10, 5), (2, 5), (5.5,)])
    def test_a_plan_must_be_a_rising_list_of_seed_counts(self, looks):
        with pytest.raises(InputError):
            stats.planned_looks(looks)


class TestGuards:
    def test_any_guard_that_did_not_pass_blocks_the_verdict(self):
        for verdict in (Verdict.FAIL, Verdict.ERROR, Verdict.INCONCLUSIVE, Verdict.STUB, Verdict.PARTIAL):
            guard = Check(name="trained", verdict=verdict, reason="the loss did not fall")
            decision = stats.parity(NEAR, BASE, margin=0.01, guards=[guard])
            assert decision.verdict is Verdict.INCONCLUSIVE
            assert decision.reason == "the loss did not fall"
            assert decision.score is not None
            assert decision.score <= 50

    def test_a_guard_that_passed_changes_nothing_but_is_listed(self):
        guard = Check(name="trained", verdict=Verdict.PASS, reason="the loss fell")
        decision = stats.parity(NEAR, BASE, margin=0.01, guards=[guard])
        assert decision.verdict is Verdict.PASS
        assert decision.checks == (guard,)


class TestReproduces:
    def test_a_reference_without_spread_is_said_to_have_none(self):
        decision = stats.reproduces([94.1, 94.3, 94.2], 94.22, margin=1.0)
        assert decision.verdict is Verdict.PASS
        assert "the reference reports no spread" in decision.reason

    def test_the_spread_of_the_reference_widens_the_interval(self):
        ours = [94.1, 94.3, 94.2]
        exact = stats.reproduces(ours, 94.22, margin=1.0).measurement.interval
        uncertain = stats.reproduces(ours, 94.22, margin=1.0, reference_sd=0.5, reference_n=3)
        assert exact is not None
        assert uncertain.measurement.interval is not None
        assert uncertain.measurement.interval.high - uncertain.measurement.interval.low > exact.high - exact.low
        assert "no spread" not in uncertain.reason

    def test_a_far_reference_is_not_reproduced(self):
        assert stats.reproduces([94.1, 94.3, 94.2], 97.0, margin=1.0).verdict is Verdict.FAIL

    def test_half_a_spread_is_refused(self):
        with pytest.raises(InputError, match="both reference_sd and reference_n"):
            stats.reproduces([1.0, 2.0, 3.0], 2.0, margin=1.0, reference_sd=0.1)


def test_a_report_can_print_what_the_seeds_could_have_shown():
    decision = stats.parity(shifted(-0.01), BASE, margin=0.01, seeds=[42, 43, 44, 45, 46])
    assert decision.minimal_margin == pytest.approx(
        stats.minimal_margin(float(np.std(np.subtract(NEAR, BASE), ddof=1)), 5)
    )
    assert decision.power is not None
    assert decision.notes[0].startswith("lowest gap: -0.012 at seed 44; 5 seeds without a collapse do not exclude")
    assert decision.check("parity").verdict is decision.verdict
