"""The page says what the stored numbers say, in plain words, and in red where its verdict says otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from assay.reports import words
from assay.reports.html import html
from assay.reports.next_steps import next_steps
from assay.reports.plain import plain, says_more
from assay.reports.truth import contradictions, warnings
from assay.reports.words import sized
from assay.results import (
    Check,
    Control,
    Environment,
    Failure,
    Finding,
    Interval,
    Measurement,
    Region,
    Run,
    Verdict,
)


def gap(low: float, high: float, **more: Any) -> Measurement:
    interval = Interval(low=low, high=high, confidence=0.9, method="paired t")
    return Measurement(
        name="paired gap",
        value=(low + high) / 2,
        unit="pp",
        n=3,
        interval=interval,
        region=Region(low=-1, high=1),
        of="seeds",
        **more,
    )


def finding(verdict: str, *measurements: Measurement, **more: Any) -> Finding:
    return Finding(
        subject="s",
        claim="c",
        verdict=Verdict(verdict),
        reason="because",
        headline="paired gap",
        measurements=measurements,
        **more,
    )


def test_an_undecided_claim_says_in_words_what_could_still_be() -> None:
    assert plain(finding("INCONCLUSIVE", gap(-0.7, 1.2))) == (
        "Three seeds cannot tell: the paired gap could be -0.7 to 1.2 pp, the claim allows ±1 pp."
    )


def test_a_guard_that_spoke_is_heard_instead_of_an_interval_that_would_have_passed() -> None:
    guarded = finding("INCONCLUSIVE", gap(-0.2, 0.4))
    assert plain(guarded) == "Because." and not says_more(guarded)


def test_a_claim_that_holds_in_part_names_in_words_what_keeps_it_from_holding() -> None:
    check = Check(name="return within 5", verdict=Verdict.INCONCLUSIVE, reason="p = 0.1")
    aside = Check(name="published", verdict=Verdict.FAIL, reason="better", aside="only a comparison")
    told = plain(finding("PARTIAL", gap(-0.2, 0.4), checks=(check, aside)))
    assert "return within 5" in told and "is undecided" in told and "p = 0.1" not in told and "published" not in told


def test_names_keep_their_own_spelling_at_the_head_of_a_claim() -> None:
    run = Run(id="r", created="c", findings=(
        finding("PASS", gap(-0.2, 0.4)).model_copy(update={"claim": "fa-layer/mlp is within 1 pp of backprop/mlp"}),
        finding("PASS", gap(-0.2, 0.4)).model_copy(update={"claim": "the gap is small"}),
    ))  # fmt: skip
    page = html(run)
    assert ">fa-layer/mlp is within 1 pp" in page and ">The gap is small" in page
    assert "first-letter" not in page, "a style would write Fa-layer"


@pytest.mark.parametrize(
    "forged",
    [
        finding("PASS", gap(-0.7, 1.2)),
        finding("PASS", gap(2.0, 3.0)),
        finding("PASS", Measurement(name="paired gap", value=float("nan"), region=Region(high=1.0))),
        finding("PASS", Measurement(name="paired gap", value=1.5, region=Region(high=1.0))),
        finding("PASS", gap(-0.2, 0.2), checks=(Check(name="floor", verdict=Verdict.FAIL, reason="below chance"),)),
        finding("PASS", gap(-0.2, 0.2), failures=(Failure(label="cell", kind="E", message="m"),)),
        finding(
            "PASS",
            gap(-0.2, 0.2),
            controls=(Control(name="k", kind="known-bad", expected="FAIL", observed="PASS", separated=False),),
        ),
        finding("FAIL", gap(-0.2, 0.2)),
    ],
)
def test_a_verdict_against_its_own_numbers_is_named_in_red_on_the_page(forged: Finding) -> None:
    assert contradictions(forged)
    run = Run(id="r", created="c", findings=(forged,))
    assert "contradict" in warnings(run)[0]
    assert html(run).count('class="contradiction"') >= 2


@pytest.mark.parametrize(
    "honest",
    [
        finding("PASS", gap(-0.2, 0.2)),
        finding("FAIL", gap(2.0, 3.0)),
        finding("FAIL", gap(-0.2, 0.2), checks=(Check(name="floor", verdict=Verdict.FAIL, reason="below chance"),)),
        finding("PARTIAL", gap(-0.2, 0.2)),
        finding("INCONCLUSIVE", gap(-0.2, 0.2)),
        finding(
            "PASS",
            gap(-0.2, 0.2),
            checks=(Check(name="published", verdict=Verdict.FAIL, reason="3 pp better", aside="only a comparison"),),
        ),
        finding("PASS"),
    ],
)
def test_an_honest_finding_is_left_alone(honest: Finding) -> None:
    assert contradictions(honest) == ()
    assert 'class="contradiction"' not in html(Run(id="r", created="c", findings=(honest,)))


def test_an_altered_file_is_named_on_its_page_and_a_fresh_one_is_not() -> None:
    fresh = Run.from_json(Run(id="r", created="c", findings=(finding("FAIL", gap(2.0, 3.0)),)).to_json())
    altered = fresh.model_copy(update={"findings": (finding("PASS", gap(-0.2, 0.2)),)})
    assert "changed after it was written" in html(altered)
    assert "changed after it was written" not in html(fresh)


def test_digits_follow_the_width_of_the_interval() -> None:
    wide = Interval(low=92.0, high=98.0, confidence=0.95, method="t")
    narrow = Interval(low=94.901, high=94.903, confidence=0.95, method="t")
    assert (sized(94.9021, wide), sized(94.9021, narrow), sized(94.9021, None)) == ("94.9", "94.9021", "94.9")
    assert sized(-0.001, wide) == "0.0"


def test_the_next_command_is_the_next_budget_for_what_is_undecided_with_its_cost() -> None:
    undecided = finding("INCONCLUSIVE", gap(-0.7, 1.2), number=2, seeds=(1, 2, 3), seconds=30.0)
    held = finding("PASS", gap(-0.2, 0.2), number=1, seeds=(1, 2, 3), seconds=30.0)
    run = Run(id="r", created="c", budget="quick", findings=(undecided, held), environment=Environment(cores=2))
    (step,) = next_steps(run)
    assert step.command == "assay verify 2 --budget standard"
    assert step.seconds == pytest.approx(30 / 3 * 7 / 2)
    assert next_steps(run.model_copy(update={"findings": (held,)})) == ()
    assert next_steps(run.model_copy(update={"budget": "full"})) == ()


def test_every_count_says_of_what(rich: Run) -> None:
    page = html(rich)
    assert "10&nbsp;seeds" in page.replace("</data>", "") or "&nbsp;seeds" in page
    assert page.count("&nbsp;seeds") >= 4


def test_equal_failures_are_told_once_with_their_number() -> None:
    failures = tuple(Failure(label=f"seed {k}", kind="ValueError", message="no data") for k in range(8))
    page = html(Run(id="r", created="c", findings=(finding("ERROR", failures=failures),)))
    assert page.count("no data") == 1 and "seed 0 and 7 more" in page


def test_the_next_benchmark_asks_for_every_undecided_task() -> None:
    tail = "--rules backprop eqprop --seeds 5 --seed 42"
    open_ = [
        finding("INCONCLUSIVE", gap(-0.7, 1.2), name=task, seeds=(1, 2), rerun=f"assay bench {task} {tail}")
        for task in ("digits", "mnist")
    ]
    held = finding("PASS", gap(-0.2, 0.2), name="xor", seeds=(1, 2), rerun=f"assay bench xor {tail}")
    (step,) = next_steps(Run(id="r", created="c", kind="bench", findings=(*open_, held)))
    assert step.command == "assay bench digits mnist --rules backprop eqprop --seeds 10 --seed 42"


def test_the_same_audit_of_two_models_is_told_apart_by_its_subject() -> None:
    one = finding("PASS", gap(-0.2, 0.2)).model_copy(update={"title": "Symmetry", "subject": "old"})
    two = one.model_copy(update={"subject": "new"})
    assert [words.title(one), words.title(two)] == ["Symmetry: old", "Symmetry: new"]
    assert words.title(one.model_copy(update={"number": 2})) == "Track 2: Symmetry"
    page = html(Run(id="r", created="c", findings=(one, two)))
    assert "Symmetry: old" in page and "Symmetry: new" in page
