"""Every planted mistake is found and its module named; every healthy rewriting is accepted."""

from __future__ import annotations

import pytest
from planted_twins import Twin, healthy, planted

import assay
from assay.results import Verdict

FAST = ("mlp", "transformer", "energy")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


@pytest.mark.parametrize("twin", planted(0, families=FAST), ids=lambda twin: twin.name)
def test_a_planted_mistake_is_found_and_named(twin: Twin) -> None:
    finding = assay.audit_same(twin.reference, twin.candidate, twin.sample)
    assert finding.verdict is Verdict.FAIL, finding.reason
    assert all(control.separated for control in finding.controls)
    assert twin.module in ("*", finding.issues[0].location)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAST)
def test_the_same_computation_written_in_another_way_is_accepted(family: str) -> None:
    for twin in healthy(0, families=(family,)):
        finding = assay.audit_same(twin.reference, twin.candidate, twin.sample)
        assert finding.passed, (twin.name, finding.reason)
