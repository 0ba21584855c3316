"""compare finds every changed verdict and never calls a worse run equal."""

from __future__ import annotations

import pytest

from assay.reports import compare
from assay.results import Environment, Finding, Measurement, Run, Verdict


def run(*findings: Finding, **changes: object) -> Run:
    return Run.model_validate({"id": "r", "created": "2026-01-01", "findings": findings, **changes})


def claim(verdict: Verdict, *, number: int | None = 1, values: tuple[float, ...] = (), **changes: object) -> Finding:
    measured = (Measurement(name="gap", value=1.0, n=len(values), values=values, seeds=tuple(range(len(values)))),)
    fields = {
        "subject": "s",
        "claim": "c",
        "verdict": verdict,
        "reason": "r",
        "number": number,
        "measurements": measured,
    }
    return Finding.model_validate({**fields, **changes})


def test_a_run_compared_with_itself_shows_nothing(rich: Run) -> None:
    result = compare(rich, rich)
    assert not result.changed and not result.regressions and not result.environment
    assert all(difference.identical for claim in result.claims for difference in claim.differences)


@pytest.mark.parametrize("after", [Verdict.PARTIAL, Verdict.STUB, Verdict.INCONCLUSIVE, Verdict.FAIL, Verdict.ERROR])
def test_anything_less_than_the_earlier_pass_is_a_regression(after: Verdict) -> None:
    assert compare(run(claim(Verdict.PASS)), run(claim(after))).regressions
    assert not compare(run(claim(after)), run(claim(Verdict.PASS))).regressions


def test_a_passed_claim_that_vanished_is_a_regression() -> None:
    result = compare(run(claim(Verdict.PASS), claim(Verdict.FAIL, number=2)), run())
    assert [(c.key, c.change, c.regression) for c in result.claims] == [
        ("track 1", "missing", True),
        ("track 2", "missing", False),
    ]


def test_a_claim_that_now_says_something_else_is_one_gone_and_another_come() -> None:
    result = compare(run(claim(Verdict.PASS, claim="at most 1")), run(claim(Verdict.FAIL, claim="at most 0.1")))
    assert sorted(c.change for c in result.claims) == ["added", "missing"]


def test_a_new_claim_is_added_and_no_regression() -> None:
    result = compare(run(), run(claim(Verdict.FAIL)))
    assert [c.change for c in result.claims] == ["added"] and not result.regressions


def test_differences_are_taken_seed_by_seed() -> None:
    result = compare(run(claim(Verdict.PASS, values=(1.0, 2.0, 4.0))), run(claim(Verdict.PASS, values=(1.5, 2.0))))
    (difference,) = result.claims[0].differences
    assert difference.seeds == (0, 1) and difference.differences == (0.5, 0.0) and difference.mean == 0.25
    assert not difference.identical


def test_a_changed_unit_is_not_subtracted() -> None:
    old = claim(Verdict.PASS, measurements=(Measurement(name="gap", value=1.0, unit="%"),))
    new = claim(Verdict.PASS, measurements=(Measurement(name="gap", value=0.01, unit="1"),))
    assert compare(run(old), run(new)).claims[0].differences == ()


def test_claims_without_a_number_are_matched_by_name_and_subject_and_twins_stay_apart() -> None:
    twins = [claim(Verdict.PASS, number=None, name="parity"), claim(Verdict.FAIL, number=None, name="parity")]
    swapped = [claim(Verdict.PASS, number=None, name="parity"), claim(Verdict.PASS, number=None, name="parity")]
    assert [c.change for c in compare(run(*twins), run(*swapped)).claims] == ["same", "better"]


def test_every_environment_difference_is_named() -> None:
    old = run(environment=Environment(packages={"torch": "2.4"}, git_dirty=False, threads=1), config={"seed": 42})
    new = run(environment=Environment(packages={"torch": "2.13"}, git_dirty=True, threads=2), config={"seed": 43})
    assert [(c.name, c.before, c.after) for c in compare(old, new).environment] == [
        ("git state", "clean", "uncommitted changes"),
        ("threads", "1", "2"),
        ("package torch", "2.4", "2.13"),
        ("config seed", "42", "43"),
    ]
