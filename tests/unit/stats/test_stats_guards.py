"""Which number decided, and what a swap of two systems says: small facts that verdicts rest on."""

from __future__ import annotations

import math

import pytest

from assay.results import Finding, Measurement, Region, Verdict
from assay.stats import Spending, power
from assay.stats.guards import deciding, headline_of, look_allows
from assay.stats.intervals import deviation
from assay.stats.items import _swapped, _unpaired
from assay.stats.levels import _student

JUDGED = Measurement(name="gap", value=0.1, n=3, region=Region(low=-1, high=1))
OTHER = Measurement(name="spread", value=0.2, n=3, region=Region(low=0))
BARE = Measurement(name="accuracy", value=97.0, n=3)


def finding(*measurements: Measurement, headline: str | None = None) -> Finding:
    return Finding(subject="a rule", claim="It learns.", verdict=Verdict.PASS, reason="", headline=headline,
                   measurements=measurements)


def test_the_headline_is_the_one_named_or_the_only_one_with_a_region() -> None:
    assert headline_of(finding(JUDGED, BARE, headline="accuracy")) == BARE
    assert headline_of(finding(JUDGED, BARE)) == JUDGED
    assert headline_of(finding(JUDGED, OTHER)) is None and headline_of(finding(BARE)) is None
    assert headline_of(finding(JUDGED, headline="absent")) is None


def test_where_none_is_named_every_judged_number_decides() -> None:
    assert deciding(finding(JUDGED, OTHER, BARE)) == (JUDGED, OTHER)
    assert deciding(finding(JUDGED, OTHER, BARE, headline="spread")) == (OTHER,)


@pytest.mark.parametrize(("sums", "two_sided", "verdict"), [
    ([1.0, 1.0], 0.08, Verdict.PASS), ([1.0, 1.0], 0.12, Verdict.INCONCLUSIVE),
    ([-1.0, -1.0], 0.08, Verdict.INCONCLUSIVE),
])  # fmt: skip
def test_a_swap_test_counts_one_side_which_is_half_of_both(sums, two_sided, verdict) -> None:
    assert _swapped(sums, two_sided, 0.05, whole=True).verdict is verdict


def test_a_look_with_nothing_left_to_spend_decides_nothing() -> None:
    for level, kept in ((0.0, False), (0.01, True)):
        look = Spending(level=level, alpha=0.05, note="spent")
        check = look_allows(finding(JUDGED), "statistical", look)
        assert (check is None) is kept and look_allows(finding(JUDGED), "deterministic", look) is None


def test_power_inside_a_region_is_that_of_half_its_width_about_its_middle() -> None:
    values = [-2.0, 4.0, 0.0, 3.0]
    expected = power(6.0, deviation(values), 4, gap=0.25, alpha=0.05)
    assert _student(values, -5.0, 7.0, truth=1.25, level=0.05) == pytest.approx(expected)
    one_sided = power(0.5, deviation(values), 4, alpha=0.05, sides="one")
    assert _student(values, 0.5, math.inf, truth=1.0, level=0.05) == pytest.approx(one_sided)
    assert _student(values, -math.inf, 1.5, truth=1.0, level=0.05) == pytest.approx(one_sided)
    assert _student(values, 2.0, math.inf, truth=1.0, level=0.05) == 0.0


def test_equal_means_tell_nothing_and_means_far_apart_do() -> None:
    assert _unpaired([1.0, 2.0], [2.0, 1.0]) == 1.0 and _unpaired([1.0], [5.0]) == 1.0
    assert _unpaired([0.0, 1.0, 0.0, 1.0], [9.0, 10.0, 9.0, 10.0]) < 1e-6
    assert _unpaired([1.0, 1.0], [2.0, 2.0]) == 0.0
