"""A smoke run is a first look: it shows that everything runs, decides no statistical claim, and says so."""

from __future__ import annotations

import pytest

from assay import stats
from assay.protocols import BUDGETS, SEEDS
from assay.results import Evidence, Finding, Verdict


def finding(verdict: Verdict, **changes: object) -> Finding:
    return Finding.model_validate({"subject": "s", "claim": "c", "verdict": verdict, "reason": "because", "score": 80.0,
                                   "evidence": Evidence.CONFIRMED, **changes})  # fmt: skip


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.PARTIAL, Verdict.FAIL])
def test_a_shortened_training_neither_shows_nor_refutes_a_statistical_claim(verdict: Verdict) -> None:
    found = stats.first_look(finding(verdict), kind="statistical")
    assert found.verdict is Verdict.INCONCLUSIVE and found.score == 50.0
    assert found.evidence is Evidence.SMOKE and "because" in found.reason and str(verdict) in found.reason


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.FAIL])
def test_a_deterministic_verdict_stands_on_smoke(verdict: Verdict) -> None:
    found = stats.first_look(finding(verdict), kind="deterministic")
    assert (found.verdict, found.evidence, found.score) == (verdict, Evidence.SMOKE, 80.0)
    assert "first look" in found.limitations[-1]


@pytest.mark.parametrize("verdict", [Verdict.ERROR, Verdict.INCONCLUSIVE])
def test_errors_and_undecided_findings_stay_what_they_are(verdict: Verdict) -> None:
    found = stats.first_look(finding(verdict), kind="statistical")
    assert found.verdict is verdict and found.reason == "because" and found.evidence is Evidence.SMOKE


def test_smoke_is_the_smallest_budget_and_takes_one_seed() -> None:
    assert BUDGETS[0] == "smoke" and SEEDS["smoke"] == 1 and set(SEEDS) == set(BUDGETS)
