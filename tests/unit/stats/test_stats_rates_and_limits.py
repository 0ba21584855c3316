import math

import pytest

from assay import stats
from assay.errors import InputError
from assay.results import Verdict

NAN = math.nan


class TestSolves:
    @pytest.mark.parametrize(
        ("successes", "n", "p", "verdict"),
        [
            (20, 20, 0.80, Verdict.PASS),
            (20, 20, 0.90, Verdict.INCONCLUSIVE),
            (2, 20, 0.80, Verdict.FAIL),
            (2, 2, 0.10, Verdict.INCONCLUSIVE),
            (1, 1, 0.10, Verdict.INCONCLUSIVE),
            (0, 0, 0.10, Verdict.INCONCLUSIVE),
        ],
    )
    def test_the_exact_bound_decides(self, successes, n, p, verdict):
        decision = stats.solves(successes, n, p)
        assert decision.verdict is verdict
        if decision.p_value is not None and n >= 3:
            assert (decision.p_value <= 0.05) == decision.passed

    @pytest.mark.parametrize("p", [0.0, -0.1, 1.1, NAN])
    def test_an_impossible_rate_is_refused(self, p):
        with pytest.raises(InputError, match="0 < p <= 1"):
            stats.solves(3, 3, p)


class TestAboveChance:
    def test_every_arm_must_be_above(self):
        good, bad = [0.90, 0.91, 0.92], [0.11, 0.09, 0.10]
        assert stats.above_chance({"a": good, "b": good}, items=360, chance=0.1).verdict is Verdict.PASS
        one = stats.above_chance({"a": good, "b": bad}, items=360, chance=0.1)
        assert one.verdict is not Verdict.PASS
        assert "b 10" in one.reason and "a 91" not in one.reason

    def test_beating_chance_is_not_enough_where_one_class_dominates(self):
        arms = {"a": [0.55, 0.56, 0.54]}
        assert stats.above_chance(arms, items=500, chance=0.5).verdict is Verdict.PASS
        skewed = stats.above_chance(arms, items=500, chance=0.5, majority=0.6)
        assert skewed.verdict is Verdict.FAIL
        assert "60" in skewed.reason

    def test_more_seeds_on_the_same_items_add_no_items(self):
        one = stats.above_chance({"a": [0.13]}, items=100, chance=0.1)
        many = stats.above_chance({"a": [0.13] * 50}, items=100, chance=0.1)
        assert one.p_value == many.p_value
        assert many.verdict is Verdict.INCONCLUSIVE

    @pytest.mark.parametrize("values", [[], [NAN, 0.9], [math.inf]])
    def test_no_number_is_no_pass(self, values):
        assert stats.above_chance({"a": values}, items=100, chance=0.1).verdict is Verdict.INCONCLUSIVE

    def test_per_cent_without_its_scale_is_refused(self):
        with pytest.raises(InputError, match="pass scale=100"):
            stats.above_chance({"a": [97.0]}, items=100, chance=0.1)


class TestConstrained:
    @pytest.mark.parametrize(
        ("lower", "upper", "verdict", "words"),
        [
            (0.90, 1.00, Verdict.PASS, "within 1"),
            (0.90, 1.01, Verdict.INCONCLUSIVE, "the truth lies between"),
            (1.10, 1.50, Verdict.FAIL, "an attack reached 1.1"),
            (1.10, None, Verdict.FAIL, "an attack reached 1.1"),
            (0.90, None, Verdict.INCONCLUSIVE, "a certified upper bound missing"),
            (None, 0.90, Verdict.INCONCLUSIVE, "an attacked lower bound missing"),
            (None, None, Verdict.INCONCLUSIVE, "both bounds missing"),
            (0.95, 0.90, Verdict.INCONCLUSIVE, "one of them is wrong"),
            (NAN, 0.90, Verdict.INCONCLUSIVE, "NaN"),
            (0.5, NAN, Verdict.INCONCLUSIVE, "NaN"),
            (0.5, math.inf, Verdict.INCONCLUSIVE, "the truth lies between"),
            ([0.5, 0.6], [0.9, 1.0], Verdict.PASS, "attacks reached 0.6, certified for every input 1"),
            ([0.5, 1.6], [0.9, 1.7], Verdict.FAIL, "an attack reached 1.6"),
        ],
    )
    def test_a_supremum_needs_a_certificate_and_an_attack(self, lower, upper, verdict, words):
        decision = stats.constrained(lower, upper, 1.0)
        assert decision.verdict is verdict
        assert words in decision.reason

    def test_rounding_is_allowed_for_only_when_given(self):
        assert stats.constrained(0.9, 1.0 + 1e-7, 1.0).verdict is Verdict.INCONCLUSIVE
        assert stats.constrained(0.9, 1.0 + 1e-7, 1.0, rounding=3 * 2**-23).verdict is Verdict.PASS

    def test_one_bound_of_each_per_subject(self):
        with pytest.raises(InputError, match="one lower and one upper bound per subject; given 2 and 1"):
            stats.constrained([1, 2], [3], 4.0)


class TestNumericMatch:
    def test_the_largest_error_decides_and_is_located(self):
        decision = stats.numeric_match([1e-7, 5e-3, 1e-6], 1e-5, labels=["zeros", "large", "random"])
        assert decision.verdict is Verdict.FAIL
        assert decision.measurement.value == 5e-3 and "large" in decision.reason and "zeros" not in decision.reason

    @pytest.mark.parametrize("bad", [NAN, math.inf])
    def test_nan_is_a_mismatch(self, bad):
        decision = stats.numeric_match([bad, 0.0], 1e-5)
        assert decision.verdict is Verdict.FAIL
        assert "input 1" in decision.reason

    def test_nothing_compared_is_inconclusive(self):
        assert stats.numeric_match([], 1e-5).verdict is Verdict.INCONCLUSIVE

    def test_a_tolerance_as_large_as_the_values_cannot_pass(self):
        assert stats.numeric_match([0.5], 1.0, magnitude=2.0).verdict is Verdict.PASS
        decision = stats.numeric_match([0.5], 1.0, magnitude=0.8)
        assert decision.verdict is Verdict.INCONCLUSIVE
        assert "could not fail" in decision.reason

    def test_signed_errors_are_refused(self):
        with pytest.raises(InputError, match="absolute errors"):
            stats.numeric_match([-0.1], 1e-5)

    @pytest.mark.parametrize("tolerance", [0.0, -1.0, NAN])
    def test_a_tolerance_that_is_not_positive_is_refused(self, tolerance):
        with pytest.raises(InputError, match="tolerance"):
            stats.numeric_match([0.0], tolerance)


@pytest.mark.parametrize(("before", "after"), [(0.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (NAN, 1.0)])
def test_a_reduction_of_something_not_positive_is_refused(before, after):
    with pytest.raises(InputError):
        stats.reduction(before, after)
