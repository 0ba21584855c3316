import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from assay import stats
from assay.errors import InputError
from assay.results import Verdict


def test_one_value_has_no_interval_rather_than_one_of_width_zero():
    assert stats.mean_interval([1.0]) is None
    measurement = stats.summarise("accuracy", [0.97], seeds=[42])
    assert measurement.interval is None
    assert measurement.n == 1


def test_mean_interval_is_the_t_interval():
    data = [1.0, 4.0, 2.0, 8.0]
    low, high = scipy_stats.t.interval(0.9, 3, loc=np.mean(data), scale=scipy_stats.sem(data))
    interval = stats.mean_interval(data, confidence=0.9)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((low, high))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_leaves_no_interval_and_is_named(bad):
    measurement = stats.summarise("loss", [1.0, bad, 2.0], seeds=[42, 43, 44])
    assert measurement.interval is None
    assert "seed 43" in measurement.note
    assert measurement.value is not None
    assert not math.isfinite(measurement.value)


def test_fewer_than_ten_values_are_never_bootstrapped():
    with pytest.raises(InputError, match="at least 10 finite values to bootstrap; given 9 values"):
        stats.bootstrap_interval([float(i) for i in range(9)], seed=0)


def test_bootstrap_repeats_with_its_seed_and_differs_with_another():
    data = np.random.default_rng(0).exponential(size=15).tolist()
    first, again, other = (stats.bootstrap_interval(data, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first.low < np.mean(data) < first.high


def test_iqm_is_the_mean_of_the_middle_half_of_all_runs():
    assert stats.iqm({"a": [0.0, 1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0, 100.0]}, seed=0).value == pytest.approx(3.5)


def test_iqm_of_few_runs_has_no_interval_and_says_why():
    measurement = stats.iqm({"a": [1.0, 2.0, 3.0], "b": [2.0, 3.0, 4.0]}, seed=0)
    assert measurement.interval is None
    assert "cannot be bootstrapped" in measurement.note


def test_iqm_resamples_within_tasks():
    # Each task is constant: resampling inside a task changes nothing, resampling across tasks would.
    low, high = [0.0] * 10, [1.0] * 10
    interval = stats.iqm({"low": low, "high": high}, seed=0).interval
    assert interval is not None
    assert (interval.low, interval.high) == (0.5, 0.5)


def test_iqm_with_a_nan_run_is_nan():
    value = stats.iqm({"a": [1.0, math.nan, 2.0, 3.0]}, seed=0).value
    assert value is not None
    assert math.isnan(value)


def test_iqm_refuses_a_task_without_runs():
    with pytest.raises(InputError, match="at least one run of every task"):
        stats.iqm({"a": [1.0], "b": []}, seed=0)


@pytest.mark.parametrize(("successes", "n"), [(0, 5), (5, 5), (3, 7), (1797, 1800), (19_000, 20_000)])
@pytest.mark.parametrize("confidence", [0.90, 0.95, 0.999])
def test_binomial_interval_is_the_exact_one_of_scipy(successes, n, confidence):
    interval = stats.binomial_interval(successes, n, confidence=confidence)
    exact = scipy_stats.binomtest(successes, n).proportion_ci(confidence, method="exact")
    assert (interval.low, interval.high) == pytest.approx((exact.low, exact.high), abs=1e-9)


@pytest.mark.parametrize(("successes", "n"), [(-1, 3), (4, 3), (1, 0)])
def test_impossible_counts_are_refused(successes, n):
    with pytest.raises(InputError):
        stats.binomial_interval(successes, n)


def test_importing_the_statistics_imports_no_scipy_numpy_or_torch():
    import subprocess
    import sys

    code = "import sys, assay.stats; print([m for m in ('scipy', 'numpy', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_bootstrap_of_ten_values_covers_what_it_says():
    generator, repeats = np.random.default_rng(10), 600
    covered = 0
    for seed in range(repeats):
        interval = stats.bootstrap_interval(generator.normal(3.0, 1.0, 10), seed=seed, resamples=499)
        covered += interval.low <= 3.0 <= interval.high
    assert abs(covered / repeats - 0.95) <= 3 * math.sqrt(0.95 * 0.05 / repeats)  # BCa: 0.89
    assert interval.method == "studentised bootstrap, 499"


def test_a_level_too_small_to_compute_with_is_refused():
    for alpha in (1e-320, 0.0, -1.0, math.nan, 0.7):
        with pytest.raises(InputError, match="alpha between"):
            stats.parity([0.1, 0.2, 0.3], [0.1, 0.2, 0.2], margin=0.5, alpha=alpha)
    assert stats.parity([0.1, 0.2, 0.3], [0.1, 0.2, 0.2], margin=0.5, alpha=1e-9).verdict is Verdict.INCONCLUSIVE
    with pytest.raises(InputError, match="confidence between"):
        stats.mean_interval([1.0, 2.0], confidence=1e-320)
