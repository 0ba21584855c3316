"""Controls are arms: run, put in the place of an arm of the claim, and judged by its decision."""

import pytest

from assay import stats
from assay.protocols import Outcome, Outcomes, Trial, known_bad, known_good
from assay.results import Check, Verdict


class Body:
    """Passes what is positive, stops at what is exactly 0, fails what is negative."""

    def __init__(self, *controls):
        self.controls = controls

    def decide(self, outcomes):
        values = outcomes.values("subject", "value")
        if min(values) == 0:
            return Check(name="x", verdict=Verdict.INCONCLUSIVE, reason="stopped: no signal")
        return Check(name="x", verdict=Verdict.PASS if min(values) > 0 else Verdict.FAIL, reason=f"least {min(values)}")


def ran(**arms):
    return Outcomes(tuple(Outcome(Trial(arm, s), {"value": v}) for arm, v in arms.items() for s in (1, 2, 3)))


RAN = ran(subject=1.0, good=2.0, bad=-1.0, silent=0.0)


def told(*controls, outcomes=RAN):
    return [control.separated for control in stats.judged_controls(Body(*controls), outcomes)]


def test_a_control_is_judged_by_the_decision_of_the_claim():
    good, bad = stats.judged_controls(Body(known_good("good", "subject"), known_bad("bad", "subject")), RAN)
    assert (good.kind, good.observed, good.separated) == ("known-good", "PASS: least 2.0", True)
    assert (bad.kind, bad.observed, bad.separated) == ("known-bad", "FAIL: least -1.0", True)


def test_a_control_on_the_wrong_side_is_not_told_apart():
    assert told(known_good("bad", "subject"), known_bad("good", "subject")) == [False, False]


def test_a_known_bad_control_that_a_guard_stops_counts_only_for_its_reason():
    assert told(known_bad("silent", "subject")) == [False]
    assert told(known_bad("silent", "subject", because="no signal")) == [True]
    assert told(known_bad("silent", "subject", because=("too slow", "no signal"))) == [True]
    assert told(known_bad("bad", "subject", because="no signal")) == [False]
    assert told(known_bad("good", "subject", because="least")) == [False]


def test_a_control_that_did_not_run_or_cannot_be_decided_is_not_told_apart():
    assert told(known_bad("absent", "subject")) == [False]
    (broken,) = stats.judged_controls(Body(known_bad("odd", "subject")), ran(subject=1.0, odd="x"))
    assert (broken.separated, broken.observed[:19]) == (False, "ERROR: no decision:")


def test_a_name_alone_is_no_control():
    body = Body("good", "bad")
    assert stats.judged_controls(body, RAN) == ()
    assert stats.control_arms(body) == ("good", "bad")


def test_the_other_arms_keep_the_seeds_of_the_control_and_a_check_may_judge():
    few = Outcomes((*RAN.all, Outcome(Trial("late", 2), {"value": -1.0}), Outcome(Trial("other", 3), {"value": 0.0})))
    swapped = few.with_control(known_bad("late", "subject"))
    assert {o.trial.seed for o in swapped} == {2}
    assert swapped.values("subject", "value") == (-1.0,)
    assert swapped.values("late", "value") == (-1.0,)

    class Judging(Body):
        def judge(self, outcomes):
            return Check(name="x", verdict=Verdict.FAIL, reason=str(outcomes.values("subject", "value")))

    (control,) = stats.judged_controls(Judging(known_bad("good", "subject")), RAN)
    assert control.observed == "FAIL: (2.0, 2.0, 2.0)"


def test_two_arms_can_be_replaced_at_once():
    control = known_good("pair", {"subject": "good", "base": "bad"})
    swapped = RAN.with_control(control)
    assert (control.arms, swapped.values("base", "value")) == (("good", "bad"), (-1.0, -1.0, -1.0))


@pytest.mark.parametrize("make", [known_good, known_bad])
def test_a_control_says_what_it_stands_for(make):
    assert str(make("good", "subject")).endswith(", in place of subject)")
