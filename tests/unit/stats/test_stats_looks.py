"""Looks: quick, standard and full on one claim, and other root seeds, together stay within alpha."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from assay import stats
from assay.results import Control, Finding, Verdict
from assay.stats.levels import widened
from assay.stats.looks import Look, spending

GOOD = Control(name="healthy", kind="known-good", expected="not FAIL", observed="PASS", separated=True)
BAD = Control(name="broken", kind="known-bad", expected="FAIL", observed="FAIL", separated=True)


def look(n: int, first: int = 42, verdict: Verdict | None = Verdict.INCONCLUSIVE, code: str = "") -> Look:
    return Look(tuple(range(first, first + n)), "2026-01-01", code, "here", verdict)


def level(n: int, *before: Look, first: int = 42) -> float:
    return spending(range(first, first + n), before).level


def test_each_look_costs_less_than_its_share_of_bonferroni():
    levels = level(3), level(10, look(3)), level(20, look(3), look(10))
    assert levels[0] == pytest.approx(0.05 / 3, rel=0.01)
    assert levels[0] < levels[1] < levels[2]
    assert levels[1] > 1.08 * 0.05 / 3
    assert levels[2] > 1.3 * 0.05 / 3
    assert level(20) == 0.05


@pytest.mark.parametrize("chain", [(3, 10, 20), (5, 10, 20), (10, 20)])
def test_growing_looks_keep_the_false_parities_below_five_per_cent(chain):
    repeats = 100_000
    data = np.random.default_rng(7).normal(0.0, 1.0, (repeats, 20))
    naive, spent, before = np.zeros(repeats, bool), np.zeros(repeats, bool), []
    for n in chain:
        p = scipy_stats.ttest_1samp(data[:, :n], 0.0, axis=1, alternative="greater").pvalue
        naive |= p <= 0.05
        spent |= p <= level(n, *before)
        before.append(look(n))
    assert naive.mean() > 0.07
    assert 0.045 < spent.mean() < 0.05 + 3 * np.sqrt(0.05 * 0.95 / repeats)


def test_five_root_seeds_spend_no_more_than_alpha_together():
    before, total = [], 0.0
    for first in (1, 100, 200, 300, 400):
        granted = spending(range(first, first + 10), before)
        total += granted.level
        assert granted.shopped == tuple(sorted(each.root for each in before))
        before.append(look(10, first))
    assert total <= 0.05 + 1e-12
    assert "other root seeds were looked at before (1, 100, 200, 300) and did not pass" in granted.note


def test_the_same_seeds_again_are_the_same_look():
    assert level(10, look(3), look(10)) == level(10, look(3))
    assert level(10, look(3), look(10), look(20)) == level(10, look(3))


def test_a_choice_of_fewer_seeds_afterwards_is_worth_nothing():
    granted = spending(range(42, 45), [look(20)])
    assert (granted.level, granted.shopped) == (0.0, ())
    assert "a choice among looks" in granted.note


def test_looks_that_did_not_finish_or_that_other_code_made_do_not_count():
    assert level(20, look(3, verdict=None), look(10, code="older")) == 0.05


def test_after_a_pass_a_look_can_only_confirm():
    assert spending(range(100, 120), [look(20, verdict=Verdict.PASS)]).level == 0.05


def test_an_interval_is_made_again_at_the_stricter_level():
    gaps = [0.001, -0.002, 0.002, 0.0, 0.001]
    loose = stats.parity(gaps, [0.0] * 5, margin=0.03)
    strict = stats.parity(gaps, [0.0] * 5, margin=0.03, alpha=0.01)
    made = widened(loose.measurement, 0.01)
    wanted = strict.measurement.interval
    assert (made.interval.low, made.interval.high) == pytest.approx((wanted.low, wanted.high))
    assert made.interval.confidence == wanted.confidence
    assert widened(strict.measurement, 0.05) is strict.measurement
    solved = widened(stats.solves(9, 10, 0.5).measurement, 0.01)
    assert solved.interval == stats.binomial_interval(9, 10, confidence=0.98)
    assert widened(loose.measurement, 0.0).interval.high == float("inf")


def enforced(n: int, spread: float, *before: Look, first: int = 42) -> Finding:
    seeds = tuple(range(first, first + n))
    gaps = [spread * (1 if seed % 2 else -1) * (1 + 0.01 * (seed % 5)) for seed in seeds]
    decision = stats.parity(gaps, [0.0] * n, margin=0.03, seeds=seeds)
    finding = Finding(
        subject="x", claim="parity", verdict=decision.verdict, reason=decision.reason, headline="gap",
        measurements=(decision.measurement,),
    )  # fmt: skip
    ran = stats.Ran(
        {seed: str(seed) for seed in seeds}, controls=(GOOD, BAD), planned=True, look=spending(seeds, before)
    )
    return stats.enforce(finding, kind="statistical", ran=ran)


def test_the_verdict_spends_alpha_and_says_so():
    close = enforced(10, 0.04)
    assert close.verdict is Verdict.PASS
    assert close.checks[-1].reason == "first look at this claim: tested at 3.34% of the 5%"
    assert close.measurements[0].interval.confidence == pytest.approx(1 - 2 * 0.0334, abs=1e-3)
    again = enforced(10, 0.04, look(3))
    assert again.verdict is Verdict.INCONCLUSIVE
    assert str(again.evidence) == "directional", "too lax a level is no fault of what was run"
    assert "does not lie inside -0.03 to 0.03" in again.reason
    assert enforced(10, 0.002, look(3)).verdict is Verdict.PASS


def test_the_reason_names_the_interval_that_decides_and_the_page_shows():
    """A claim is written at 90 %; a stricter look decides at another interval, and one page tells one story."""
    close = enforced(10, 0.04)
    interval = close.measurements[0].interval
    assert f"[{interval.low:.4g}, {interval.high:.4g}] ({100 * interval.confidence:.3g} %)" in close.reason
    full = enforced(20, 0.01)
    assert full.measurements[0].interval.confidence == pytest.approx(0.9)
    assert full.reason.count("interval") == 1, "at the full level there is one interval to tell of"


def test_a_run_that_shops_for_root_seeds_says_so_and_is_never_confirmed():
    alone, shopped = enforced(10, 0.002, first=100), enforced(10, 0.002, look(3), look(3, 7), first=100)
    assert (alone.verdict, str(alone.evidence)) == (Verdict.PASS, "confirmed")
    assert (shopped.verdict, str(shopped.evidence)) == (Verdict.PASS, "directional")
    assert shopped.limitations[-1].startswith("Root seeds tried before without a PASS: 7, 42.")
    assert [check.label for check in shopped.checks] == ["shopped"]
