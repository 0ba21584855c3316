import dataclasses
import math

import pytest

from assay import stats
from assay.protocols import Outcome, Outcomes, Trial
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


def ran(seeds=SEEDS, *, controls=(GOOD, BAD), planned=True, **more) -> stats.Ran:
    return stats.Ran({seed: f"record of {seed}" for seed in seeds}, controls=controls, planned=planned, **more)


def enforce(subject: Finding, *, kind="statistical", seeds=SEEDS, **more) -> Finding:
    return stats.enforce(subject, kind=kind, ran=ran(seeds, controls=subject.controls, **more))


def test_a_sound_finding_keeps_its_verdict_and_gets_its_level():
    kept = enforce(finding())
    assert (kept.verdict, kept.evidence, kept.score) == (Verdict.PASS, Evidence.CONFIRMED, 90.0)
    assert kept.checks == ()


def stopped_by(judged: Finding) -> set[str]:
    return {check.name for check in judged.checks if check.verdict is not Verdict.PASS}


def test_a_failed_trial_makes_an_error_whatever_was_decided():
    crash = Failure(label="eqprop seed 43", kind="RuntimeError", message="boom")
    for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PARTIAL, Verdict.STUB):
        judged = enforce(finding(verdict=verdict, failures=(crash, crash)))
        assert judged.verdict is Verdict.ERROR
        assert stopped_by(judged) == {"every trial finished"}
        assert "eqprop seed 43" in judged.reason and "boom" in judged.reason
        assert judged.score is None
        assert judged.evidence is Evidence.SMOKE


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.PARTIAL, Verdict.FAIL])
def test_controls_that_are_not_told_apart_make_every_verdict_inconclusive(verdict):
    judged = enforce(finding(verdict=verdict, controls=(GOOD, MISSED)))
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert "broken" in judged.reason and "healthy" not in judged.reason
    assert judged.score == 50.0
    assert judged.checks[-1].name == "calibrated"


def test_a_check_nobody_has_seen_fail_is_not_calibrated():
    judged = enforce(finding(controls=()))
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert stopped_by(judged) == {"calibrated"}


@pytest.mark.parametrize("seeds", [(42,), (42, 43), (42, 42, 42), ()])
def test_fewer_than_three_distinct_seeds_are_never_a_statistical_pass(seeds):
    subject = finding(measurements=(gap().model_copy(update={"seeds": (), "values": ()}),))
    judged = enforce(subject, seeds=seeds)
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.evidence is Evidence.SMOKE
    assert enforce(subject, kind="deterministic", seeds=seeds or SEEDS).verdict is Verdict.PASS


def test_a_failure_with_few_seeds_stays_a_failure():
    assert enforce(finding(verdict=Verdict.FAIL), seeds=(42,)).verdict is Verdict.FAIL


def test_ten_seeds_asked_for_and_one_trial_run_are_one_observation():
    one = Outcomes((Outcome(Trial("subject", 42), {"gap": 0.001}),))
    counted = stats.Ran(stats.finished(one), controls=(GOOD, BAD), planned=True)
    judged = stats.enforce(finding(), kind="statistical", ran=counted)
    assert (judged.verdict, judged.evidence) == (Verdict.INCONCLUSIVE, Evidence.SMOKE)
    assert "enough seeds" in stopped_by(judged)


def test_a_number_that_names_seeds_nobody_ran_is_no_pass():
    judged = enforce(finding(), seeds=SEEDS[:8])
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert stopped_by(judged) == {"seeds were run"} and "50, 51" in judged.reason


def test_ten_identical_records_of_a_track_that_ignores_its_seed_are_one():
    same = [
        Outcome(Trial("subject", s), {"gap": 0.001, "seed": s, "random_seed": s, "cpu_seconds": s / 7, "pid": 9 * s})
        for s in SEEDS
    ]
    counted = stats.Ran(stats.finished(Outcomes(tuple(same))), controls=(GOOD, BAD), planned=True)
    judged = stats.enforce(finding(), kind="statistical", ran=counted)
    assert (judged.verdict, judged.evidence) == (Verdict.INCONCLUSIVE, Evidence.SMOKE)
    differing = [Outcome(Trial("subject", s), {"gap": s / 1e6, "cpu_seconds": 1.0}) for s in SEEDS]
    counted = stats.Ran(stats.finished(Outcomes(tuple(differing))), controls=(GOOD, BAD), planned=True)
    assert stats.enforce(finding(), kind="statistical", ran=counted).evidence is Evidence.CONFIRMED


def test_where_clocks_are_all_that_was_recorded_they_are_the_observation():
    clocks = [Outcome(Trial("subject", s), {"seconds": s / 7}) for s in SEEDS]
    assert len(set(stats.finished(Outcomes(tuple(clocks))).values())) == len(SEEDS)


def test_a_seed_that_one_arm_did_not_finish_is_no_pair():
    both = [Outcome(Trial(arm, s), {"accuracy": s / 100}) for arm in ("ours", "theirs") for s in SEEDS]
    assert set(stats.finished(Outcomes(tuple(both)))) == set(SEEDS)
    assert set(stats.finished(Outcomes(tuple(both[:-7])))) == set(SEEDS[:3])
    lone = Outcome(Trial("control: bad", 42), {"accuracy": 0.1})
    assert set(stats.finished(Outcomes((*both, lone)), controls=["control: bad"])) == set(SEEDS)


def test_a_mean_inside_its_region_without_an_interval_is_no_pass():
    bare = Measurement(name="gap", value=0.5001, n=10, region=Region(low=0.5), values=(0.5001,) * 10, seeds=SEEDS)
    judged = enforce(finding(measurements=(bare,)))
    assert (judged.verdict, judged.evidence) == (Verdict.INCONCLUSIVE, Evidence.SMOKE)
    assert stopped_by(judged) == {"interval inside the region"}
    assert enforce(finding(measurements=(bare,)), kind="deterministic").verdict is Verdict.PASS


def test_a_statistical_pass_without_any_region_is_no_pass():
    number = stats.summarise("gap", [0.1, 0.2, 0.3], seeds=SEEDS[:3])
    judged = enforce(finding(measurements=(number,)))
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert stopped_by(judged) == {"interval inside the region"}


def test_without_a_headline_the_worst_measurement_decides():
    good, region = gap(), Region(low=-0.03, high=0.03)
    outside = gap(value=0.05, interval=Interval(low=0.04, high=0.06, confidence=0.9, method="t")).model_copy(
        update={"name": "other"}
    )
    across = outside.model_copy(
        update={"value": 0.02, "interval": Interval(low=0.01, high=0.04, confidence=0.9, method="t"), "region": region}
    )
    assert enforce(finding(headline=None, measurements=(good, good))).verdict is Verdict.PASS
    for bad in ((outside, outside), (good, outside), (good, across)):
        assert enforce(finding(headline=None, measurements=bad)).verdict is Verdict.INCONCLUSIVE
    # With a headline the others may be undecided, never outside.
    assert enforce(finding(measurements=(good, across))).verdict is Verdict.PASS
    assert enforce(finding(measurements=(good, outside))).verdict is Verdict.INCONCLUSIVE


def test_what_is_undecided_is_never_called_confirmed():
    wide = [0.06, -0.06, 0.05, -0.05, 0.04, -0.04, 0.03, -0.03, 0.02, -0.02]
    decision = stats.non_inferior(wide, [0.0] * 10, margin=0.02, seeds=SEEDS)
    assert decision.verdict is Verdict.INCONCLUSIVE
    judged = enforce(finding(verdict=Verdict.INCONCLUSIVE, measurements=(decision.measurement,)))
    assert judged.evidence is Evidence.DIRECTIONAL
    assert enforce(finding(verdict=Verdict.PARTIAL)).evidence is Evidence.DIRECTIONAL


def test_one_sided_claims_are_asked_for_power_too():
    lucky = [0.055, 0.06, -0.02, 0.07, -0.01, 0.05, 0.045, -0.005, 0.08, -0.015]
    for decision in (
        stats.non_inferior(lucky, [0.0] * 10, margin=0.001, seeds=SEEDS),
        stats.better(lucky, [0.0] * 10, seeds=SEEDS),
    ):
        assert decision.passed
        lone = enforce(finding(measurements=(decision.measurement,)))
        assert (lone.verdict, lone.evidence) == (Verdict.PASS, Evidence.DIRECTIONAL)
    sure = stats.better([0.05 + gap / 100 for gap in lucky], [0.0] * 10, seeds=SEEDS)
    assert enforce(finding(measurements=(sure.measurement,))).evidence is Evidence.CONFIRMED
    solved = stats.solves(10, 10, 0.7)
    assert enforce(finding(headline="success rate", measurements=(solved.measurement,))).evidence is Evidence.CONFIRMED


def test_replicated_is_found_in_the_looks_before_never_declared():
    first = stats.Look(SEEDS, "2026-01-01", "code", "here", Verdict.PASS, Evidence.CONFIRMED, stats.asked(finding()))
    again = {"code": "code", "machine": "here"}
    others = tuple(range(100, 110))
    other = gap().model_copy(update={"seeds": others})

    def level(*earlier, seeds=others, **where):
        subject = finding(measurements=(other if seeds == others else gap(),))
        return enforce(subject, seeds=seeds, earlier=earlier, **(again | where)).evidence

    assert level() is Evidence.CONFIRMED
    assert level(first) is Evidence.REPLICATED
    assert level(first, seeds=SEEDS) is Evidence.CONFIRMED
    assert level(first, seeds=SEEDS, machine="there") is Evidence.REPLICATED
    assert level(first, seeds=SEEDS, code="later") is Evidence.REPLICATED
    assert level(dataclasses.replace(first, evidence=Evidence.DIRECTIONAL)) is Evidence.CONFIRMED
    assert level(dataclasses.replace(first, verdict=Verdict.FAIL)) is Evidence.CONFIRMED
    assert level(dataclasses.replace(first, asked="gap within 0.05")) is Evidence.CONFIRMED, "another question"


def test_a_margin_or_a_number_chosen_after_the_seeds_were_seen_is_not_fixed_beforehand():
    asked, there = stats.asked(finding()), {"code": "code", "machine": "here"}
    narrow = stats.Look(SEEDS, "2026-01-01", "code", "here", Verdict.INCONCLUSIVE, None, "gap -0.01 to 0.01 1")
    moved = enforce(finding(), earlier=(narrow,), **there)
    assert (moved.verdict, moved.evidence) == (Verdict.PASS, Evidence.DIRECTIONAL)
    assert any("gap -0.01 to 0.01" in text for text in moved.limitations)
    for other in (
        dataclasses.replace(narrow, asked=asked),
        dataclasses.replace(narrow, asked=""),
        dataclasses.replace(narrow, seeds=(1, 2, 3)),
        dataclasses.replace(narrow, verdict=Verdict.PASS),
    ):
        assert enforce(finding(), earlier=(other,), **there).evidence is Evidence.CONFIRMED


def test_more_values_than_records_are_no_pass():
    few = SEEDS[:4]
    unnamed = gap(seeds=())
    judged = enforce(finding(measurements=(unnamed,)), seeds=few)
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert stopped_by(judged) == {"values have records"}
    bare = unnamed.model_copy(update={"values": ()})
    assert enforce(finding(measurements=(bare,)), seeds=few).verdict is Verdict.INCONCLUSIVE
    assert enforce(finding(measurements=(unnamed,))).verdict is Verdict.PASS
    twice = gap(seeds=(*SEEDS[:9], SEEDS[0]))
    assert stopped_by(enforce(finding(measurements=(twice,)))) == {"seeds were run"}


def test_the_inputs_of_a_deterministic_claim_are_those_its_records_tell_of():
    many = Measurement(name="gap", value=0.001, n=1000, region=Region(high=0.03))
    subject = finding(measurements=(many,))

    def level(*records):
        outcomes = Outcomes(tuple(Outcome(Trial("subject", s), r) for s, r in zip(SEEDS, records, strict=False)))
        told = stats.Ran(
            stats.finished(outcomes), controls=(GOOD, BAD), planned=True, inputs=stats.inputs_told(outcomes))
        return stats.enforce(subject, kind="deterministic", ran=told).evidence

    assert level({"gap": 0.001}) is Evidence.SMOKE
    assert level(*[{"gap": 0.001, "seed": s} for s in SEEDS]) is Evidence.SMOKE, "one record ten times"
    assert level({"errors": [0.001 * k for k in range(20)]}) is Evidence.CONFIRMED
    assert level({"gap": 0.001, "compared": 40}) is Evidence.CONFIRMED


def test_a_deterministic_claim_holds_for_every_value_and_not_on_average():
    above = Measurement(name="gap", value=0.02, n=10, region=Region(high=0.03), values=(*[0.0] * 9, 0.2))
    assert enforce(finding(measurements=(above,)), kind="deterministic").verdict is Verdict.INCONCLUSIVE
    every = above.model_copy(update={"values": (0.02,) * 10})
    assert enforce(finding(measurements=(every,)), kind="deterministic").verdict is Verdict.PASS


def test_ten_seeds_asked_for_do_not_help_if_the_number_rests_on_one():
    lone = Measurement(name="gap", value=0.001, n=1, region=Region(low=-0.03, high=0.03), values=(0.001,), seeds=(42,))
    judged = enforce(finding(measurements=(lone,)))
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert "enough seeds" in stopped_by(judged)


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
@pytest.mark.parametrize("kind", ["statistical", "deterministic"])
def test_a_headline_that_is_no_number_is_never_a_pass(kind, value):
    judged = enforce(finding(measurements=(gap(value=value, interval=None),)), kind=kind)
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert "the number exists" in stopped_by(judged)


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
    five = finding(evidence=Evidence.REPLICATED, measurements=(gap(values=gap().values[:5]),))
    assert enforce(five, seeds=SEEDS[:5]).evidence is Evidence.DIRECTIONAL


def test_confirmed_needs_seeds_plan_controls_and_power():
    assert enforce(finding()).evidence is Evidence.CONFIRMED
    assert enforce(finding(), planned=False).evidence is Evidence.DIRECTIONAL
    assert enforce(finding(measurements=(gap(values=gap().values[:9]),)), seeds=SEEDS[:9]).evidence is (
        Evidence.DIRECTIONAL
    )
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
