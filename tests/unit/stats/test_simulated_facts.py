"""The figures that decide how Assay tests, simulated. Tolerances are four standard errors of the simulated rate."""

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from assay import stats
from assay.results import Verdict

GAP, SPREAD, MARGIN = 4.0, 1.5, 3.0


def close(rate: float, truth: float, repeats: int, rounding: float = 0.0005) -> bool:
    """Whether a simulated rate agrees with a stated one, given to ``rounding``."""
    return abs(rate - truth) <= 4 * math.sqrt(truth * (1 - truth) / repeats) + rounding


def tost(gaps: np.ndarray, *, alpha: float = 0.05, margin: float = MARGIN) -> np.ndarray:
    """Parity declared for each row: both one-sided t tests at ``alpha``."""
    low = scipy_stats.ttest_1samp(gaps, -margin, axis=1, alternative="greater").pvalue
    high = scipy_stats.ttest_1samp(gaps, margin, axis=1, alternative="less").pvalue
    return np.maximum(low, high) <= alpha


def test_the_vectorised_test_used_here_is_the_one_of_the_library():
    gaps = np.random.default_rng(0).normal(1.5, SPREAD, (200, 5))
    library = [stats.parity(row, np.zeros(5), margin=MARGIN).verdict is Verdict.PASS for row in gaps]
    assert 20 < sum(library) < 180
    assert library == tost(gaps).tolist()


@pytest.mark.parametrize(("n", "naive", "guarded"), [(1, 0.2525, None), (3, 0.124, 0.006), (5, 0.068, 0.0015)])
def test_mean_gap_below_the_margin_declares_parity_where_there_is_none(n, naive, guarded):
    repeats = 40_000
    gaps = np.random.default_rng(n).normal(GAP, SPREAD, (repeats, n))
    assert close(np.mean(np.abs(gaps.mean(axis=1)) < MARGIN), naive, repeats)
    if guarded is not None:
        assert close(np.mean(tost(gaps)), guarded, repeats)
        assert stats.power(MARGIN, SPREAD, n, gap=GAP) == pytest.approx(guarded, abs=0.0005)


@pytest.mark.parametrize(("n", "margin"), [(3, 2.66), (5, 1.60), (10, 1.00), (20, 0.68)])
def test_smallest_margin_within_reach_of_n_seeds(n, margin):
    assert stats.minimal_margin(1.0, n) == pytest.approx(margin, abs=0.005)
    repeats = 20_000
    gaps = np.random.default_rng(n).normal(0.0, 1.0, (repeats, n))
    assert close(np.mean(tost(gaps, margin=stats.minimal_margin(1.0, n))), 0.80, repeats)


def test_at_three_seeds_only_the_t_interval_covers_what_it_says():
    repeats, batch = 4000, 500
    generator = np.random.default_rng(3)
    data = generator.normal(0.0, 1.0, (repeats, 3))
    half = scipy_stats.t.ppf(0.975, 2) * data.std(axis=1, ddof=1) / math.sqrt(3)
    assert close(np.mean(np.abs(data.mean(axis=1)) <= half), 0.95, repeats)
    covered = {"percentile": 0, "BCa": 0}
    for method in covered:
        for start in range(0, repeats, batch):
            ends = scipy_stats.bootstrap(
                (data[start : start + batch],), np.mean, axis=1, method=method, n_resamples=999, rng=generator
            ).confidence_interval
            covered[method] += int(np.sum((ends.low <= 0) & (ends.high >= 0)))
    assert close(covered["percentile"] / repeats, 0.769, repeats)
    assert close(covered["BCa"] / repeats, 0.741, repeats, rounding=0.01)


def test_peeking_after_every_seed_declares_false_parity_four_times_too_often():
    repeats = 20_000
    gaps = np.random.default_rng(20).normal(MARGIN, SPREAD, (repeats, 20))  # on the edge: every PASS is false
    peeked = np.zeros(repeats, dtype=bool)
    for n in range(3, 21):
        peeked |= tost(gaps[:, :n])
    assert close(peeked.mean(), 0.194, repeats, rounding=0.005)


def test_three_planned_looks_keep_their_promise_and_save_seeds():
    repeats = 20_000
    plan = stats.planned_looks((5, 10, 20))

    def first_pass(gaps: np.ndarray) -> np.ndarray:
        used = np.full(repeats, 0)
        for n in plan.looks:
            used[(used == 0) & tost(gaps[:, :n], alpha=plan.alpha_each)] = n
        return used

    edge = first_pass(np.random.default_rng(5).normal(MARGIN, SPREAD, (repeats, 20)))
    assert close(np.mean(edge > 0), 0.042, repeats, rounding=0.002)
    assert np.mean(edge > 0) <= plan.alpha
    equal = first_pass(np.random.default_rng(6).normal(0.0, SPREAD, (repeats, 20)))
    assert np.where(equal == 0, 20, equal).mean() == pytest.approx(6.4, abs=0.15)


def test_of_twenty_false_claims_one_looks_true_unless_the_list_is_corrected():
    repeats, claims, n = 2000, 20, 6
    gaps = np.random.default_rng(64).normal(MARGIN, SPREAD, (repeats * claims, n))  # on the edge: every PASS is false
    high = scipy_stats.ttest_1samp(gaps, MARGIN, axis=1, alternative="less").pvalue
    low = scipy_stats.ttest_1samp(gaps, -MARGIN, axis=1, alternative="greater").pvalue
    best = np.maximum(high, low).reshape(repeats, claims)
    assert close(np.mean(best.min(axis=1) <= 0.05), 0.64, repeats, rounding=0.01)
    corrected = np.mean([min(stats.holm(row)) <= 0.05 for row in best.tolist()])
    assert close(corrected, 0.049, repeats, rounding=0.005)


def test_seeds_without_a_collapse_leave_a_large_collapse_rate_open():
    rates = {n: stats.unexcluded_collapse_rate(n) for n in (5, 10, 20)}
    assert rates == pytest.approx({5: 0.45, 10: 0.26, 20: 0.14}, abs=0.005)
    for n, rate in rates.items():
        assert (1 - rate) ** n == pytest.approx(0.05), "n clean seeds are still 5 % likely at this rate"


def test_item_level_interval_keeps_the_false_parity_rate_on_the_edge_of_the_margin():
    repeats, items = 3000, 360
    generator = np.random.default_rng(7)
    a = generator.binomial(items, 0.92, repeats) / items
    b = generator.binomial(items, 0.95, repeats) / items
    pairs, counts = np.unique(np.stack([a, b], axis=1), axis=0, return_counts=True)
    false = sum(
        int(count) for (x, y), count in zip(pairs, counts, strict=True)
        if stats.intervals.rate_gap_interval(x, y, items, confidence=0.90).low > -0.03
    )
    assert false / repeats <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / repeats)
    assert false / repeats > 0.01, "an interval so wide that it never errs decides nothing"
