import numpy as np
import pytest
from scipy import stats as scipy_stats

from assay import stats
from assay.errors import InputError
from assay.results import Verdict


@pytest.mark.parametrize(
    ("n", "gap", "sides"), [(3, 0.0, "both"), (5, 0.7, "both"), (10, -0.5, "one"), (4, 0.0, "one")]
)
def test_power_is_the_share_of_simulated_experiments_that_confirm(n, gap, sides):
    repeats, margin = 20_000, 1.5
    gaps = np.random.default_rng(n).normal(gap, 1.0, (repeats, n))
    half = scipy_stats.t.ppf(0.95, n - 1) * gaps.std(axis=1, ddof=1) / np.sqrt(n)
    confirmed = gaps.mean(axis=1) - half > -margin
    if sides == "both":
        confirmed &= gaps.mean(axis=1) + half < margin
    truth = stats.power(margin, 1.0, n, gap=gap, sides=sides)
    assert confirmed.mean() == pytest.approx(truth, abs=4 * np.sqrt(truth * (1 - truth) / repeats))


def test_power_on_the_edge_of_the_margin_is_at_most_alpha():
    for n in (3, 5, 20):
        assert stats.power(1.0, 0.2, n, gap=1.0) <= 0.05 + 1e-6


def test_power_is_stable_for_very_many_seeds():
    assert stats.power(0.05, 1.0, 100_000) == pytest.approx(1.0)


def test_seeds_needed_is_the_first_number_with_enough_power():
    for margin, sd, gap in ((3.0, 1.5, 0.0), (3.0, 3.0, 1.0), (0.5, 1.0, 0.0)):
        n = stats.seeds_needed(margin, sd, gap=gap)
        assert stats.power(margin, sd, n, gap=gap) >= 0.8
        assert n == 3 or stats.power(margin, sd, n - 1, gap=gap) < 0.8


def test_seeds_needed_never_plans_fewer_than_three():
    assert stats.seeds_needed(100.0, 0.1) == 3


def test_no_number_of_seeds_confirms_parity_across_a_real_gap():
    with pytest.raises(InputError, match="no number of seeds helps"):
        stats.seeds_needed(3.0, 1.0, gap=3.0)


def test_a_claim_beyond_the_limit_is_refused():
    with pytest.raises(InputError, match="within reach of 100 seeds"):
        stats.seeds_needed(0.01, 1.0, limit=100)


@pytest.mark.parametrize(
    "arguments", [{"margin": -1.0}, {"sd": 0.0}, {"n": 1}, {"alpha": 0.7}, {"sides": "left"}, {"gap": float("nan")}]
)
def test_power_refuses_what_it_cannot_compute(arguments):
    with pytest.raises(InputError):
        stats.power(**({"margin": 1.0, "sd": 1.0, "n": 5} | arguments))


def test_holm_multiplies_the_smallest_by_all_and_never_falls():
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert stats.holm([]) == ()
    assert stats.holm([0.9, 0.8]) == (1.0, 1.0)


def test_holm_refuses_what_is_no_probability():
    with pytest.raises(InputError, match="p-values from 0 to 1"):
        stats.holm([0.1, float("nan")])


def test_claims_without_a_p_value_still_count_in_holm():
    passing = stats.parity([0.1, 0.2, -0.1, 0.05], [0.0, 0.1, 0.1, 0.0], margin=0.3)
    undecided = stats.parity([0.1], [0.0], margin=0.3)
    assert passing.p_value is not None
    corrected = stats.holm_decisions([passing, undecided, undecided, undecided])
    assert corrected[0].p_value == pytest.approx(4 * passing.p_value)
    assert [d.verdict for d in corrected[1:]] == [Verdict.INCONCLUSIVE] * 3
