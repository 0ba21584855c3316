"""Closed forms of small parts of the statistics: each was once changed by a line without any test noticing."""

from __future__ import annotations

import math

import pytest
from scipy import special

from assay import stats
from assay.errors import InputError
from assay.results import Finding, Interval, Measurement, Region, Verdict
from assay.stats.answers import paired_answers
from assay.stats.crossed import Crossed, crossed, crossed_evidence
from assay.stats.decision import holm_decisions
from assay.stats.evidence import _observations
from assay.stats.gap_evidence import score_evidence
from assay.stats.intervals import _rate_limits
from assay.stats.items import FLIPS, _swapped, swap_test
from assay.stats.levels import _around, _binomial, power_again, widened
from assay.stats.looks import _chain


def test_seeds_and_items_each_have_the_quantile_of_their_own_freedom() -> None:
    found = Crossed(mean=0.0, seeds=3, items=1000, cells=3000, weight=1e-9, over_seeds=0.01, over_items=0.04,
                    discordant=0.01, shared=0.0, differing=5)  # fmt: skip
    of_seeds, of_items = special.stdtrit([2, 4], 0.95)
    assert found.half(0.0, 0.05) == pytest.approx(math.sqrt(of_seeds**2 * 0.01 + of_items**2 * 0.04))


ANSWERS = paired_answers({s: [True] * 60 + [False] * (20 + s) + [True] * (20 - s) for s in range(4)},
                         {s: [True] * (58 + s) + [False] * (42 - s) for s in range(4)})  # fmt: skip


def test_a_gap_over_seeds_and_items_is_judged_by_its_worse_side_in_any_unit() -> None:
    found = crossed(ANSWERS)
    above, below = found.p_value(0.05, above=True), found.p_value(0.5, above=False)
    assert above != pytest.approx(below)
    for scale in (1.0, 100.0):
        one = crossed_evidence(ANSWERS, Region(low=0.05 * scale), scale=scale)[0]
        both = crossed_evidence(ANSWERS, Region(low=0.05 * scale, high=0.5 * scale), scale=scale)[0]
        assert one.p_value == pytest.approx(above) and both.p_value == pytest.approx(max(above, below))
        assert one.interval_at(0.05).high == pytest.approx(scale * found.interval(0.05).high)


def test_scores_of_paired_items_scale_with_their_unit() -> None:
    plain, points = (score_evidence(40, 25, Region(low=-k / 10, high=k / 10), items=400, scale=k) for k in (1.0, 100.0))
    one, hundred = plain.interval_at(0.025), points.interval_at(0.025)
    assert (hundred.low, hundred.high) == (pytest.approx(100 * one.low), pytest.approx(100 * one.high))
    assert one.confidence == pytest.approx(0.95) and points.p_value == pytest.approx(plain.p_value)


def from_summary(n: int, *, mean: float = 97.0) -> stats.Decision:
    return stats.parity_from_summary((mean, 0.3, n), (97.1, 0.4, 5), margin=1.0)


def test_summaries_have_an_interval_from_two_runs_on_and_say_their_confidence() -> None:
    assert from_summary(1).measurement.interval is None
    interval = from_summary(2).measurement.interval
    assert interval is not None and interval.confidence == pytest.approx(0.9)
    assert from_summary(5, mean=math.nan).measurement.interval is None


def test_a_broken_value_is_told_among_the_values_and_not_by_their_mean() -> None:
    decision = stats.reproduces([97.0, math.nan, 97.1], 97.0, margin=1.0, reference_sd=0.4, reference_n=5)
    assert decision.verdict is Verdict.INCONCLUSIVE and len(decision.measurement.values) == 3


@pytest.mark.parametrize("margin", [0.0, -1.0, math.nan])
def test_a_margin_is_positive(margin: float) -> None:
    for compare in (stats.parity, stats.non_inferior):
        with pytest.raises(InputError, match="margin"):  # and not what a later step makes of it
            compare([1.0, 2.0, 3.0], [1.0, 2.0, 3.5], margin=margin)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.7])
def test_a_plan_of_looks_refuses_a_level_that_is_none(alpha: float) -> None:
    with pytest.raises(InputError):
        stats.planned_looks(alpha=alpha)


def test_bounds_are_counted_by_whichever_was_given_and_the_largest_is_shown() -> None:
    attacked = stats.constrained([0.5, 0.6], None, 1.0).measurement
    assert (attacked.n, attacked.value) == (2, 0.6)
    both = stats.constrained([0.5, 0.6], [0.8, 0.7], 1.0).measurement
    assert (both.n, both.value, both.values) == (2, 0.8, (0.8, 0.7))
    assert both.interval is not None and (both.interval.low, both.interval.high) == (0.6, 0.8)
    assert stats.constrained([0.5, 1.6], [2.0, 2.5], 1.0).measurement.value == 1.6


def test_an_attack_that_reaches_its_certificate_contradicts_nothing() -> None:
    assert stats.constrained(0.9, 0.9, 1.0).verdict is Verdict.PASS


def test_a_rate_shown_by_many_scores_high_and_one_of_too_few_never() -> None:
    many, few = stats.solves(20, 20, 0.5), stats.solves(2, 2, 0.1)
    assert many.passed and many.score is not None and many.score > 50
    assert few.verdict is Verdict.INCONCLUSIVE and few.score is not None and few.score <= 50


def test_an_accuracy_is_a_share_unless_a_scale_is_given() -> None:
    assert stats.above_chance({"a": 0.2}, items=100, chance=0.1).passed
    assert stats.above_chance({"a": 20.0}, items=100, chance=0.1, scale=100.0).passed


def test_what_holm_takes_back_scores_no_more_than_the_boundary() -> None:
    close = stats.parity([1.0, 1.4, 0.7, 1.2], [1.1, 1.2, 0.9, 1.0], margin=0.45)
    assert close.passed and close.score is not None and close.score > 50
    taken = holm_decisions([close.model_copy(update={"p_value": 0.04})] * 2)[0]
    assert taken.verdict is Verdict.INCONCLUSIVE and taken.score == 50


def test_a_rate_beyond_one_is_taken_for_one() -> None:
    assert _rate_limits(1.05, 100, 0.95)[0] == _rate_limits(1.0, 100, 0.95)[0]
    assert _rate_limits(-0.05, 100, 0.95)[1] == _rate_limits(0.0, 100, 0.95)[1]


def measured(method: str, *, n: int, value: float, half: float = 1.0) -> Measurement:
    interval = Interval(low=value - half, high=value + half, confidence=0.9, method=method)
    return Measurement(name="gap", value=value, n=n, interval=interval, region=Region(low=-3.0))


def test_an_unknown_interval_is_stretched_by_the_ratio_of_quantiles() -> None:
    wide = widened(measured("Welch t", n=5, value=2.0), 0.025).interval
    ratio = special.stdtrit(4, 0.975) / special.stdtrit(4, 0.95)
    assert wide is not None and (wide.low, wide.high) == (pytest.approx(2 - ratio), pytest.approx(2 + ratio))
    bare = measured("Welch t", n=5, value=2.0).model_copy(update={"value": None})
    again = widened(bare, 0.025).interval
    assert again is not None and (again.low, again.high) == (pytest.approx(wide.low), pytest.approx(wide.high))


def test_power_from_an_interval_is_that_of_a_normal_estimate() -> None:
    half = float(special.ndtri(0.95))
    interval = Interval(low=-half, high=half, confidence=0.9, method="any")
    power = _around(interval, 0.0, low=-3.0, high=math.inf, truth=0.0, level=0.05)
    assert power == pytest.approx(1 - special.ndtr(-3.0 + half))


def test_power_of_a_count_is_the_chance_of_the_counts_that_confirm() -> None:
    ten = Measurement(name="rate", value=0.9, n=10)
    only_all = stats.binomial_interval(10, 10, confidence=0.9).low - 1e-9
    assert _binomial(ten, only_all, math.inf, 0.9) == pytest.approx(0.9**10)
    assert _binomial(ten, 1.0, math.inf, 0.9) == 0.0


def test_few_answers_that_differ_leave_the_least_that_the_edge_demands() -> None:
    found = Crossed(mean=0.0, seeds=3, items=100, cells=300, weight=0.01, over_seeds=0.0, over_items=0.0,
                    discordant=0.2, shared=0.1, differing=30)  # fmt: skip
    discordant, shared = (0.2 * 100 + 1) / 101, (0.1 * 100 + 1) / 101
    least = (discordant - shared) / 300 + shared * 0.01
    assert found.half(0.0, 0.05) == pytest.approx(float(special.ndtri(0.95)) * math.sqrt(least), rel=1e-6)
    further = (discordant + 0.1 - shared - 0.1 * shared / discordant) / 300
    further += (shared + 0.1 * shared / discordant - 0.01) * 0.01
    assert found.half(0.1, 0.05) == pytest.approx(float(special.ndtri(0.95)) * math.sqrt(further), rel=1e-6)


def test_a_gap_of_summaries_is_the_first_less_the_second() -> None:
    found = stats.parity_from_summary((94.22, 0.08, 3), (94.91, 0.05, 3), margin=3.0).measurement
    assert found.value == pytest.approx(-0.69) and found.n == 3


def test_a_rate_of_less_than_one_item_may_be_none() -> None:
    low, high = _rate_limits(0.001, 100, 0.95)
    assert low == 0.0 and high == pytest.approx(stats.binomial_interval(1, 100).high)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_score_has_a_scale(scale: float) -> None:
    with pytest.raises(InputError, match="scale"):
        stats.score(Interval(low=0.1, high=0.2, confidence=0.9, method="t"), Region(low=0.0), scale=scale)


def test_most_of_the_items_in_one_class_is_a_share() -> None:
    for majority in (1.0, 1.5, -0.1):
        with pytest.raises(InputError, match="majority"):
            stats.above_chance({"a": 0.9}, items=100, chance=0.1, majority=majority)


def a_finding(verdict: Verdict, *measurements: Measurement) -> Finding:
    return Finding(subject="a rule", claim="It learns.", verdict=verdict, reason="", headline="gap",
                   measurements=measurements)  # fmt: skip


def test_a_finding_is_placed_by_its_headline_and_an_error_never() -> None:
    seen = measured("t", n=5, value=1.0)
    assert stats.headline_score(a_finding(Verdict.PASS, seen)) == pytest.approx(100.0)
    assert stats.headline_score(a_finding(Verdict.INCONCLUSIVE, seen)) == 50.0
    bare = seen.model_copy(update={"region": None})
    for nothing in (a_finding(Verdict.ERROR, seen), a_finding(Verdict.PASS), a_finding(Verdict.PASS, bare)):
        assert stats.headline_score(nothing) is None


def test_a_finding_without_numbers_or_without_records_rests_on_no_inputs() -> None:
    some, none = (stats.Ran(records, controls=(), planned=True) for records in ({42: "a"}, {}))
    assert _observations(a_finding(Verdict.PASS), "deterministic", some) == 0
    assert _observations(a_finding(Verdict.PASS, measured("t", n=5, value=1.0)), "deterministic", none) == 0


def test_two_seeds_with_a_spread_tell_what_margin_they_could_confirm() -> None:
    assert stats.parity([1.0, 1.2], [1.1, 1.0], margin=0.5).minimal_margin is not None


def test_no_number_of_flips_shows_an_impossible_p_value() -> None:
    assert swap_test([0.5] * 60) == pytest.approx(1 / (FLIPS + 1))


def test_a_bootstrap_says_how_often_it_drew() -> None:
    assert stats.bootstrap_interval([float(n) for n in range(10)], seed=0).method == "studentised bootstrap, 9999"


def test_a_chain_of_looks_grows_and_its_later_looks_are_two_seeds_or_more() -> None:
    one, three, four = (frozenset(range(n)) for n in (1, 3, 4))
    assert _chain([one, three, four]) == (1, 3, 4)
    assert _chain([three, one]) == _chain([three, three]) == ()


def test_no_margin_is_larger_than_every_answer_being_another() -> None:
    wide = Crossed(mean=0.0, seeds=3, items=100, cells=300, weight=0.01, over_seeds=4.0, over_items=0.0,
                   discordant=0.5, shared=0.1, differing=30)  # fmt: skip
    assert wide.reach(0.05, target=0.8, sides="both") == pytest.approx(1.0)


def test_power_is_asked_of_what_is_claimed_and_none_is_there_without_an_interval() -> None:
    seen = measured("t", n=5, value=1.0)
    assert power_again(None) is None and power_again(seen.model_copy(update={"region": None})) is None
    assert power_again(seen.model_copy(update={"interval": None})) == 0.0


def test_the_side_of_a_swap_is_that_of_its_sum_however_small() -> None:
    assert _swapped([0.3, 0.4], 0.08, 0.05, whole=False).verdict is Verdict.PASS
    assert _swapped([-0.3, -0.4], 0.08, 0.05, whole=False).verdict is Verdict.INCONCLUSIVE
