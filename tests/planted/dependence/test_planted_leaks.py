"""Every planted leak is found and its module named; every healthy twin is accepted."""

from __future__ import annotations

import pytest
import torch
from planted_leaks import Case, suite
from torch import Tensor, nn

import assay
from assay import dependence as dep
from assay.results import Verdict

CASES = suite(0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_leak_is_found_and_named_and_a_healthy_twin_accepted(case: Case) -> None:
    finding = assay.audit_dependence(case.build(), case.sample, case.depends)
    assert finding.verdict is (Verdict.PASS if case.module is None else Verdict.FAIL), finding.reason
    assert all(control.separated for control in finding.controls)
    if case.module not in (None, "*"):
        location = finding.issues[0].location
        assert location.split(" (its own")[0] == (case.module or "(model)"), location


def test_micro_batches_of_unequal_counts_are_a_mean_of_means() -> None:
    model = nn.Linear(4, 1)
    x, mask = torch.randn(4, 6, 4), torch.ones(4, 6)
    mask[0, 2:] = 0

    def mean_over_tokens(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, mask = batch
        return (model(x).square().squeeze(-1) * mask).sum() / mask.sum()

    def mean_over_rows(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, mask = batch
        return ((model(x).square().squeeze(-1) * mask).sum(1)).mean()

    run = {"call": lambda model, batch: model(batch[0])}
    bad = assay.audit_dependence(model, (x, mask), dep.accumulation(2, loss=mean_over_tokens), **run)
    good = assay.audit_dependence(model, (x, mask), dep.accumulation(2, loss=mean_over_rows), **run)
    assert (bad.verdict, good.verdict) == (Verdict.FAIL, Verdict.PASS)
    assert "mean of means" in bad.key_finding
