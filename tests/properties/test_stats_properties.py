"""What must hold for any data: the verdict is a relation, margins act one way, order does not matter."""

import itertools
import math

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from assay import stats
from assay.results import Interval, Region, Verdict

numbers = st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 6))
margins = st.floats(0.01, 200)
pairs = st.lists(st.tuples(numbers, numbers), min_size=3, max_size=12)
intervals = st.tuples(numbers, numbers).map(
    lambda ends: Interval(low=min(ends), high=max(ends), confidence=0.9, method="any")
)
quick = settings(max_examples=60, deadline=None)


def arms(data):
    return [a for a, _ in data], [b for _, b in data]


@quick
@given(pairs, margins)
def test_a_verdict_is_the_relation_of_the_shown_interval_to_the_shown_region(data, margin):
    for decision in (
        stats.parity(*arms(data), margin=margin),
        stats.non_inferior(*arms(data), margin=margin),
        stats.better(*arms(data), margin=margin),
    ):
        measurement = decision.measurement
        assert measurement.region is not None
        assert decision.verdict is stats.relation(measurement.interval, measurement.region)


@quick
@given(pairs, margins)
def test_p_value_and_interval_never_disagree(data, margin):
    decision = stats.parity(*arms(data), margin=margin)
    assume(decision.p_value is not None and abs(decision.p_value - 0.05) > 1e-9)
    assert (decision.p_value < 0.05) == decision.passed


@quick
@given(pairs, margins, st.floats(1.0, 10.0))
def test_a_wider_margin_never_hurts(data, margin, factor):
    narrow, wide = (stats.parity(*arms(data), margin=m) for m in (margin, margin * factor))
    assert wide.verdict.severity <= narrow.verdict.severity
    if narrow.score is not None and wide.score is not None:
        assert wide.score >= narrow.score - 1e-9


@quick
@given(pairs, margins, st.randoms(use_true_random=False))
def test_the_order_of_the_seeds_does_not_matter(data, margin, random):
    shuffled = list(data)
    random.shuffle(shuffled)
    before, after = (stats.parity(*arms(d), margin=margin) for d in (data, shuffled))
    assert before.verdict is after.verdict
    if before.p_value is not None and after.p_value is not None:
        assert math.isclose(before.p_value, after.p_value, rel_tol=1e-6, abs_tol=1e-12)


@quick
@given(pairs, margins)
def test_parity_does_not_care_which_arm_comes_first(data, margin):
    a, b = arms(data)
    assert stats.parity(a, b, margin=margin).verdict is stats.parity(b, a, margin=margin).verdict


@quick
@given(st.lists(st.integers(-50, 50), min_size=3, max_size=8), st.integers(-1000, 1000), margins)
def test_what_both_arms_share_cancels(gaps, shared, margin):
    # Whole numbers, so that adding and subtracting the shared part is exact.
    alone = stats.parity(gaps, [0] * len(gaps), margin=margin)
    shifted = stats.parity([g + shared for g in gaps], [shared] * len(gaps), margin=margin)
    assert alone.verdict is shifted.verdict
    assert alone.p_value == shifted.p_value


@quick
@given(intervals, st.floats(0.01, 50))
def test_the_score_is_50_exactly_at_the_edge(interval, margin):
    region = Region(low=-margin, high=margin)
    points = stats.score(interval, region)
    assert points is not None
    assert 0 <= points <= 100
    verdict = stats.relation(interval, region)
    assert (points >= 50) == (verdict is Verdict.PASS)
    worst = max(abs(interval.low), abs(interval.high))
    if worst > 0.01:
        edge = stats.score(interval, Region(low=-worst, high=worst))
        assert edge == 50


@quick
@given(intervals, intervals, st.floats(0.01, 50))
def test_less_certainty_never_gives_a_better_score_nor_a_new_verdict(inner, other, margin):
    outer = Interval(low=min(inner.low, other.low), high=max(inner.high, other.high), confidence=0.9, method="any")
    region = Region(low=-margin, high=margin)
    narrow, wide = stats.score(inner, region), stats.score(outer, region)
    assert narrow is not None
    assert wide is not None
    assert wide <= narrow
    verdicts = stats.relation(inner, region), stats.relation(outer, region)
    assert verdicts[1] in (verdicts[0], Verdict.INCONCLUSIVE)


@quick
@given(st.lists(pairs, min_size=1, max_size=4), margins)
def test_the_whole_is_never_better_than_its_worst_part(tasks, margin):
    parts = [stats.parity(*arms(data), margin=margin) for data in tasks]
    whole = stats.all_hold(parts)
    assert whole.verdict is Verdict.worst(part.verdict for part in parts)
    fewer = stats.all_hold(parts[:1])
    assert whole.verdict.severity >= fewer.verdict.severity


@quick
@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_lowers_a_p_value_and_keeps_the_order(p_values):
    adjusted = stats.holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
    ranked = sorted(zip(p_values, adjusted, strict=True))
    assert all(first[1] <= second[1] for first, second in itertools.pairwise(ranked))


@quick
@given(pairs, margins, st.sampled_from([math.nan, math.inf, -math.inf]), st.integers(0, 2))
def test_one_value_that_is_no_number_is_enough_to_decide_nothing(data, margin, bad, place):
    a, b = arms(data)
    a[place] = bad
    assert stats.parity(a, b, margin=margin).verdict is Verdict.INCONCLUSIVE


@quick
@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.01, 1.0))
def test_exact_bound_and_exact_test_agree(count, p):
    successes, n = count
    decision = stats.solves(successes, n, p)
    assume(decision.p_value is not None and n >= 3 and abs(decision.p_value - 0.05) > 1e-6)
    assert decision.passed == (decision.p_value <= 0.05)
