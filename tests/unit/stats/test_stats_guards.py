"""Which number decided, and what a swap of two systems says: small facts that verdicts rest on."""

from __future__ import annotations

import pytest

from assay.results import Finding, Measurement, Region, Verdict
from assay.stats.guards import deciding, headline_of
from assay.stats.items import _swapped

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
