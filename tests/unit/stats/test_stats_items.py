"""Two systems on the same items: exact answers first, then what clusters and few differences do."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats as reference

from assay.errors import InputError
from assay.results import Region, Verdict
from assay.stats.gap_evidence import matched_evidence
from assay.stats.items import cluster_gaps, compare_items, swap_test


def answers(both: int, first: int, second: int, neither: int) -> tuple[list[float], list[float]]:
    a = [1.0] * both + [1.0] * first + [0.0] * second + [0.0] * neither
    b = [1.0] * both + [0.0] * first + [1.0] * second + [0.0] * neither
    return a, b


@pytest.mark.parametrize(("first", "second"), [(8, 1), (10, 10), (0, 5), (40, 20), (1, 0)])
def test_single_items_give_mcnemars_exact_test(first: int, second: int) -> None:
    a, b = answers(30, first, second, 11)
    exact = reference.binomtest(first, first + second, 0.5).pvalue
    assert compare_items(a, b).p_value == pytest.approx(exact, rel=1e-12)


def test_the_swap_test_of_clusters_counts_every_swap() -> None:
    sums = [3.0, -1.0, 2.0, 2.0, -4.0, 1.0]
    totals = [abs(sum(s * v for s, v in zip(signs, sums, strict=True)))
              for signs in itertools.product((-1, 1), repeat=len(sums))]
    assert swap_test(sums) == pytest.approx(np.mean([total >= abs(sum(sums)) for total in totals]), rel=1e-12)
    parts = [value / 3 for value in sums]  # no longer whole: random swaps, near the same answer
    assert swap_test(parts) == pytest.approx(swap_test(sums), abs=0.02)
    assert swap_test([0.0, 0.0]) == 1.0


def test_without_clusters_the_interval_is_the_paired_t_interval() -> None:
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=40), draw.normal(size=40)
    found = compare_items(a.tolist(), b.tolist(), claim="parity", margin=1.0).decision.measurement.interval
    true = reference.ttest_rel(a, b).confidence_interval(0.9)
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(true.low), pytest.approx(true.high))


def test_clusters_give_the_robust_standard_error_of_liang_and_zeger() -> None:
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 12, size=100)
    gaps = draw.normal(size=100) + 0.5 * draw.normal(size=12)[labels]
    _, values = cluster_gaps(gaps.tolist(), labels.tolist())
    groups = [gaps[labels == each] for each in np.unique(labels)]
    count = len(groups)
    robust = count / (count - 1) * sum((g.sum() - len(g) * gaps.mean()) ** 2 for g in groups) / len(gaps) ** 2
    assert np.mean(values) == pytest.approx(gaps.mean(), rel=1e-12)
    assert np.var(values, ddof=1) / count == pytest.approx(robust, rel=1e-12)


def test_items_that_repeat_within_a_cluster_are_no_new_evidence() -> None:
    a, b = answers(40, 12, 3, 5)
    alone = compare_items(a, b)
    copies = compare_items(a * 5, b * 5, clusters=list(range(60)) * 5)
    naive = compare_items(a * 5, b * 5)
    assert copies.p_value == pytest.approx(alone.p_value, rel=1e-12)
    assert copies.decision.p_value == pytest.approx(alone.decision.p_value, rel=1e-9)
    assert naive.p_value < alone.p_value / 100, "the defect that clusters are there to catch"


def test_paired_data_read_as_independent_lose_what_pairing_gives() -> None:
    """The shape of lm-eval's comparator: p .080 by an unpaired z test where McNemar's exact test has .008."""
    a, b = answers(300, 21, 6, 73)
    found = compare_items(a, b)
    assert found.p_value == pytest.approx(0.0059, abs=5e-4)
    assert found.unpaired_p_value > 0.15
    assert found.decision.verdict is Verdict.PASS


@pytest.mark.parametrize(("items", "rate", "margin"), [(60, 0.05, 5.0), (200, 0.05, 5.0), (400, 0.1, 10.0)])
def test_parity_at_the_very_margin_is_declared_no_more_often_than_promised(
    items: int, rate: float, margin: float
) -> None:
    """Every item that tells the systems apart favours one: the true gap is the margin, and any PASS is false."""
    false = 0.0
    for count in range(items + 1):
        chance = float(reference.binom.pmf(count, items, rate))
        if chance < 1e-6:
            continue
        a, b = answers(items - count, count, 0, 0)
        found = compare_items(a, b, claim="parity", margin=margin, scale=100.0).decision
        false += chance * (found.verdict is Verdict.PASS)
    # Below 25 differences the bounds are exact; above, a score test keeps its level up to the steps of whole items.
    step = float(reference.binom.pmf(round(items * rate - 1.645 * (items * rate * (1 - rate)) ** 0.5), items, rate))
    assert false <= 0.05 + (step if items * rate > 25 else 0.0)


def test_the_score_interval_is_tangos() -> None:
    """Both ends against the likelihood maximised by search, not by the formula."""
    a, b = answers(20, 30, 5, 45)
    found = compare_items(a, b, claim="parity", margin=60.0, scale=100.0, alpha=0.025).decision.measurement.interval
    assert found is not None and found.method.startswith("Tango")
    for end, sign in ((found.low / 100, 1), (found.high / 100, -1)):
        # Each end solves the score equation with the variance under that gap, maximised over the other rate by search.
        rates = np.linspace(1e-9, (1 - abs(end)) / 2, 200_001)
        one, two = rates + max(end, 0), rates + max(-end, 0)
        rest = 1 - one - two
        keep = rest > 0
        likelihood = 30 * np.log(one[keep]) + 5 * np.log(two[keep]) + 65 * np.log(rest[keep])
        best = int(likelihood.argmax())
        variance = 100 * (one[keep][best] + two[keep][best] - end**2)
        assert sign * (25 - 100 * end) / np.sqrt(variance) == pytest.approx(1.959964, abs=1e-3)


def test_identical_systems_are_at_parity_as_far_as_items_show() -> None:
    a, _ = answers(500, 0, 0, 500)
    assert compare_items(a, a, claim="parity", margin=1.0, scale=100.0).decision.verdict is Verdict.PASS
    assert compare_items(a[450:550], a[450:550], claim="parity", margin=1.0, scale=100.0).decision.verdict != "PASS"
    assert compare_items(a, a).decision.verdict != "PASS", "not better either"


def test_power_is_the_chance_of_a_pass_between_equals() -> None:
    a, b = answers(180, 10, 10, 0)
    told = compare_items(a, b, claim="parity", margin=8.0, scale=100.0).decision.power
    draw, passes = np.random.default_rng(0), 0
    for _ in range(400):
        kinds = draw.multinomial(200, [0.9, 0.05, 0.05])
        found = matched_evidence(int(kinds[1]), int(kinds[2]), Region(low=-8, high=8), items=200, scale=100.0)
        passes += Region(low=-8, high=8).judge(found.interval_at(0.05)) is Verdict.PASS
    assert told is not None and passes / 400 == pytest.approx(told, abs=4 * (told * (1 - told) / 400) ** 0.5)


def test_few_clusters_that_differ_decide_nothing_about_parity() -> None:
    a, b = answers(96, 2, 2, 0)
    found = compare_items(a, b, claim="parity", margin=10.0, scale=100.0, clusters=[i // 2 for i in range(100)])
    assert found.decision.verdict is Verdict.INCONCLUSIVE and "differ in" in found.decision.reason


@pytest.mark.parametrize(("change", "words"), [
    ({"second": [1.0]}, "same items"), ({"second": [math.nan, 1.0]}, "NaN"), ({"clusters": [1]}, "one cluster"),
    ({"claim": "equal", "margin": 1.0}, "a claim"), ({"claim": "parity", "margin": 0.0}, "margin"),
    ({"margin": -1.0}, "margin"),
])
def test_what_cannot_be_compared_is_refused(change: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        compare_items(**{"first": [1.0, 0.0], "second": [0.0, 0.0], **change})
