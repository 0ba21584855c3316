import math

import pytest

from assay import stats
from assay.results import Control, Evidence, Failure, Finding, Interval, Measurement, Region, Verdict

GOOD = Control(name="healthy", kind="known-good", expected="PASS", observed="PASS", separated=True)
BAD = Control(name="broken", kind="known-bad", expected="FAIL", observed="FAIL", separated=True)
MISSED = BAD.model_copy(update={"observed": "PASS", "separated": False})
SEEDS = tuple(range(42, 52))


def gap(values=(0.001, -0.002, 0.002, 0.0, 0.001, -0.001, 0.001, 0.0, -0.001, 0.001), **changes) -> Measurement:
    return stats.parity(values, [0.0] * len(values), margin=0.03, seeds=SEEDS[: len(values)]).measurement.model_copy(
        update=changes
    )


def finding(**changes) -> Finding:
    base = {
        "subject": "eqprop", "claim": "parity", "verdict": Verdict.PASS, "reason": "inside", "score": 90.0,
        "headline": "gap", "measurements": (gap(),), "controls": (GOOD, BAD), "seeds": SEEDS,
    }  # fmt: skip
    return Finding(**(base | changes))


def enforce(subject: Finding, *, kind="statistical", seeds=SEEDS, **more) -> Finding:
    return stats.enforce(subject, kind=kind, seeds=seeds, **more)


def test_a_sound_finding_keeps_its_verdict_and_gets_its_level():
    kept = enforce(finding())
    assert (kept.verdict, kept.evidence, kept.score) == (Verdict.PASS, Evidence.CONFIRMED, 90.0)
    assert kept.checks == ()


def test_a_failed_trial_makes_an_error_whatever_was_decided():
    crash = Failure(label="eqprop seed 43", kind="RuntimeError", message="boom")
    for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PARTIAL, Verdict.STUB):
        judged = enforce(finding(verdict=verdict, failures=(crash, crash)))
        assert judged.verdict is Verdict.ERROR
        assert judged.reason.startswith("eqprop seed 43 failed and 1 more: RuntimeError: boom")
        assert judged.score is None
        assert judged.evidence is Evidence.SMOKE


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.PARTIAL, Verdict.FAIL])
def test_controls_that_are_not_told_apart_make_every_verdict_inconclusive(verdict):
    judged = enforce(finding(verdict=verdict, controls=(GOOD, MISSED)))
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.reason.startswith("not calibrated: known-bad 'broken' expected FAIL, observed PASS")
    assert judged.score == 50.0
    assert judged.checks[-1].name == "calibrated"


def test_a_check_nobody_has_seen_fail_is_not_calibrated():
    judged = enforce(finding(controls=()))
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert "no control was run" in judged.reason


@pytest.mark.parametrize("seeds", [(42,), (42, 43), (42, 42, 42), ()])
def test_fewer_than_three_distinct_seeds_are_never_a_statistical_pass(seeds):
    subject = finding(measurements=(gap().model_copy(update={"seeds": (), "values": ()}),))
    judged = enforce(subject, seeds=seeds)
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.evidence is Evidence.SMOKE
    assert enforce(subject, kind="deterministic", seeds=seeds).verdict is Verdict.PASS


def test_a_failure_with_few_seeds_stays_a_failure():
    assert enforce(finding(verdict=Verdict.FAIL), seeds=(42,)).verdict is Verdict.FAIL


def test_ten_seeds_asked_for_do_not_help_if_the_number_rests_on_one():
    lone = Measurement(name="gap", value=0.001, n=1, region=Region(low=-0.03, high=0.03), values=(0.001,), seeds=(42,))
    judged = enforce(finding(measurements=(lone,)))
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.reason.startswith("1 seed(s)")


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
@pytest.mark.parametrize("kind", ["statistical", "deterministic"])
def test_a_headline_that_is_no_number_is_never_a_pass(kind, value):
    judged = enforce(finding(measurements=(gap(value=value, interval=None),)), kind=kind)
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert "missing, NaN or infinite" in judged.reason


def test_a_nan_among_the_judged_numbers_is_seen_without_a_headline():
    other = Measurement(name="norm", value=math.nan, n=3, region=Region(high=1.0))
    judged = enforce(finding(headline=None, measurements=(gap(), other)))
    assert judged.verdict is Verdict.INCONCLUSIVE


def test_a_pass_without_any_number_is_inconclusive():
    assert enforce(finding(measurements=(), headline=None)).verdict is Verdict.INCONCLUSIVE
    assert "'gap' is missing" in enforce(finding(measurements=())).reason


@pytest.mark.parametrize("high", [0.031, math.nan])
def test_a_pass_whose_interval_leaves_its_region_is_inconclusive(high):
    wide = gap(interval=Interval(low=-0.01, high=high, confidence=0.9, method="t"))
    assert enforce(finding(measurements=(wide,))).verdict is Verdict.INCONCLUSIVE


def test_several_guards_are_all_named():
    judged = enforce(finding(controls=(GOOD, MISSED), failures=(Failure(label="x", kind="Timeout", message="1 s"),)))
    assert judged.verdict is Verdict.ERROR


def test_a_verdict_is_never_improved():
    for verdict in Verdict:
        assert enforce(finding(verdict=verdict)).verdict is verdict


def test_a_declared_evidence_level_is_replaced_by_the_computed_one():
    assert enforce(finding(evidence=Evidence.REPLICATED), seeds=SEEDS[:5]).evidence is Evidence.DIRECTIONAL


def test_confirmed_needs_seeds_plan_controls_and_power():
    assert enforce(finding()).evidence is Evidence.CONFIRMED
    assert enforce(finding(), replicated=True).evidence is Evidence.REPLICATED
    assert enforce(finding(), fixed_beforehand=False).evidence is Evidence.DIRECTIONAL
    assert enforce(finding(), seeds=SEEDS[:9]).evidence is Evidence.DIRECTIONAL
    assert enforce(finding(controls=(BAD,))).evidence is Evidence.DIRECTIONAL
    noisy = gap(values=(0.03, -0.03, 0.02, -0.02, 0.05, -0.05, 0.01, -0.01, 0.04, -0.04))
    assert enforce(finding(verdict=Verdict.INCONCLUSIVE, measurements=(noisy,))).evidence is Evidence.DIRECTIONAL


def test_deterministic_claims_earn_their_level_by_inputs_times_precisions():
    def level(n: int, varied=()):
        error = Measurement(name="error", value=1e-9, n=n, region=Region(high=1e-6))
        return enforce(finding(headline="error", measurements=(error,), varied=varied), kind="deterministic").evidence

    assert level(1) is Evidence.SMOKE
    assert level(5) is Evidence.DIRECTIONAL
    assert level(5, varied=("float32", "float64")) is Evidence.CONFIRMED
    assert level(10) is Evidence.CONFIRMED


def test_sensitivity_and_specificity_carry_exact_bounds():
    controls = [BAD] * 9 + [MISSED] + [GOOD] * 20
    caught, accepted = stats.sensitivity(controls), stats.specificity(controls)
    assert (caught.value, caught.n) == (0.9, 10)
    assert caught.interval == stats.binomial_interval(9, 10)
    assert accepted.interval is not None
    assert accepted.interval.low == pytest.approx(0.025 ** (1 / 20))
    assert stats.sensitivity([GOOD]).value is None
    assert stats.specificity([GOOD]).interval is None
